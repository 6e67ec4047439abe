// The process's threads for bodies: one a core, kept on it. What runs here never waits for anybody.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace crossrank {

class Pool {
 public:
  using Task = std::function<void()>;

  static Pool& instance();

  // Gives `task` to `copies` of the threads, to do together what each of them finds left of it.
  void offer(const Task& task, int copies);

 private:
  Pool();
  void loop(int core);

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Task> tasks_;
};

}  // namespace crossrank
