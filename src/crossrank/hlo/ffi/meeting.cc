#include "meeting.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "crossrank/plan.h"
#include "crossrank/ragged.h"
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
  const bool eager = !call.eager.empty() && call.eager[size_t(rank)] && !absent;
  Copies copies;
  Buffers own;
  if (eager) own = copied(buffers, copies);
  const Arrival arrival =
      join(call, run, call.places[size_t(rank)], eager ? own : buffers, std::move(copies), !absent);
  if (!arrival.meeting) return error_of(arrival.failed);
  if (arrival.last) arrival.meeting->start();
  if (eager) return ffi::Error::Success();
  return absent ? arrival.meeting->leave() : arrival.meeting->await();
}

// What the rank itself gets is nothing: zeros.
Buffers Meeting::copied(const Buffers& buffers, Copies& copies) {
  constexpr size_t kAlign = 64;
  const auto place = [&](const Buffer& like) {
    copies.emplace_back(std::aligned_alloc(kAlign, (like.bytes / kAlign + 1) * kAlign), std::free);
    return Buffer{copies.back().get(), like.bytes};
  };
  Buffers own;
  for (const Buffer& operand : buffers.operands) {
    own.operands.push_back(place(operand));
    std::memcpy(own.operands.back().data, operand.data, operand.bytes);
  }
  for (const Buffer& result : buffers.results) {
    own.results.push_back(place(result));
    std::memset(result.data, 0, result.bytes);
  }
  return own;
}

Meeting::Arrival Meeting::join(Call& call, int64_t run, Call::Place place, const Buffers& buffers, Copies copies,
                               bool present) {
  std::lock_guard<std::mutex> lock(call.mutex);
  // Under the mutex: a run that fails is marked first and then looked for in the open meetings.
  if (const auto why = Failures::instance().of(run)) return {nullptr, false, *why};
  auto found = std::find_if(call.open.begin(), call.open.end(), [&](const auto& m) {
    // a rank that does not stay may be here again before the others have come for the first time
    return m->run_ == run && m->group_ == place.group && !m->here_[size_t(place.position)];
  });
  if (found == call.open.end()) {
    call.open.push_back(std::make_shared<Meeting>(call, run, place.group));
    found = call.open.end() - 1;
  }
  const std::shared_ptr<Meeting> meeting = *found;
  if (!present) return {meeting, false, ""};
  meeting->buffers_[size_t(place.position)] = buffers;
  meeting->here_[size_t(place.position)] = true;
  std::move(copies.begin(), copies.end(), std::back_inserter(meeting->copies_));
  const bool last = ++meeting->arrived_ == meeting->size_;
  if (last) call.open.erase(found);  // before the work starts: a loop may come here again
  return {meeting, last, ""};
}

std::string Meeting::late_message(double limit_s) const {
  std::vector<int32_t> arrived;
  for (size_t i = 0; i < size_; ++i)
    if (here_[i]) arrived.push_back(call_.groups[size_t(group_)][i]);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", limit_s);
  const std::string who = arrived.empty() ? "no rank" : ranks_text(arrived);
  return call_.label + " waited " + seconds + " s: " + who + " arrived, " + ranks_text(missing()) + " did not";
}

std::vector<int32_t> Meeting::missing() const {
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < size_; ++i)
    if (!here_[i]) ranks.push_back(call_.groups[size_t(group_)][i]);
  return ranks;
}

bool Meeting::has(int32_t rank) const {
  if (size_t(rank) >= call_.places.size()) return false;
  const Call::Place place = call_.places[size_t(rank)];
  return place.group == group_ && here_[size_t(place.position)];
}

std::string Meeting::waiting_message(int32_t rank) const {
  return ranks_text({rank}) + " waits in " + call_.label + " for " + ranks_text(missing());
}

void Meeting::prepare(Part& part, const PartSpec& spec) {
  const Options& options = Options::instance();
  const uint32_t n = uint32_t(spec.tensors);
  part.peers.resize(size_t(n) * size_);
  part.context = {nullptr, nullptr, part.peers.data(), uint64_t(options.stream_above), 0, size_, n};
  part.args[n].context = &part.context;
  for (uint32_t t = 0; t < n; ++t) {
    const TensorSpec& tensor = spec.tensor[t];
    void** peers = part.peers.data() + size_t(t) * size_;
    for (uint32_t i = 0; i < size_; ++i) peers[i] = address(tensor, i);
    part.tensors[t] = {peers[0], tensor.extents, nullptr, tensor.dtype, 3};
    part.args[t].tensor = &part.tensors[t];
    if (tensor.from != TensorSpec::kResult && tensor.from != TensorSpec::kPeer) continue;
    const uint64_t bytes = tensor.bytes();
    const bool in_place = std::find(part.peers.data(), static_cast<void**>(peers), peers[0]) != peers;
    if (!in_place && bytes >= uint64_t(options.advise_above))
      for (uint32_t i = 0; i < size_; ++i) advise_huge(peers[i], bytes);
  }
  const uint64_t moved = spec.moved(size_);
  part.blocks = moved <= uint64_t(options.small) ? 1 : blocks_of(moved, uint64_t(options.block));
  total_ += part.blocks;
  moved_ += moved;
}

void* Meeting::address(const TensorSpec& tensor, uint32_t member) {
  switch (tensor.from) {
    case TensorSpec::kOperand: return buffers_[member].operands[size_t(tensor.index)].data;
    case TensorSpec::kResult: return buffers_[member].results[size_t(tensor.index)].data;
    case TensorSpec::kPeer: return buffers_[size_t(tensor.index)].results[member].data;
    default: return call_.sources[size_t(group_)].data();
  }
}

// "rank 2 sends rows 5..13 of 8", or nothing where all rows are there.
std::string Meeting::fault_of(const Part& part) const {
  Ragged ragged(part.args);
  RaggedFault fault;
  if (ragged.load() || ragged.right(fault)) return "";
  const auto& ranks = call_.groups[size_t(group_)];
  const std::string sender = "rank " + std::to_string(ranks[fault.member]);
  const std::string receiver = "rank " + std::to_string(ranks[fault.peer]);
  const auto rows = [&](int64_t first, int64_t all) {
    const auto last = int64_t(uint64_t(first) + uint64_t(fault.rows.count));
    return "rows " + std::to_string(first) + ".." + std::to_string(last) + " of " + std::to_string(all);
  };
  switch (fault.what) {
    case RaggedFault::kSizesDiffer:
      return sender + " sends " + std::to_string(fault.rows.count) + " rows to " + receiver + ", which expects " +
             std::to_string(fault.rows.expected);
    case RaggedFault::kOutsideInput: return sender + " sends " + rows(fault.rows.start, ragged.input_rows());
    default: return sender + " writes " + rows(fault.rows.place, ragged.result_rows()) + " on " + receiver;
  }
}

void Meeting::start() {
  started_at_ = Clock::now();
  if (call_.kind == Call::kOracle) {
    total_ = 1;
    callers().submit([self = shared_from_this()] { self->call_back(); });
    return;
  }
  parts_.resize(call_.parts.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    prepare(parts_[i], call_.parts[i]);
    if (!call_.parts[i].ragged) continue;
    if (const std::string fault = fault_of(parts_[i]); !fault.empty()) return fail_run(call_.label + ": " + fault);
  }
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
    parts_[part].run(call_.parts[part].body, k - before);
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
    fail_run(call_.label + ": " + error.data());
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

// For a meeting that is no longer among the open ones.
void Meeting::fail_run(const std::string& why) {
  Failures::instance().fail(run_, why);
  fail(why);
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
