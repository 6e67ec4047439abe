// Element types, and what is done to one element. A float of 16 bits is computed in its `Wide` type, and what comes out
// is rounded once.
//
// Integers wrap; they are divided toward zero. Maximum and minimum give NaN where either is, and of equal zeros the
// first. Of pred, sum and maximum are or, product and minimum are and.
#pragma once
#include "crossrank/program/half.h"

namespace crossrank::program {

template <class T>
struct Element {
  using Wide = T;
  static constexpr bool kFloat = false;
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr T kLowest = kSigned ? T(uint64_t(1) << (sizeof(T) * 8 - 1)) : T(0);
  static constexpr T kHighest = T(~kLowest);
  static constexpr int kBits = sizeof(T) * 8;
};

template <>
struct Element<bool> {
  using Wide = bool;
  static constexpr bool kFloat = false, kSigned = false, kLowest = false, kHighest = true;
  static constexpr int kBits = 1;
};

template <class F>
struct FloatElement {
  using Wide = F;
  static constexpr bool kFloat = true, kSigned = true;
  static constexpr F kLowest = -F(__builtin_inf()), kHighest = F(__builtin_inf());
};

template <>
struct Element<float> : FloatElement<float> {};
template <>
struct Element<double> : FloatElement<double> {};
template <>
struct Element<Half> : FloatElement<float> {};
template <>
struct Element<Brain> : FloatElement<float> {};

template <class T>
using Wide = typename Element<T>::Wide;

// Whether it is computed in another type: a float of 16 bits.
template <class T>
constexpr bool is_narrow = sizeof(Wide<T>) != sizeof(T);

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

// The functions of one element.

#define CROSSRANK_MATH(name)                                    \
  inline float name(float x) { return __builtin_##name##f(x); } \
  inline double name(double x) { return __builtin_##name(x); }
namespace math {
CROSSRANK_MATH(ceil)
CROSSRANK_MATH(exp)
CROSSRANK_MATH(fabs)
CROSSRANK_MATH(floor)
CROSSRANK_MATH(log)
CROSSRANK_MATH(rint)
CROSSRANK_MATH(round)
CROSSRANK_MATH(sqrt)
CROSSRANK_MATH(trunc)
inline float fmod(float x, float y) { return __builtin_fmodf(x, y); }
inline double fmod(double x, double y) { return __builtin_fmod(x, y); }
}  // namespace math
#undef CROSSRANK_MATH

struct Abs {
  template <class W>
  static W of(W x) {
    if constexpr (Element<W>::kFloat)
      return math::fabs(x);
    else
      return x < 0 ? W(-x) : x;
  }
};
struct Exp {
  template <class W>
  static W of(W x) { return math::exp(x); }
};
struct Log {
  template <class W>
  static W of(W x) { return math::log(x); }
};
struct Negate {
  template <class W>
  static W of(W x) { return -x; }
};
struct Not {
  template <class W>
  static W of(W x) {
    if constexpr (is_same<W, bool>)
      return !x;
    else
      return ~x;
  }
};
struct Reciprocal {
  template <class W>
  static W of(W x) { return 1 / x; }
};
struct Relu {
  template <class W>
  static W of(W x) { return x < 0 ? W(0) : x; }
};
struct ReciprocalRoot {
  template <class W>
  static W of(W x) { return 1 / math::sqrt(x); }
};
struct Root {
  template <class W>
  static W of(W x) { return math::sqrt(x); }
};

// The functions of two, which reductions use too; those have a value to start from.

struct Add {
  template <class W>
  static constexpr W kFirst = W(0);
  template <class W>
  static W of(W a, W b) { return a + b; }
};
struct Subtract {
  template <class W>
  static W of(W a, W b) { return a - b; }
};
struct Multiply {
  template <class W>
  static W of(W a, W b) { return a * b; }
};
struct Maximum {
  template <class W>
  static constexpr W kFirst = Element<W>::kLowest;
  template <class W>
  static W of(W a, W b) { return (a >= b) | (a != a) ? a : b; }
};
struct Minimum {
  template <class W>
  static constexpr W kFirst = Element<W>::kHighest;
  template <class W>
  static W of(W a, W b) { return (a <= b) | (a != a) ? a : b; }
};
// Of integers by no zero. The lowest by -1 is itself.
struct Divide {
  template <class W>
  static W of(W a, W b) {
    if constexpr (!Element<W>::kFloat && Element<W>::kSigned) return b == W(-1) ? W(-a) : W(a / b);
    return a / b;
  }
};
struct Remainder {  // has the sign of the dividend
  template <class W>
  static W of(W a, W b) {
    if constexpr (Element<W>::kFloat)
      return math::fmod(a, b);
    else if constexpr (Element<W>::kSigned)
      return b == W(-1) ? W(0) : W(a % b);
    else
      return a % b;
  }
};
struct And {
  template <class W>
  static W of(W a, W b) { return a & b; }
};
struct Or {
  template <class W>
  static W of(W a, W b) { return a | b; }
};
struct Xor {
  template <class W>
  static W of(W a, W b) { return a ^ b; }
};
// By so many bits; by more than there are, all are gone.
struct ShiftLeft {
  template <class W>
  static W of(W a, W b) { return uint64_t(b) < uint64_t(Element<W>::kBits) ? W(uint64_t(a) << b) : W(0); }
};
struct ShiftRight {
  template <class W>
  static W of(W a, W b) {
    constexpr int kMost = Element<W>::kBits - 1;
    return uint64_t(b) <= uint64_t(kMost) ? W(a >> b) : Element<W>::kSigned ? W(a >> kMost) : W(0);
  }
};

struct Less {
  template <class W>
  static bool of(W a, W b) { return a < b; }
};
struct LessEqual {
  template <class W>
  static bool of(W a, W b) { return a <= b; }
};
struct Greater {
  template <class W>
  static bool of(W a, W b) { return a > b; }
};
struct GreaterEqual {
  template <class W>
  static bool of(W a, W b) { return a >= b; }
};
struct Equal {
  template <class W>
  static bool of(W a, W b) { return a == b; }
};
struct NotEqual {
  template <class W>
  static bool of(W a, W b) { return a != b; }
};

// Roundings of a float to a whole number.
struct Rint {  // to nearest, ties to even
  template <class W>
  static W of(W x) { return math::rint(x); }
};
struct Round {  // to nearest, ties away from zero
  template <class W>
  static W of(W x) { return math::round(x); }
};
struct Floor {
  template <class W>
  static W of(W x) { return math::floor(x); }
};
struct Ceil {
  template <class W>
  static W of(W x) { return math::ceil(x); }
};
struct Trunc {
  template <class W>
  static W of(W x) { return math::trunc(x); }
};

// A value as one of type R. Floats become integers by a rounding, and those that are too large the nearest that there
// is; NaN becomes 0. To floats everything is rounded to nearest, ties to even; integers wrap; pred is what is not 0.
template <class R, class Rounding = Trunc, class T>
inline R convert(T value) {
  const Wide<T> x = value;
  if constexpr (is_same<R, bool>) {
    return x != 0;
  } else if constexpr (Element<T>::kFloat && !Element<R>::kFloat) {
    using W = Wide<T>;
    constexpr int kDigits = is_same<W, float> ? 24 : 53;
    constexpr int kBits = Element<R>::kBits - Element<R>::kSigned;
    constexpr R kBeyond = kBits > kDigits ? (R(1) << (kBits > kDigits ? kBits - kDigits : 0)) - 1 : 0;
    constexpr W kTop = W(Element<R>::kHighest - kBeyond);  // the highest that is one of both types
    constexpr W kBottom = W(Element<R>::kLowest);
    const W whole = Rounding::of(x);
    const W inside = whole < kBottom ? kBottom : whole > kTop ? kTop : whole == whole ? whole : W(0);
    return whole > kTop ? Element<R>::kHighest : R(inside);
  } else if constexpr (is_narrow<R> && !Element<T>::kFloat && sizeof(T) == 8) {
    constexpr T kExact = T(1) << 53;  // of what is greater the last bits become one: f64 has it, and 16 bits round it
    const bool exact = x <= kExact && (!Element<T>::kSigned || x >= T(-kExact));
    return R(double(exact ? x : T((x & ~T(0x7ff)) | ((x & 0x7ff) != 0 ? 0x800 : 0))));
  } else if constexpr (is_narrow<R> && (sizeof(T) > 2 && !is_same<T, float>)) {
    return R(double(x));
  } else if constexpr (is_narrow<R>) {
    return R(float(x));
  } else {
    return R(x);
  }
}

}  // namespace crossrank::program
