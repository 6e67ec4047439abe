// The fabric of tasks: what a kernel calls, and how blocks sleep and are woken.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "tasks.h"

namespace crossrank {

const Fabric Engine::kFabric = {read, write, notify, wait, defer, fence, barrier, nullptr, meet};

namespace {

constexpr uint32_t kMostConditions = 64;
constexpr char kNeverWaits[] = "a kernel that was said never to wait waits";

// Says what is wrong, unless the kernel itself has.
Status bad(const CommContext* ctx, const char* format, ...) {
  Launch& launch = *ctx->launch;
  if (launch.fault[0]) return kBadCall;
  va_list values;
  va_start(values, format);
  std::vsnprintf(launch.fault, sizeof launch.fault, format, values);
  va_end(values);
  return kBadCall;
}

}  // namespace

Engine::Block& Engine::block_of(const CommContext* ctx) { return *static_cast<Block*>(ctx->launch->state); }

uint32_t Engine::context_index(const CommContext* ctx) { return uint32_t(ctx - block_of(ctx).contexts.data()); }

// A rank's argument; null, and words, where there is no such rank or the argument is no window of this domain.
char* Engine::window(const CommContext* ctx, uint32_t slot, uint32_t rank) {
  if (rank >= ctx->size) return bad(ctx, "there is no rank %u among %u", rank, ctx->size), nullptr;
  void* const at = slot < ctx->slots ? ctx->peers[uint64_t(slot) * ctx->size + rank] : nullptr;
  if (!at) bad(ctx, "argument %u is no window of this domain", slot);
  return static_cast<char*>(at);
}

Engine::Cell* Engine::cell_at(const CommContext* ctx, uint32_t slot, uint32_t rank, uint64_t index) {
  static_assert(sizeof(Cell) == sizeof(int32_t));
  char* const at = window(ctx, slot, rank);
  return at ? reinterpret_cast<Cell*>(at) + index : nullptr;
}

bool Engine::holds(const Cell* cell, int32_t value, Compare how) {
  const int32_t present = cell->load();
  return how == Compare::kEqual ? present == value : present >= value;
}

// The next cell of a meeting that has not come to its value, on which the watch is then; null where there is none.
const Engine::Cell* Engine::later(const Cell* cell, Watch& watch) {
  if (!watch.stride) return nullptr;
  const CommContext& ctx = watch.block->contexts[watch.context];
  const Cell* const first = cell - watch.cell;
  while ((watch.cell += watch.stride) < ctx.size * watch.stride)
    if (watch.cell / watch.stride != ctx.rank && !holds(first + watch.cell, watch.value, watch.how))
      return first + watch.cell;
  return nullptr;
}

Status Engine::read(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, void* into) {
  const char* const from = window(ctx, slot, rank);
  if (!from) return kBadCall;
  std::memcpy(into, from + range.offset, range.bytes);
  return block_of(ctx).engine.status();
}

Status Engine::write(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, const void* from) {
  char* const to = window(ctx, slot, rank);
  if (!to) return kBadCall;
  std::memcpy(to + range.offset, from, range.bytes);
  return block_of(ctx).engine.status();
}

Status Engine::notify(CommContext* ctx, uint32_t slot, uint32_t rank, uint64_t index, int32_t value, Notify how) {
  Engine& engine = block_of(ctx).engine;
  Cell* const cell = cell_at(ctx, slot, rank, index);
  if (!cell) return kBadCall;
  if (how == Notify::kAdd ? cell->fetch_add(value), value != 0 : cell->exchange(value) != value) engine.moved();
  if (engine.watched_) {
    const Lock lock(engine.mutex_);
    const auto [first, last] = engine.watches_.equal_range(cell);
    engine.look(first, last);
  }
  return engine.status();
}

Status Engine::wait(CommContext* ctx, uint32_t slot, uint64_t index, int32_t value, Compare how) {
  Block& block = block_of(ctx);
  Engine& engine = block.engine;
  const Cell* const cell = cell_at(ctx, slot, ctx->rank, index);
  if (!cell) return kBadCall;
  if (block.task.lane->pool) return bad(ctx, kNeverWaits);
  bool came = false;
  spin_until([&] { return (came = holds(cell, value, how)) || engine.given_up_; });
  if (came) return kOk;
  Lock lock(engine.mutex_);
  if (engine.given_up_) return kGivenUp;
  ++engine.watched_;  // before the last look: who changes the cell after it sees that somebody waits
  if (holds(cell, value, how)) {
    --engine.watched_;
    return kOk;
  }
  engine.watches_.emplace(cell, Watch{&block.task, &block, block.launch.block, block.launch.line, context_index(ctx),
                                      slot, index, value, how});
  return engine.sleep(lock, block);
}

// One sleep, whoever is missing, and one turn of the lock to tell those that sleep already.
Status Engine::meet(CommContext* ctx, uint32_t slot, uint64_t column, uint64_t stride, int32_t count) {
  Block& block = block_of(ctx);
  Engine& engine = block.engine;
  const auto mine = [&](uint32_t rank) { return cell_at(ctx, slot, rank, ctx->rank * stride + column); };
  const auto from = [&](uint32_t peer) { return peer * stride + column; };
  const Cell* const own = cell_at(ctx, slot, ctx->rank, 0);
  if (!own) return kBadCall;
  if (block.task.lane->pool) return bad(ctx, kNeverWaits);
  for (uint32_t p = 0; p < ctx->size; ++p)
    if (p != ctx->rank) mine(p)->fetch_add(1);
  engine.moved();
  if (engine.watched_) {
    const Lock lock(engine.mutex_);
    for (uint32_t p = 0; p < ctx->size; ++p) {
      if (p == ctx->rank) continue;
      const auto [first, last] = engine.watches_.equal_range(mine(p));
      engine.look(first, last);
    }
  }
  const uint64_t first = (ctx->rank == 0) * stride + column;
  Watch watch{&block.task, &block, block.launch.block, block.launch.line, context_index(ctx),
              slot, first, count, Compare::kAtLeast, stride};
  const Cell* missing = ctx->size > 1 ? own + first : nullptr;
  const auto met = [&] {
    if (missing && holds(missing, count, watch.how)) missing = later(missing, watch);
    return !missing;
  };
  if (spin_until([&] { return met() || engine.given_up_; }) && met()) return kOk;
  Lock lock(engine.mutex_);
  if (engine.given_up_) return kGivenUp;
  ++engine.watched_;  // as in wait
  if (met()) {
    --engine.watched_;
    return kOk;
  }
  engine.watches_.emplace(missing, watch);
  return engine.sleep(lock, block);
}

Status Engine::defer(CommContext* ctx, uint32_t slot, uint64_t index, int32_t value) {
  Block& block = block_of(ctx);
  Engine& engine = block.engine;
  const Cell* const cell = cell_at(ctx, slot, ctx->rank, index);
  if (!cell) return kBadCall;
  const Lock lock(engine.mutex_);
  if (engine.given_up_) return kGivenUp;
  if (block.task.conditions == kMostConditions)
    return bad(ctx, "a task can have no more than %u deferred conditions", kMostConditions);
  ++block.task.conditions;
  ++engine.watched_;
  if (holds(cell, value, Compare::kAtLeast)) {
    --engine.watched_;
    return kOk;
  }
  ++block.task.unmet;
  engine.watches_.emplace(cell, Watch{&block.task, nullptr, block.launch.block, block.launch.line, context_index(ctx),
                                      slot, index, value, Compare::kAtLeast});
  return kOk;
}

Status Engine::fence(CommContext* ctx) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return block_of(ctx).engine.status();
}

Status Engine::barrier(CommContext* ctx) {
  Block& block = block_of(ctx);
  Engine& engine = block.engine;
  if (block.task.lane->pool) return bad(ctx, kNeverWaits);
  const uint32_t index = context_index(ctx);
  engine.moved();
  Lock lock(engine.mutex_);
  if (engine.given_up_) return kGivenUp;
  Barrier& barrier = engine.barriers_[{block.task.arguments->domains[index], block.launch.block}];
  barrier.came.resize(ctx->size);
  const uint64_t meeting = ++barrier.came[ctx->rank];
  const uint64_t over = *std::min_element(barrier.came.begin(), barrier.came.end());
  if (over > barrier.over) {
    barrier.over = over;
    std::vector<Barrier::Guest> stay;
    for (const Barrier::Guest& guest : barrier.guests) {
      if (guest.meeting > over)
        stay.push_back(guest);
      else
        engine.wake(*guest.block, kOk);
    }
    barrier.guests.swap(stay);
  }
  const auto met = [&] { return barrier.over >= meeting; };
  if (met()) return kOk;
  lock.unlock();
  if (spin_until(met)) return kOk;
  lock.lock();
  if (met()) return kOk;
  if (engine.given_up_) return kGivenUp;
  barrier.guests.push_back({&block, meeting, index});
  return engine.sleep(lock, block);
}

// Whoever wakes a block has counted it as running.
Status Engine::sleep(Lock& lock, Block& block) {
  Lane& lane = *block.task.lane;
  block.asleep = 1;
  --lane.running;
  pump(lane);
  settle();
  lock.unlock();
  while (block.asleep) sleep_on(&block.asleep, 1, false);  // whoever ends the wait wakes it
  return block.status;
}

void Engine::wake(Block& block, Status status) {
  block.status = status;
  ++block.task.lane->running;
  const void* const word = &block.asleep;
  block.asleep = 0;  // from here on the block may be gone; a wake-up for nobody does no harm
  wake_all(word);
}

// Ends the waits that some cells are now right for.
void Engine::look(Watches::iterator at, Watches::iterator last) {
  std::vector<Watch> right;
  std::vector<std::pair<const Cell*, Watch>> still;
  while (at != last) {
    const Cell* cell = at->first;
    Watch watch = at->second;
    if (!holds(cell, watch.value, watch.how)) {
      ++at;
      continue;
    }
    at = watches_.erase(at);
    if ((cell = later(cell, watch))) {
      still.emplace_back(cell, watch);
      continue;
    }
    right.push_back(watch);
    --watched_;
  }
  watches_.insert(still.begin(), still.end());
  for (const Watch& watch : right) {
    if (watch.block) {
      wake(*watch.block, kOk);
      continue;
    }
    Task& task = *watch.task;
    if (--task.unmet || task.left) continue;
    --deferred_[task.record.rank];
    over(task);
  }
}

}  // namespace crossrank
