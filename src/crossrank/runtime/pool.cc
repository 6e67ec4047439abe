#include "pool.h"

#include <thread>

#include "machine.h"

namespace crossrank {

Pool& Pool::instance() {
  static Pool* pool = new Pool;  // never destroyed: its threads may outlive main()
  return *pool;
}

Pool::Pool() {
  for (int core = 0, n = cores(); core < n; ++core) std::thread([this, core] { loop(core); }).detach();
}

void Pool::offer(const Task& task, int copies) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.insert(tasks_.end(), size_t(copies), task);
  }
  if (copies == 1)
    work_.notify_one();
  else
    work_.notify_all();
}

void Pool::loop(int core) {
  pin_to_core(core);
  for (;;) {
    Task task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      work_.wait(lock, [this] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace crossrank
