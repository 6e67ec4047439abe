// Waiting for another thread: spin a little, give way a little, sleep.
//
// With more ranks than cores pure spinning costs a hundred times as much as this, and sleeping at once costs two
// switches where the other is just about to come.
#pragma once
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <thread>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace crossrank {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline void relax() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sleep while `word` holds `value`, until woken; where `naps`, no longer than a few milliseconds: whoever sleeps looks up
// now and then, so that a deadline is seen.
inline void sleep_on(const void* word, uint32_t value, bool naps = true) {
#if defined(__linux__)
  const timespec nap{0, 20'000'000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, naps ? &nap : nullptr, nullptr, 0);
#else
  (void)word, (void)value, (void)naps;
  std::this_thread::sleep_for(std::chrono::microseconds(50));
#endif
}

inline void wake_all(const void* word) {
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#else
  (void)word;
#endif
}

// Looks for `ready()` as long as it is cheaper than to sleep; whether it came.
template <class Ready>
bool spin_until(Ready&& ready) {
  constexpr int kSpins = 100, kYields = 8;
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    std::this_thread::yield();
    if (ready()) return true;
  }
  return false;
}

// Waits until `ready()`, sleeping on `word` (a 32-bit word that changes before ready() becomes true). `sleepers` counts
// who may be asleep, so that the waker can save its call. `give_up()` is asked now and then; false when it said so.
template <class Ready, class GiveUp>
bool wait_until(const std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, Ready&& ready, GiveUp&& give_up) {
  if (spin_until(ready)) return true;
  sleepers.fetch_add(1);
  for (;;) {
    const uint32_t seen = word.load();
    if (ready()) break;
    if (give_up()) {
      sleepers.fetch_sub(1);
      return ready();
    }
    sleep_on(&word, seen);
  }
  sleepers.fetch_sub(1);
  return true;
}

}  // namespace crossrank
