// Runs a collective whose ranks' arguments are all known at once: no rank waits, so no rank needs a thread. The pool and
// the caller take blocks of the body until none is left.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "crossrank/plan.h"
#include "float_mode.h"
#include "machine.h"
#include "pool.h"

namespace crossrank {

using BodyEntry = int32_t (*)(const Slot*, uint64_t block, uint64_t blocks);

class BodyRun {
 public:
  BodyRun(BodyEntry body, uint32_t size, uint32_t slots, const Tensor* tensors, void* const* peers,
          uint64_t stream_above, uint64_t moved, bool flush_subnormals)
      : body_(body),
        flush_subnormals_(flush_subnormals),
        tensors_(tensors, tensors + slots),
        peers_(peers, peers + size_t(slots) * size),
        context_{nullptr, nullptr, peers_.data(), stream_above, 0, size, slots},
        args_(slots + 1),
        blocks_(blocks_of(moved)) {
    for (uint32_t s = 0; s < slots; ++s) args_[s].tensor = &tensors_[s];
    args_[slots].context = &context_;
  }

  uint64_t blocks() const { return blocks_; }

  void work() {
    const FloatMode mode(flush_subnormals_);
    for (uint64_t k; (k = next_.fetch_add(1, std::memory_order_relaxed)) < blocks_;) {
      if (const int32_t status = body_(args_.data(), k, blocks_)) status_.store(status);
      std::lock_guard<std::mutex> lock(mutex_);
      if (++done_ == blocks_) ended_.notify_all();
    }
  }

  int32_t await() {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return done_ == blocks_; });
    return status_.load();
  }

 private:
  const BodyEntry body_;
  const bool flush_subnormals_;
  const std::vector<Tensor> tensors_;
  const std::vector<void*> peers_;
  CommContext context_;
  std::vector<Slot> args_;
  const uint64_t blocks_;
  std::atomic<uint64_t> next_{0};
  std::atomic<int32_t> status_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  uint64_t done_ = 0;
};

}  // namespace crossrank

// `tensors`: rank 0's, one a slot, and alike on all ranks; `peers`: [slots][size] addresses; `moved`: bytes that all ranks
// together read and write. Returns what a body returned that failed, else 0.
extern "C" int32_t crossrank_run_bodies(crossrank::BodyEntry body, uint32_t size, uint32_t slots,
                                        const crossrank::Tensor* tensors, void* const* peers, uint64_t stream_above,
                                        uint64_t moved, int32_t flush_subnormals) {
  using namespace crossrank;
  const auto run =
      std::make_shared<BodyRun>(body, size, slots, tensors, peers, stream_above, moved, flush_subnormals != 0);
  // a late helper finds no block left, and only the shared run
  if (run->blocks() > 1 && cores() > 1) Pool::instance().offer([run] { run->work(); }, cores() - 1);
  run->work();
  return run->await();
}
