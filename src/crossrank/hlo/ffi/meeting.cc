#include "meeting.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "crossrank/plan.h"
#include "elastic.h"
#include "failures.h"
#include "float_mode.h"
#include "machine.h"
#include "options.h"
#include "pool.h"

namespace crossrank {

namespace ffi = xla::ffi;

namespace {

std::atomic<Callback> python{nullptr};

// Whether the cores are wanted by others than ranks that linger. Who gives way then waits for whole time slices, and a
// wake-up, which comes ahead of its turn, is many times faster: for a while nobody lingers.
class Crowd {
 public:
  static bool here(Clock::time_point now) {
    return now.time_since_epoch().count() < until_.load(std::memory_order_relaxed);
  }
  static void gave_way(Clock::time_point before, Clock::time_point after) {
    if (after - before <= kSlow) return;
    const auto end = after + std::chrono::microseconds(Options::instance().crowd_us.load());
    until_.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  static constexpr auto kSlow = std::chrono::microseconds(100);
  static inline std::atomic<Clock::rep> until_{0};
};

// Threads that keep promises, and threads that call Python.
Elastic& completers() {
  static Elastic* threads = new Elastic;
  return *threads;
}
Elastic& callers() {
  static Elastic* threads = new Elastic;
  return *threads;
}

ffi::Error error_of(const std::string& why) { return ffi::Error(ffi::ErrorCode::kAborted, why); }

// Keeps promises on threads of our own: what continues behind one may block (in a native collective's own
// rendezvous), so it must run neither on an arriving rank's thread nor on a worker, and none may wait behind another.
// One task keeps one after the other, but before its first it sends for a successor, which takes over should it
// block.
struct Relay {
  std::vector<ffi::Promise> promises;
  std::string error;
  std::atomic<size_t> next{0};

  static void run(const std::shared_ptr<Relay>& relay) {
    const size_t n = relay->promises.size();
    size_t i = relay->next.fetch_add(1);
    if (i >= n) return;
    if (i + 1 < n) completers().submit([relay] { run(relay); });
    for (; i < n; i = relay->next.fetch_add(1)) {
      if (relay->error.empty())
        relay->promises[i].SetAvailable();
      else
        relay->promises[i].SetError(error_of(relay->error));
    }
  }
};

void keep(std::vector<ffi::Promise> promises, const std::string& error) {
  if (promises.empty()) return;
  const auto relay = std::make_shared<Relay>();
  relay->promises = std::move(promises);
  relay->error = error;
  completers().submit([relay] { Relay::run(relay); });
}

// "ranks 0,1,2" or "rank 3"; a long list ends in how many there are.
std::string ranks_text(const std::vector<int32_t>& ranks) {
  constexpr size_t kShown = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += (i ? "," : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += ",… (" + std::to_string(ranks.size()) + " in all)";
  return text;
}

}  // namespace

void set_callback(Callback callback) { python = callback; }

Meeting::Meeting(Call& call, int64_t run, int32_t group)
    : call_(call),
      run_(run),
      group_(group),
      size_(uint32_t(call.groups[size_t(group)].size())),
      here_(size_),
      buffers_(size_) {}

Outcome Meeting::attend(Call& call, int64_t run, int32_t rank, const Buffers& buffers) {
  const Options& options = Options::instance();
  const bool absent = rank == options.absent_rank && (options.absent_id < 0 || call.id == options.absent_id);
  const Arrival arrival = join(call, run, call.places[size_t(rank)], buffers, !absent);
  if (!arrival.meeting) return error_of(arrival.failed);
  if (arrival.last) arrival.meeting->start();
  return absent ? arrival.meeting->leave() : arrival.meeting->await();
}

Meeting::Arrival Meeting::join(Call& call, int64_t run, Call::Place place, const Buffers& buffers, bool present) {
  std::lock_guard<std::mutex> lock(call.mutex);
  // Under the mutex: a run that fails is marked first and then looked for in the open meetings.
  if (const auto why = Failures::instance().of(run)) return {nullptr, false, *why};
  auto found = std::find_if(call.open.begin(), call.open.end(), [&](const auto& m) {
    return m->run_ == run && m->group_ == place.group;
  });
  if (found == call.open.end()) {
    call.open.push_back(std::make_shared<Meeting>(call, run, place.group));
    found = call.open.end() - 1;
  }
  const std::shared_ptr<Meeting> meeting = *found;
  if (!present) return {meeting, false, ""};
  meeting->buffers_[size_t(place.position)] = buffers;
  meeting->here_[size_t(place.position)] = true;
  const bool last = ++meeting->arrived_ == meeting->size_;
  if (last) call.open.erase(found);  // before the work starts: a loop may come here again
  return {meeting, last, ""};
}

std::string Meeting::late_message(double limit_s) const {
  std::vector<int32_t> arrived, missing;
  for (size_t i = 0; i < size_; ++i) (here_[i] ? arrived : missing).push_back(call_.groups[size_t(group_)][i]);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", limit_s);
  const std::string who = arrived.empty() ? "no rank" : ranks_text(arrived);
  return call_.label + " waited " + seconds + " s: " + who + " arrived, " + ranks_text(missing) + " did not";
}

void Meeting::prepare(Part& part, size_t operand) {
  const Options& options = Options::instance();
  const Operand& spec = call_.operands[operand];
  part.peers.resize(2 * size_);
  bool in_place = true;
  for (uint32_t i = 0; i < size_; ++i) {
    part.peers[i] = buffers_[i].operands[operand].data;
    part.peers[size_ + i] = buffers_[i].results[operand].data;
    in_place = in_place && part.peers[i] == part.peers[size_ + i];
  }
  part.extents.assign(spec.extents, spec.extents + 3);
  part.extents.insert(part.extents.end(), spec.extents, spec.extents + 3);
  if (spec.shape == Shape::kAllGather) part.extents[4] *= size_;
  if (spec.shape == Shape::kReduceScatter) part.extents[4] /= size_;
  for (int i = 0; i < 2; ++i)
    part.tensors[i] = {part.peers[i * size_], part.extents.data() + 3 * i, nullptr, spec.dtype, 3};
  part.context = {nullptr, nullptr, part.peers.data(), uint64_t(options.stream_above), 0, size_, 2};
  part.args[0].tensor = &part.tensors[0];
  part.args[1].tensor = &part.tensors[1];
  part.args[2].context = &part.context;
  const uint64_t moved = spec.moved(size_), result = spec.result_bytes(size_);
  part.blocks = moved <= uint64_t(options.small) ? 1 : blocks_of(moved, uint64_t(options.block));
  if (!in_place && result >= uint64_t(options.advise_above))
    for (uint32_t i = 0; i < size_; ++i) advise_huge(part.peers[size_ + i], result);
  total_ += part.blocks;
  moved_ += moved;
}

void Meeting::start() {
  started_at_ = Clock::now();
  if (call_.kind == Call::kOracle) {
    total_ = 1;
    callers().submit([self = shared_from_this()] { self->call_back(); });
    return;
  }
  parts_.resize(call_.operands.size());
  for (size_t i = 0; i < parts_.size(); ++i) prepare(parts_[i], i);
  started_.store(true, std::memory_order_release);
  const Options& options = Options::instance();
  if (moved_ > uint64_t(options.small)) {
    const int helpers = int(options.threads) - lingering_.load();  // ranks that linger work too
    if (helpers > 0) Pool::instance().offer([self = shared_from_this()] { self->work(); }, helpers);
  }
  work();
}

void Meeting::work() {
  const FloatMode mode(Options::instance().flush_subnormals != 0);
  size_t part = 0;
  uint64_t before = 0;  // blocks of earlier parts
  for (uint64_t k; (k = next_.fetch_add(1, std::memory_order_relaxed)) < total_;) {
    for (; k - before >= parts_[part].blocks; ++part) before += parts_[part].blocks;
    parts_[part].run(call_.operands[part].body, k - before);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == total_) complete();
  }
}

void Meeting::call_back() {
  const size_t n_operands = buffers_[0].operands.size(), n_results = buffers_[0].results.size();
  std::vector<void*> operands, results;
  std::vector<int64_t> operand_bytes, result_bytes;
  for (const Buffers& mine : buffers_) {
    for (const Buffer& b : mine.operands) operands.push_back(b.data), operand_bytes.push_back(int64_t(b.bytes));
    for (const Buffer& b : mine.results) results.push_back(b.data), result_bytes.push_back(int64_t(b.bytes));
  }
  std::vector<char> error(4096);
  const FloatMode mode(Options::instance().flush_subnormals != 0);
  const int32_t status = python.load()(call_.id, group_, int32_t(size_), int32_t(n_operands), int32_t(n_results),
                                       operands.data(), operand_bytes.data(), results.data(), result_bytes.data(),
                                       error.data(), int32_t(error.size()));
  if (status) {
    const std::string why = call_.label + ": " + error.data();
    Failures::instance().fail(run_, why);
    fail(why);  // it is no longer among the open ones
    return;
  }
  done_ = 1;
  complete();
}

void Meeting::complete() {
  const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - started_at_).count();
  call_.times.calls += 1;
  call_.times.bytes += moved_;
  call_.times.nanoseconds += uint64_t(spent);
  std::vector<ffi::Promise> left;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    left.swap(promises_);
  }
  keep(std::move(left), "");
}

void Meeting::fail(const std::string& why) {
  std::vector<ffi::Promise> left;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    failed_ = why;
    left.swap(promises_);
  }
  keep(std::move(left), why);
}

bool Meeting::lingers(Clock::time_point now) {
  constexpr int kTries = 4;  // meetings in which lingering came to nothing, before it is left; now and then it is tried
  if (call_.kind == Call::kOracle || Crowd::here(now)) return false;
  const int many = kTries * int(size_);
  return call_.lonely.load(std::memory_order_relaxed) < many ||
         call_.lonely.fetch_add(1, std::memory_order_relaxed) % many == 0;
}

// For a bounded time a rank stays, gives way to the others, and takes blocks once the last has come. If it sees the end
// there is no promise, no task and no wake-up.
Outcome Meeting::await() {
  auto now = Clock::now();
  const auto until = now + std::chrono::microseconds(Options::instance().linger_us.load());
  if (!lingers(now)) return leave();
  lingering_.fetch_add(1);
  while (!started_.load(std::memory_order_acquire)) {
    if (now > until) {
      lingering_.fetch_sub(1);
      call_.lonely.fetch_add(1, std::memory_order_relaxed);
      return leave();
    }
    const auto before = now;
    sched_yield();
    now = Clock::now();
    Crowd::gave_way(before, now);
  }
  call_.lonely.store(0, std::memory_order_relaxed);
  work();
  while (!done()) {
    if (Clock::now() > until) return leave();
    sched_yield();
  }
  return ffi::Error::Success();
}

Outcome Meeting::leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return failed_.empty() ? ffi::Error::Success() : error_of(failed_);
  ffi::Promise promise;
  ffi::Future future(promise);
  promises_.push_back(std::move(promise));
  return future;
}

}  // namespace crossrank
