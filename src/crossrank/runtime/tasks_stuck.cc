// What was not over when the engine of tasks gave up: numbers, in which tasks.py reads.
#include <algorithm>
#include <tuple>

#include "tasks.h"

namespace crossrank {

void Engine::record_stuck() {
  struct Row {
    WaitKind kind;
    uint32_t block, line;
    int64_t context, slot, cell, compare, expected, present;
    std::vector<int64_t> missing;
  };
  std::map<const Task*, std::vector<Row>> rows;
  for (const auto& [first, first_watch] : watches_) {
    Watch watch = first_watch;
    for (const Cell* cell = first; cell; cell = later(cell, watch))
      rows[watch.task].push_back({watch.block ? WaitKind::kCell : WaitKind::kDeferred, watch.index, watch.line,
                                  watch.context, watch.slot, int64_t(watch.cell), int64_t(watch.how), watch.value,
                                  cell->load(), {}});
  }
  for (const auto& [key, barrier] : barriers_)
    for (const Barrier::Guest& guest : barrier.guests) {
      Row row{WaitKind::kBarrier, key.second, guest.block->launch.line, guest.context, 0, 0, 0, 0, 0, {}};
      row.expected = int64_t(barrier.came.size());
      for (uint32_t rank = 0; rank < barrier.came.size(); ++rank)
        if (barrier.came[rank] < guest.meeting) row.missing.push_back(rank);
      row.present = row.expected - int64_t(row.missing.size());
      rows[&guest.block->task].push_back(std::move(row));
    }
  for (const auto& [number, task] : tasks_) {
    std::vector<Row>& mine = rows[&task];
    std::vector<int64_t> needs;
    for (const uint64_t need : task.needs)
      if (!records_[need].end) needs.push_back(int64_t(need));
    bool runs = task.record.orchestrator && needs.empty();
    for (const Block* block : task.blocks)
      if (block && !block->asleep) {
        runs = true;
        // the kernel may write it just now
        const uint32_t line = __atomic_load_n(&block->launch.line, __ATOMIC_RELAXED);
        mine.push_back({WaitKind::kRunning, block->launch.block, line, 0, 0, 0, 0, 0, 0, {}});
      }
    std::sort(mine.begin(), mine.end(), [](const Row& a, const Row& b) {
      return std::tie(a.block, a.context, a.slot, a.cell) < std::tie(b.block, b.context, b.slot, b.cell);
    });
    const TaskState state = runs             ? TaskState::kRunning
                            : !needs.empty() ? TaskState::kPending
                            : task.left == 0 ? TaskState::kDeferred
                            : mine.empty()   ? TaskState::kReady
                                             : TaskState::kWaiting;
    stuck_.insert(stuck_.end(), {int64_t(number), int64_t(state), int64_t(needs.size())});
    stuck_.insert(stuck_.end(), needs.begin(), needs.end());
    stuck_.push_back(int64_t(mine.size()));
    for (const Row& row : mine) {
      stuck_.insert(stuck_.end(), {int64_t(row.kind), row.block, row.line, row.context, row.slot, row.cell, row.compare,
                                   row.expected, row.present, int64_t(row.missing.size())});
      stuck_.insert(stuck_.end(), row.missing.begin(), row.missing.end());
    }
  }
}

}  // namespace crossrank
