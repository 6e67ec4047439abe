#include "tasks.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "elastic.h"
#include "float_mode.h"
#include "machine.h"
#include "pool.h"

namespace crossrank {

namespace {

constexpr auto kTick = std::chrono::milliseconds(20);  // cells may be changed by plain stores, of which nobody tells
constexpr auto kGrace = std::chrono::seconds(1);
constexpr uint32_t kMostDeferred = 64;
// More are of no use to kernels that compute, and fewer let those that meet sleep where they need not.
constexpr uint32_t kThreadsPerCore = 32;
constexpr uint32_t kGrowth = 16, kMostThreads = 1024;

Elastic& elastic() {
  static Elastic* threads = new Elastic;  // never destroyed: its threads may outlive main()
  return *threads;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

Engine::Block::Block(Engine& its_engine, Task& its_task, uint32_t index)
    : engine(its_engine), task(its_task), launch{index, uint32_t(task.blocks.size()), 0, 0, {}, this} {
  const Arguments& given = *task.arguments;
  contexts = given.contexts;
  slots.reserve(given.tensors.size() + contexts.size() + given.scalars.size() + 1);
  for (const Tensor& tensor : given.tensors) slots.push_back({&tensor});
  for (CommContext& context : contexts) {
    context.launch = &launch;
    slots.emplace_back().context = &context;
  }
  for (const uint64_t bits : given.scalars) slots.emplace_back().integer = int64_t(bits);
  slots.emplace_back().launch = &launch;
}

Engine::Arguments::Arguments(const TaskArguments& given)
    : tensors(given.tensors, given.tensors + given.tensor_count),
      scalars(given.scalars, given.scalars + given.scalar_count) {
  size_t extent_count = 0, peer_count = 0;
  for (const Tensor& tensor : tensors) extent_count += 2 * size_t(tensor.rank);
  extents.reserve(extent_count);
  const auto copied = [this](const int64_t* from, int32_t count) {
    extents.insert(extents.end(), from, from + count);
    return extents.data() + extents.size() - count;
  };
  for (Tensor& tensor : tensors) {
    tensor.shape = copied(tensor.shape, tensor.rank);
    tensor.strides = copied(tensor.strides, tensor.rank);
  }
  for (uint32_t c = 0; c < given.context_count; ++c)
    peer_count += size_t(given.contexts[c].slots) * given.contexts[c].size;
  peers.reserve(peer_count);
  for (uint32_t c = 0; c < given.context_count; ++c) {
    const TaskContext& context = given.contexts[c];
    void* const* const table = peers.data() + peers.size();
    peers.insert(peers.end(), context.peers, context.peers + size_t(context.slots) * context.size);
    contexts.push_back(
        {&kFabric, nullptr, table, stream_above(), context.rank, context.size, context.slots, nullptr});
    domains.push_back(context.domain);
  }
}

Engine::Engine(double limit_s)
    : limit_s_(limit_s), threads_{false, kThreadsPerCore * uint32_t(cores())}, pool_{true, uint32_t(cores())} {}

void Engine::start() {
  elastic().submit([self = shared_from_this()] { self->watch(); });
}

// ---- tasks ----

Engine::Task& Engine::add(const char* name, TaskRecord record, Kernel kernel, Lane* lane) {
  if (tasks_.empty()) clock_ = Clock::now(), tick_.notify_one();
  const auto [named, is_new] = name_numbers_.try_emplace(name, uint32_t(names_.size()));
  if (is_new) names_.push_back(named->first.c_str());
  record.name = named->second;
  const uint64_t number = records_.size();
  Task made{number, records_.emplace_back(record), kernel, lane};
  return tasks_.emplace_hint(tasks_.end(), number, std::move(made))->second;
}

int64_t Engine::submit(Kernel kernel, const char* name, int32_t rank, const TaskArguments& arguments,
                       const std::vector<uint64_t>& needs, uint32_t blocks, bool never_waits) {
  Lane& lane = never_waits ? pool_ : threads_;
  if (!kernel) blocks = 0;
  auto copied = kernel ? std::make_unique<Arguments>(arguments) : nullptr;
  const Lock lock(mutex_);
  if (given_up_) return -1;
  for (const uint64_t need : needs)
    if (need >= records_.size()) return -2;
  Task& task = add(name, {rank, 0, 0, blocks, 0, 0}, kernel, &lane);
  const int64_t number = int64_t(task.number);
  task.arguments = std::move(copied);
  task.left = blocks;
  task.blocks.resize(blocks);
  task.needs = needs;
  for (const uint64_t need : needs) {
    const auto needed = tasks_.find(need);
    if (needed == tasks_.end()) continue;
    ++task.missing;
    needed->second.dependents.push_back(&task);
  }
  if (task.missing == 0 && !start(task)) over(task);
  pump(lane);
  return number;
}

int64_t Engine::open(const char* name, int32_t rank) {
  const Lock lock(mutex_);
  if (given_up_) return -1;
  moved();
  ++orchestrating_;
  return int64_t(add(name, {rank, 1, 0, 0, now_ns(), 0}, nullptr, nullptr).number);
}

void Engine::close(uint64_t number) {
  const Lock lock(mutex_);
  --orchestrating_;
  over(tasks_.at(number));
  settle();
}

// Lets its blocks start; false where it has none.
bool Engine::start(Task& task) {
  if (!task.kernel) return false;
  task.needs = {};
  for (uint32_t block = 0; block < task.left; ++block) task.lane->ready.emplace_back(&task, block);
  return true;
}

void Engine::over(Task& first) {
  moved();
  std::vector<Task*> those{&first};  // of tasks that do nothing there may be long chains
  while (!those.empty()) {
    Task& task = *those.back();
    those.pop_back();
    task.record.end = now_ns();
    if (!task.record.begin) task.record.begin = task.record.end;
    for (Waiter* waiter : task.waiters) {
      if (--waiter->missing) continue;
      orchestrating_ += waiter->own;
      waiter->changed.notify_one();
    }
    if (!given_up_)
      for (Task* dependent : task.dependents)
        if (--dependent->missing == 0 && !start(*dependent)) those.push_back(dependent);
    tasks_.erase(task.number);
  }
  pump(threads_);
  pump(pool_);
}

void Engine::returned(Task& task, uint32_t block, Status status, const Launch& launch) {
  const auto fault = [&](Status what, const char* text) {
    fail({task.number, block, launch.line, launch.column, what, {text, strnlen(text, sizeof launch.fault)}});
  };
  if (status != kOk) return fault(status, launch.fault);
  if (--task.left) return;
  task.arguments = nullptr;
  if (task.unmet == 0) return over(task);
  if (++deferred_[task.record.rank] > kMostDeferred)
    fault(kBadCall, "more than 64 tasks of this rank wait for deferred conditions");
}

// ---- threads ----

// Calls as many threads as are of use.
void Engine::pump(Lane& lane) {
  while (!given_up_ && lane.starting < lane.ready.size() && lane.starting + lane.running < lane.most) {
    ++lane.starting;
    const auto job = [self = shared_from_this(), &lane] { self->work(lane); };
    if (lane.pool) {
      Pool::instance().offer(job, 1);
      continue;
    }
    try {
      elastic().submit(job);
    } catch (const std::system_error&) {
      const auto [task, block] = lane.ready.front();
      fail({task->number, block, 0, 0, kBadCall, "the system has no more threads"});
    }
  }
}

void Engine::work(Lane& lane) {
  Lock lock(mutex_);
  for (;;) {
    --lane.starting;
    if (lane.ready.empty() || lane.running >= lane.most) return;
    const auto [task, index] = lane.ready.front();
    lane.ready.pop_front();
    ++lane.running;
    ++lane.started;
    const int32_t rank = task->record.rank;
    if (!task->record.begin) task->record.begin = now_ns();
    Block block(*this, *task, index);
    task->blocks[index] = &block;
    lock.unlock();
    Status status;
    {
      if (!lane.pool) begin_on_core(rank + int(index));  // the pool's are pinned
      const FloatMode mode(false);
      status = Status(task->kernel(block.slots.data()));
    }
    lock.lock();
    task->blocks[index] = nullptr;
    --lane.running;
    ++lane.starting;  // it looks for more itself
    returned(*task, index, status, block.launch);
    settle();
    if (given_up_) idle_.notify_all();
  }
}

void Engine::watch() {
  Lock lock(mutex_);
  const auto idle = [this] { return given_up_ || tasks_.empty(); };
  while (!ended_) {
    if (idle()) {
      tick_.wait(lock, [&] { return ended_ || !idle(); });
      continue;
    }
    tick_.wait_for(lock, kTick, [this] { return ended_; });
    if (ended_ || given_up_) continue;
    look(watches_.begin(), watches_.end());
    // those that run may wait, in a way that we do not know of, for those that do not yet
    if (!threads_.ready.empty() && threads_.started == threads_.started_before)
      threads_.most = std::min(threads_.most + kGrowth, kMostThreads);
    threads_.started_before = threads_.started;
    pump(threads_);
    if (moved_.exchange(false)) clock_ = Clock::now();
    if (!tasks_.empty() && seconds_since(clock_) > limit_s_) give_up(Ending::kLimit);
  }
}

// ---- waiting, from outside ----

Engine::Waited Engine::wait(const std::vector<uint64_t>& tasks, const std::vector<uint64_t>& own, double seconds) {
  Lock lock(mutex_);
  Waiter waiter{{}, uint32_t(own.size())};
  for (const uint64_t number : tasks)
    if (number >= records_.size()) return Waited::kNoTask;
  for (const uint64_t number : tasks) {
    const auto task = tasks_.find(number);
    if (task == tasks_.end()) continue;
    ++waiter.missing;
    task->second.waiters.push_back(&waiter);
  }
  if (waiter.missing && !given_up_) {
    for (const uint64_t number : own) tasks_.at(number).needs = tasks;
    orchestrating_ -= waiter.own;
    settle();
    waiter.changed.wait_for(lock, std::chrono::duration<double>(seconds),
                            [&] { return !waiter.missing || given_up_; });
    // whose time is over comes back at once, and counts as at work, but is not said to be
    if (waiter.missing)
      orchestrating_ += waiter.own;
    else
      for (const uint64_t number : own) tasks_.at(number).needs = {};
  }
  if (waiter.missing)
    for (const uint64_t number : tasks) {
      const auto task = tasks_.find(number);
      if (task == tasks_.end()) continue;
      auto& waiters = task->second.waiters;
      waiters.erase(std::remove(waiters.begin(), waiters.end(), &waiter), waiters.end());
    }
  if (given_up_) {
    linger(lock);
    return Waited::kGivenUp;
  }
  return waiter.missing ? Waited::kNotYet : Waited::kOver;
}

Engine::Waited Engine::finish(const std::vector<uint64_t>& own, double seconds) {
  std::vector<uint64_t> others;
  {
    const Lock lock(mutex_);
    for (const auto& [number, task] : tasks_)
      if (std::find(own.begin(), own.end(), number) == own.end()) others.push_back(number);
  }
  const Waited waited = wait(others, own, seconds);
  // those may have submitted more
  return waited == Waited::kOver && !others.empty() ? Waited::kNotYet : waited;
}

// ---- the end ----

bool Engine::nothing_moves() const {
  return threads_.running + pool_.running + orchestrating_ == 0 && threads_.ready.empty() && pool_.ready.empty();
}

// Called wherever something ceased to move.
void Engine::settle() {
  if (given_up_ || tasks_.empty() || !nothing_moves()) return;
  look(watches_.begin(), watches_.end());
  if (!tasks_.empty() && nothing_moves()) give_up(Ending::kHang);
}

// A rank that failed for another's sake tells less than the other, who has as much time as it takes to say so.
void Engine::fail(TaskFault fault) {
  const bool first = fault_.status == kOk, for_another = fault.status == kPeerFailed;
  if (given_up_ || (for_another && !first)) return;
  fault_ = std::move(fault);
  if (!for_another) give_up(Ending::kFault);
}

void Engine::give_up(Ending ending) {
  if (given_up_) return;
  ending_ = fault_.status == kOk ? ending : Ending::kFault;
  record_stuck();
  given_up_ = true;
  given_up_at_ = Clock::now();
  for (const auto& [cell, watch] : watches_)
    if (watch.block) wake(*watch.block, kGivenUp);
  watches_.clear();
  watched_ = 0;
  for (auto& [key, barrier] : barriers_) {
    for (const Barrier::Guest& guest : barrier.guests) wake(*guest.block, kGivenUp);
    barrier.guests.clear();
  }
  threads_.ready.clear();
  pool_.ready.clear();
  for (const auto& [number, task] : tasks_)
    for (Waiter* waiter : task.waiters) waiter->changed.notify_one();
}

void Engine::give_up() {
  const Lock lock(mutex_);
  give_up(Ending::kAsked);
}

void Engine::restart_clock() {
  const Lock lock(mutex_);
  clock_ = Clock::now();
}

void Engine::linger(Lock& lock) {
  idle_.wait_until(lock, given_up_at_ + kGrace, [this] { return threads_.running + pool_.running == 0; });
}

bool Engine::end() {
  Lock lock(mutex_);
  give_up(Ending::kAsked);
  ended_ = true;
  tick_.notify_all();
  linger(lock);
  return threads_.running + pool_.running == 0;
}

Ending Engine::ending() {
  const Lock lock(mutex_);
  return ending_;
}

const char* Engine::name(uint32_t number) {
  const Lock lock(mutex_);
  return number < names_.size() ? names_[number] : nullptr;
}

uint64_t Engine::records(uint64_t first, TaskRecord* into, uint64_t most) {
  const Lock lock(mutex_);
  for (uint64_t n = first; n < records_.size() && n - first < most; ++n) into[n - first] = records_[n];
  return records_.size();
}

uint64_t Engine::unfinished(uint64_t* tasks, uint64_t count) {
  const Lock lock(mutex_);
  const auto is_over = [this](uint64_t number) { return records_[number].end != 0; };
  return uint64_t(std::remove_if(tasks, tasks + count, is_over) - tasks);
}

}  // namespace crossrank
