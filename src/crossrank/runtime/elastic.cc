#include "elastic.h"

#include <thread>

#include "machine.h"

namespace crossrank {

void Elastic::submit(Task task) {
  std::unique_lock<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  const bool enough = idle_ >= tasks_.size();
  lock.unlock();
  if (enough)
    work_.notify_one();
  else
    std::thread([this] { loop(); }).detach();
}

void Elastic::loop() {
  unpin();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    ++idle_;
    work_.wait(lock, [this] { return !tasks_.empty(); });
    --idle_;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace crossrank
