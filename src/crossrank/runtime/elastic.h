// Threads for what can wait: as many as are blocked, and one more.
//
// A promise's continuation may block in the framework that we serve, and a call into Python waits for its lock. Neither
// may hold up a core's pool thread, an arriving rank, or one another.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace crossrank {

class Elastic {
 public:
  using Task = std::function<void()>;

  // A thread that is idle takes the task at once; else a new one does.
  void submit(Task task);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Task> tasks_;
  size_t idle_ = 0;
};

}  // namespace crossrank
