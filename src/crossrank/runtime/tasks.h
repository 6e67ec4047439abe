// Tasks of many ranks in one process: launches of compiled kernels, what they wait for, and when nobody can go on.
//
// A task is one launch on one rank, in blocks. It starts when the tasks that it depends on are over, and is over when
// all its blocks have returned kOk and all its deferred conditions hold. An orchestrator, which submits tasks from
// Python, is a task too: one that is done elsewhere.
//
// Whatever can change a cell is a block on a thread or an orchestrator at work, and both are counted. When none is
// left, and no cell that somebody waits for has come to its value, nothing can ever change: that, and no clock, tells a
// hang.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "crossrank/abi.h"
#include "waiting.h"

namespace crossrank {

using Kernel = int32_t (*)(const Slot*);

// One communication context of a launch. A row of `peers` is null where the slot is no window of this domain.
struct TaskContext {
  uint64_t domain;
  void* const* peers;  // [slots][size]
  uint32_t rank, size, slots;
};

// What a launch is given: all of it is copied but the data of tensors and windows.
struct TaskArguments {
  const Tensor* tensors;
  const TaskContext* contexts;
  const uint64_t* scalars;  // the bits of an int64_t or a double
  uint32_t tensor_count, context_count, scalar_count;
};

// What became of a task, and all that stays of one that is over. Times are the monotonic clock's, in ns; 0 where not
// yet. `name` is a number of the name's own; `blocks` are none where there is no kernel.
struct TaskRecord {
  int32_t rank, orchestrator;
  uint32_t name, blocks;
  int64_t begin, end;
};

// Why all was given up, the first reason. Numbers of these three are known to tasks.py.
enum class Ending : int32_t { kNone = 0, kHang = 1, kLimit = 2, kFault = 3, kAsked = 4 };
enum class TaskState : int32_t { kPending = 0, kReady = 1, kRunning = 2, kWaiting = 3, kDeferred = 4 };
enum class WaitKind : int32_t { kRunning = 0, kCell = 1, kBarrier = 2, kDeferred = 3 };

struct TaskFault {
  uint64_t task;
  uint32_t block, line, column;
  int32_t status;
  std::string text;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  enum class Waited : int32_t { kOver = 0, kNotYet = 1, kGivenUp = 2, kNoTask = 3 };

  // Gives up once for so long nothing was done: no task was over, no orchestrator began, no cell was changed by a
  // notify, nobody came to a barrier.
  explicit Engine(double limit_s);
  void start();  // its watch, before anything else; std::system_error where there is no thread for it

  // The new task's number; -1 where all was given up, -2 where it would depend on a task that is not there. A task
  // without a kernel does nothing. One that never waits runs on the pool.
  int64_t submit(Kernel kernel, const char* name, int32_t rank, const TaskArguments& arguments,
                 const std::vector<uint64_t>& needs, uint32_t blocks, bool never_waits);
  // An orchestrator's task. It counts as at work until it is closed, but while it waits in here.
  int64_t open(const char* name, int32_t rank);
  void close(uint64_t task);

  // Waits until these tasks are over. `own`: the orchestrators that the caller is.
  Waited wait(const std::vector<uint64_t>& tasks, const std::vector<uint64_t>& own, double seconds);
  // Waits until all tasks are over but the caller's own.
  Waited finish(const std::vector<uint64_t>& own, double seconds);
  void restart_clock();  // the limit counts from now
  void give_up();
  // Gives up and waits for the threads, a second at most. Whether all have come back.
  bool end();

  // Settled once all was given up.
  Ending ending();
  const TaskFault& fault() const { return fault_; }
  // Each task that was not over when all was given up: number, state, n, the n tasks that it still needs, m, m waits.
  // A wait: kind, block, line, context, slot, cell, how to compare, value expected, value present, n, n ranks of the
  // domain. At a barrier the values are how many ranks it needs and has, and the ranks those that have not come.
  const std::vector<int64_t>& stuck() const { return stuck_; }

  const char* name(uint32_t number);  // of a record; null beyond the last
  // Copies those from `first` on; how many tasks there are.
  uint64_t records(uint64_t first, TaskRecord* into, uint64_t most);
  // Leaves of these tasks the ones that are not over; how many.
  uint64_t unfinished(uint64_t* tasks, uint64_t count);

  static const Fabric kFabric;

 private:
  using Cell = std::atomic<int32_t>;
  using Lock = std::unique_lock<std::mutex>;

  struct Task;

  // A thread that waits for tasks from outside.
  struct Waiter {
    std::condition_variable changed;
    uint32_t own;  // orchestrators that are not at work meanwhile
    uint64_t missing = 0;
  };

  // Blocks that may start, for one kind of thread.
  struct Lane {
    bool pool;
    uint32_t most;          // at a time; beyond it only those that waited meanwhile
    uint32_t starting = 0;  // threads that were called, or look for more
    uint32_t running = 0;   // blocks on threads, but for those that wait
    uint64_t started = 0, started_before = 0;
    std::deque<std::pair<Task*, uint32_t>> ready;
  };

  struct Arguments {
    explicit Arguments(const TaskArguments& given);
    std::vector<Tensor> tensors;
    std::vector<int64_t> extents;
    std::vector<void*> peers;
    std::vector<CommContext> contexts;
    std::vector<uint64_t> domains, scalars;
  };

  struct Block;
  struct Task {
    uint64_t number;
    TaskRecord& record;
    Kernel kernel;
    Lane* lane;
    std::unique_ptr<Arguments> arguments;  // until its blocks are over
    std::vector<uint64_t> needs;           // until it starts; what an orchestrator waits for
    std::vector<Task*> dependents;
    std::vector<Waiter*> waiters;
    std::vector<Block*> blocks;  // null where not on a thread
    uint64_t missing;            // of what it needs
    uint32_t left;               // blocks that have not returned
    uint32_t conditions = 0, unmet = 0;
  };

  // A block that runs; it lies on its thread's stack.
  struct Block {
    Block(Engine& engine, Task& task, uint32_t index);
    Engine& engine;
    Task& task;
    Launch launch;
    std::vector<CommContext> contexts;
    std::vector<Slot> slots;
    std::atomic<uint32_t> asleep{0};  // the word that it sleeps on: who is woken need not queue for the lock
    Status status = kOk;
  };

  // A cell that somebody waits for: a block, or, where that is null, the task alone. Of a meeting it is the first cell
  // that has not come to its value, and the later ones lie `stride` apart.
  struct Watch {
    Task* task;
    Block* block;
    uint32_t index, line, context, slot;
    uint64_t cell;
    int32_t value;
    Compare how;
    uint64_t stride = 0;
  };

  // Of one domain and block number. Each rank may come any number of times; the k-th meeting is over when every rank
  // has come k times.
  struct Barrier {
    struct Guest {
      Block* block;
      uint64_t meeting;
      uint32_t context;
    };
    std::vector<uint64_t> came;
    std::atomic<uint64_t> over{0};
    std::vector<Guest> guests;
  };

  static Block& block_of(const CommContext* ctx);
  static uint32_t context_index(const CommContext* ctx);
  static char* window(const CommContext* ctx, uint32_t slot, uint32_t rank);
  static Cell* cell_at(const CommContext* ctx, uint32_t slot, uint32_t rank, uint64_t index);
  static bool holds(const Cell* cell, int32_t value, Compare how);
  static const Cell* later(const Cell* cell, Watch& watch);
  static Status read(CommContext*, uint32_t slot, uint32_t rank, Range, void* into);
  static Status write(CommContext*, uint32_t slot, uint32_t rank, Range, const void* from);
  static Status notify(CommContext*, uint32_t slot, uint32_t rank, uint64_t cell, int32_t value, Notify);
  static Status wait(CommContext*, uint32_t slot, uint64_t cell, int32_t value, Compare);
  static Status defer(CommContext*, uint32_t slot, uint64_t cell, int32_t value);
  static Status fence(CommContext*);
  static Status barrier(CommContext*);
  static Status meet(CommContext*, uint32_t slot, uint64_t column, uint64_t stride, int32_t count);

  // What a call that need not wait returns: whoever goes on calling is to come to an end.
  Status status() const { return given_up_ ? kGivenUp : kOk; }

  // Something was done: the watch restarts the clock. Without the lock, and mostly a read.
  void moved() {
    if (!moved_.load(std::memory_order_relaxed)) moved_.store(true, std::memory_order_relaxed);
  }

  // All below are called under the lock.
  Task& add(const char* name, TaskRecord record, Kernel kernel, Lane* lane);
  bool start(Task& task);
  void over(Task& task);
  void returned(Task& task, uint32_t block, Status status, const Launch& launch);
  void pump(Lane& lane);
  Status sleep(Lock& lock, Block& block);
  void wake(Block& block, Status status);
  using Watches = std::unordered_multimap<const Cell*, Watch>;
  void look(Watches::iterator first, Watches::iterator last);
  bool nothing_moves() const;
  void settle();
  void fail(TaskFault fault);
  void give_up(Ending ending);
  void record_stuck();
  void linger(Lock& lock);

  // Bodies of threads.
  void work(Lane& lane);
  void watch();

  const double limit_s_;
  std::mutex mutex_;
  std::deque<TaskRecord> records_;
  std::map<uint64_t, Task> tasks_;  // those that are not over
  std::unordered_map<std::string, uint32_t> name_numbers_;
  std::vector<const char*> names_;
  uint32_t orchestrating_ = 0;  // orchestrators at work
  Lane threads_, pool_;
  std::atomic<uint32_t> watched_{0};  // how many watches there are, so that a notify need not take the lock
  Watches watches_;
  std::map<std::pair<uint64_t, uint32_t>, Barrier> barriers_;
  std::map<int32_t, uint32_t> deferred_;  // tasks of a rank that have nothing left but conditions
  Clock::time_point clock_ = Clock::now();
  std::atomic<bool> moved_{false};
  std::condition_variable tick_, idle_;
  bool ended_ = false;
  std::atomic<bool> given_up_{false};
  Clock::time_point given_up_at_;
  Ending ending_ = Ending::kNone;
  TaskFault fault_{};
  std::vector<int64_t> stuck_;
};

}  // namespace crossrank
