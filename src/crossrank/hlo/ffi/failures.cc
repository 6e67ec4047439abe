#include "failures.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "call.h"
#include "meeting.h"
#include "options.h"

namespace crossrank {

Failures& Failures::instance() {
  static Failures* failures = new Failures;
  return *failures;
}

void Failures::fail(int64_t run, const std::string& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (first_.empty()) first_ = why;
    runs_.emplace_back(run, why);
    if (runs_.size() > kRemembered) runs_.pop_front();
    any_ = true;
  }
  std::vector<std::shared_ptr<Meeting>> lost;
  Calls::instance().each([&](Call& call) {
    std::lock_guard<std::mutex> lock(call.mutex);
    const auto of_run = [&](const std::shared_ptr<Meeting>& m) { return m->run() == run; };
    std::copy_if(call.open.begin(), call.open.end(), std::back_inserter(lost), of_run);
    call.open.erase(std::remove_if(call.open.begin(), call.open.end(), of_run), call.open.end());
  });
  for (const auto& meeting : lost) meeting->fail(why);
}

std::optional<std::string> Failures::of(int64_t run) {
  if (!any_) return std::nullopt;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [failed, why] : runs_)
    if (failed == run) return why;
  return std::nullopt;
}

std::string Failures::first() {
  std::lock_guard<std::mutex> lock(mutex_);
  return first_;
}

void Failures::reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  first_.clear();
}

namespace {

struct Late {
  int64_t run;
  std::string why;
  std::vector<int32_t> missing;
};

// What the ranks that did not come are waiting for instead; a wait in a circle shows itself so.
std::string elsewhere(const Late& late) {
  constexpr int kShown = 4;
  int shown = 0;
  std::string text;
  Calls::instance().each([&](Call& call) {
    std::lock_guard<std::mutex> lock(call.mutex);
    for (const auto& meeting : call.open)
      for (const int32_t rank : late.missing)
        if (meeting->run() == late.run && meeting->has(rank) && shown++ < kShown)
          text += "; " + meeting->waiting_message(rank);
  });
  return text;
}

void watch() {
  using namespace std::chrono;
  for (;;) {
    const microseconds limit(Options::instance().limit_us.load());
    std::this_thread::sleep_for(std::clamp<microseconds>(limit / 20, milliseconds(5), milliseconds(250)));
    std::vector<Late> late;
    Calls::instance().each([&](Call& call) {
      std::lock_guard<std::mutex> lock(call.mutex);
      for (const auto& meeting : call.open)
        if (Clock::now() - meeting->first_arrival() > limit)
          late.push_back({meeting->run(), meeting->late_message(duration<double>(limit).count()), meeting->missing()});
    });
    for (const Late& one : late)
      if (!Failures::instance().of(one.run)) Failures::instance().fail(one.run, one.why + elsewhere(one));
  }
}

}  // namespace

void start_watchdog() {
  static std::once_flag once;
  std::call_once(once, [] { std::thread(watch).detach(); });
}

}  // namespace crossrank
