// Scalars: where C++ leaves open what comes out, or has no word for it.
#pragma once
#include "crossrank/program/core.h"
#include "crossrank/program/element.h"

namespace crossrank::program {

template <class T>
inline void ask_divisor(Core& core, T b) {
  if (b == 0) core.fail("division by zero");
}

// Toward zero.
template <class T>
inline T divide(Core& core, T a, Scalar<T> b) {
  ask_divisor<T>(core, b);
  return Divide::of<T>(a, b);
}

template <class T>
inline T remainder(Core& core, T a, Scalar<T> b) {
  ask_divisor<T>(core, b);
  return Remainder::of<T>(a, b);
}

// Toward minus infinity.
template <class T>
inline T floor_divide(Core& core, T a, Scalar<T> b) {
  const T quotient = divide<T>(core, a, b), rest = Remainder::of<T>(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
}

template <class T>
inline T ceil_divide(Core& core, T a, Scalar<T> b) {
  const T quotient = divide<T>(core, a, b), rest = Remainder::of<T>(a, b);
  return rest != 0 && (rest < 0) == (b < 0) ? quotient + 1 : quotient;
}

// The step of a loop.
inline int64_t step(Core& core, int64_t by) {
  if (by <= 0) core.fail("the step of a loop must be positive, and is %lld", (long long)by);
  return by;
}

}  // namespace crossrank::program
