#include "threads.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "float_mode.h"
#include "machine.h"

namespace crossrank {

const Fabric ThreadGroup::kFabric = {read, write, notify, wait, nullptr, fence, barrier, claim, nullptr};

ThreadGroup::ThreadGroup(uint32_t size, uint32_t slots, const Tensor* tensors, uint64_t stream_above, double limit_s,
                         bool staged)
    : size_(size),
      slots_(slots),
      tensors_(tensors, tensors + size_t(size) * slots),
      stream_above_(stream_above),
      limit_s_(limit_s),
      start_(Clock::now()),
      peers_(size_t(size) * slots, nullptr) {
  if (!staged)
    for (uint32_t s = 0; s < slots; ++s)
      for (uint32_t r = 0; r < size; ++r) peers_[size_t(s) * size + r] = tensors_[size_t(r) * slots + s].data;
}

CommContext ThreadGroup::context(uint32_t rank) {
  return {&kFabric, this, peers_.data(), stream_above_, rank, size_, slots_, nullptr};
}

const std::vector<Slot> ThreadGroup::arguments(uint32_t rank, CommContext* ctx) const {
  std::vector<Slot> args(slots_ + 1);
  for (uint32_t s = 0; s < slots_; ++s) args[s].tensor = &tensors_[size_t(rank) * slots_ + s];
  args[slots_].context = ctx;
  return args;
}

void ThreadGroup::give_up() {
  given_up_ = true;
  wake_all(&generation_);
}

bool ThreadGroup::late() {
  if (!given_up_ && seconds_since(start_) > limit_s_) give_up();
  return given_up_;
}

char* ThreadGroup::at(uint32_t slot, uint32_t rank, Range range) const {
  if (slot >= slots_ || rank >= size_) return nullptr;
  const Tensor& tensor = tensors_[size_t(rank) * slots_ + slot];
  uint64_t bytes = item_bytes(tensor.dtype);
  for (int32_t d = 0; d < tensor.rank; ++d) bytes *= uint64_t(tensor.shape[d]);
  if (range.offset > bytes || range.bytes > bytes - range.offset) return nullptr;
  return static_cast<char*>(tensor.data) + range.offset;
}

std::atomic<int32_t>* ThreadGroup::cell(uint32_t slot, uint32_t rank, uint64_t index) const {
  static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
  return reinterpret_cast<std::atomic<int32_t>*>(at(slot, rank, {index * sizeof(int32_t), sizeof(int32_t)}));
}

Status ThreadGroup::read(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, void* into) {
  const char* from = of(ctx).at(slot, rank, range);
  if (!from) return kBadCall;
  std::memcpy(into, from, range.bytes);
  return kOk;
}

Status ThreadGroup::write(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, const void* from) {
  char* to = of(ctx).at(slot, rank, range);
  if (!to) return kBadCall;
  std::memcpy(to, from, range.bytes);
  return kOk;
}

Status ThreadGroup::notify(CommContext* ctx, uint32_t slot, uint32_t rank, uint64_t index, int32_t value, Notify how) {
  ThreadGroup& group = of(ctx);
  std::atomic<int32_t>* cell = group.cell(slot, rank, index);
  if (!cell) return kBadCall;
  if (how == Notify::kAdd)
    cell->fetch_add(value);
  else
    cell->store(value);
  if (group.sleepers_) wake_all(cell);
  return kOk;
}

Status ThreadGroup::wait(CommContext* ctx, uint32_t slot, uint64_t index, int32_t value, Compare how) {
  ThreadGroup& group = of(ctx);
  std::atomic<int32_t>* cell = group.cell(slot, ctx->rank, index);
  if (!cell) return kBadCall;
  const auto reached = [&] { return how == Compare::kEqual ? cell->load() == value : cell->load() >= value; };
  auto& word = reinterpret_cast<std::atomic<uint32_t>&>(*cell);
  return wait_until(word, group.sleepers_, reached, [&] { return group.late(); }) ? kOk : kGivenUp;
}

Status ThreadGroup::fence(CommContext*) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return kOk;
}

Status ThreadGroup::barrier(CommContext* ctx) {
  ThreadGroup& group = of(ctx);
  if (group.given_up_) return kGivenUp;
  const uint32_t generation = group.generation_.load();
  if (group.arrived_.fetch_add(1) + 1 == group.size_) {
    group.arrived_ = 0;
    group.next_ = 0;
    group.generation_ = generation + 1;
    if (group.sleepers_) wake_all(&group.generation_);
    return kOk;
  }
  const auto passed = [&] { return group.generation_.load() != generation; };
  return wait_until(group.generation_, group.sleepers_, passed, [&] { return group.late(); }) ? kOk : kGivenUp;
}

uint64_t ThreadGroup::claim(CommContext* ctx) { return of(ctx).next_.fetch_add(1, std::memory_order_relaxed); }

}  // namespace crossrank

// Runs `kernel` once on each rank, a thread each. statuses[r]: what rank r's call returned, -1 where it is still
// running when the limit and a little grace are over (then its thread goes on, with memory that the caller must never
// free). Returns how many are still running.
extern "C" uint32_t crossrank_run_threads(int32_t (*kernel)(const crossrank::Slot*), uint32_t size, uint32_t slots,
                                          const crossrank::Tensor* tensors, uint64_t stream_above, double limit_s,
                                          int32_t staged, int32_t* statuses) {
  using namespace crossrank;
  constexpr double kGrace = 1.0;
  struct Run {
    ThreadGroup group;
    std::mutex mutex;
    std::condition_variable ended;
    uint32_t running;
    std::vector<int32_t> statuses;
    Run(uint32_t size, uint32_t slots, const Tensor* tensors, uint64_t stream_above, double limit_s, bool staged)
        : group(size, slots, tensors, stream_above, limit_s, staged), running(size), statuses(size, -1) {}
  };
  const auto run = std::make_shared<Run>(size, slots, tensors, stream_above, limit_s, staged != 0);
  for (uint32_t r = 0; r < size; ++r)
    std::thread([run, kernel, r] {
      const FloatMode mode(false);
      CommContext ctx = run->group.context(r);
      const std::vector<Slot> args = run->group.arguments(r, &ctx);
      const int32_t status = kernel(args.data());
      std::lock_guard<std::mutex> lock(run->mutex);
      run->statuses[r] = status;
      if (--run->running == 0) run->ended.notify_all();
    }).detach();
  std::unique_lock<std::mutex> lock(run->mutex);
  const auto over = [&] { return run->running == 0; };
  if (!run->ended.wait_for(lock, std::chrono::duration<double>(limit_s), over)) {
    run->group.give_up();
    run->ended.wait_for(lock, std::chrono::duration<double>(kGrace), over);
  }
  std::memcpy(statuses, run->statuses.data(), size * sizeof(int32_t));
  return run->running;
}

extern "C" uint64_t crossrank_stream_above() { return crossrank::stream_above(); }
