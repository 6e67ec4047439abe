// The same arithmetic on every thread: rounding to nearest, and subnormals kept (or flushed) whatever the thread's
// own mode.
//
// XLA lets its threads flush subnormals; a block must give the same bits whether such a thread computes it, lingering
// in a handler, or one of ours.
#pragma once
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace crossrank {

class FloatMode {
 public:
  explicit FloatMode(bool flush) : saved_(get()) { set(flush ? kFlush : kKeep); }
  ~FloatMode() { set(saved_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__SSE2__)
  using Mode = unsigned;
  static constexpr Mode kKeep = 0x1f80, kFlush = 0x9fc0;  // no traps; flush results and operands to zero
  static Mode get() { return _mm_getcsr(); }
  static void set(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kKeep = 0, kFlush = 1 << 24;
  static Mode get() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(Mode mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
  using Mode = int;
  static constexpr Mode kKeep = 0, kFlush = 0;
  static Mode get() { return 0; }
  static void set(Mode) {}
#endif
  Mode saved_;
};

}  // namespace crossrank
