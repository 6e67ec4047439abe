// Runs that failed. A run of N ranks fails as a whole: who waits in any of its meetings is told, and who comes later
// too.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace crossrank {

class Failures {
 public:
  static Failures& instance();

  // Fails every meeting of `run` that is open, with `why`.
  void fail(int64_t run, const std::string& why);

  // Why `run` failed, if it did.
  std::optional<std::string> of(int64_t run);

  // The first failure since the last reset; empty where there was none.
  std::string first();
  void reset();

 private:
  static constexpr size_t kRemembered = 256;

  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::deque<std::pair<int64_t, std::string>> runs_;
  std::string first_;
};

// Starts the thread that looks for meetings that have been open for longer than the limit, unless it runs.
void start_watchdog();

}  // namespace crossrank
