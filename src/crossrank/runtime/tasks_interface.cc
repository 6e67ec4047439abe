// The engine of tasks as Python sees it.
#include <cstring>
#include <system_error>

#include "tasks.h"

using crossrank::Engine;
using Handle = std::shared_ptr<Engine>;

namespace {

std::vector<uint64_t> listed(const uint64_t* numbers, uint32_t count) { return {numbers, numbers + count}; }

}  // namespace

extern "C" {

// Null where the system has no thread for it.
Handle* crossrank_tasks_new(double limit_s) {
  const auto engine = std::make_shared<Engine>(limit_s);
  try {
    engine->start();
  } catch (const std::system_error&) {
    return nullptr;
  }
  return new Handle(engine);
}

// Whether all its threads have come back; only then may what its tasks were given be freed.
int32_t crossrank_tasks_end(Handle* engine) { return (*engine)->end(); }

// Forgets it, ended.
void crossrank_tasks_delete(Handle* engine) { delete engine; }

int64_t crossrank_tasks_submit(Handle* engine, crossrank::Kernel kernel, const char* name, int32_t rank,
                               const crossrank::Tensor* tensors, uint32_t tensor_count,
                               const crossrank::TaskContext* contexts, uint32_t context_count, const uint64_t* scalars,
                               uint32_t scalar_count, const uint64_t* needs, uint32_t need_count, uint32_t blocks,
                               int32_t never_waits) {
  return (*engine)->submit(kernel, name, rank,
                           {tensors, contexts, scalars, tensor_count, context_count, scalar_count},
                           listed(needs, need_count), blocks, never_waits != 0);
}

int64_t crossrank_tasks_open(Handle* engine, const char* name, int32_t rank) { return (*engine)->open(name, rank); }

void crossrank_tasks_close(Handle* engine, uint64_t task) { (*engine)->close(task); }

Engine::Waited crossrank_tasks_wait(Handle* engine, const uint64_t* tasks, uint32_t count, const uint64_t* own,
                                    uint32_t own_count, double seconds) {
  return (*engine)->wait(listed(tasks, count), listed(own, own_count), seconds);
}

Engine::Waited crossrank_tasks_finish(Handle* engine, const uint64_t* own, uint32_t own_count, double seconds) {
  return (*engine)->finish(listed(own, own_count), seconds);
}

void crossrank_tasks_restart_clock(Handle* engine) { (*engine)->restart_clock(); }

void crossrank_tasks_give_up(Handle* engine) { (*engine)->give_up(); }

crossrank::Ending crossrank_tasks_ending(Handle* engine) { return (*engine)->ending(); }

// Into `numbers`: task, block, line, column, status. The text lives as long as the engine.
const char* crossrank_tasks_fault(Handle* engine, int64_t* numbers) {
  const crossrank::TaskFault& fault = (*engine)->fault();
  const int64_t all[] = {int64_t(fault.task), fault.block, fault.line, fault.column, fault.status};
  std::memcpy(numbers, all, sizeof all);
  return fault.text.c_str();
}

// As Engine::stuck has them.
const int64_t* crossrank_tasks_stuck(Handle* engine, uint64_t* count) {
  *count = (*engine)->stuck().size();
  return (*engine)->stuck().data();
}

const char* crossrank_tasks_name(Handle* engine, uint32_t number) { return (*engine)->name(number); }

uint64_t crossrank_tasks_records(Handle* engine, uint64_t first, crossrank::TaskRecord* into, uint64_t most) {
  return (*engine)->records(first, into, most);
}

uint64_t crossrank_tasks_unfinished(Handle* engine, uint64_t* tasks, uint64_t count) {
  return (*engine)->unfinished(tasks, count);
}

}  // extern "C"
