// The loops over rows of elements, one function for each op and type: the compiler makes vectors of them where elements
// lie side by side or one meets all. Steps are in elements.
#pragma once
#include "crossrank/program/element.h"

// Compiled once, not at each call: kernels are compiled while somebody waits.
#define CROSSRANK_APART __attribute__((noinline))

namespace crossrank::program {

template <class F, class R, class T>
void map_row(R* __restrict to, const T* from, int64_t step, int64_t n) {
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = F::template of<R>(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i * step] = F::template of<R>(from[i * step]);
}

template <class Op>
struct Computed {
  template <class R>
  static R of(R x) { return Op::of(x); }
};
template <class Rounding>
struct Converted {
  template <class R, class T>
  static R of(T x) { return convert<R, Rounding>(x); }
};

#if defined(__F16C__) && !defined(__clang__)
// The machine's own conversions, which give the same bits.
template <>
inline void map_row<Converted<Trunc>>(float* __restrict to, const Half* from, int64_t step, int64_t n) {
  using Halves __attribute__((vector_size(16))) = short;
  int64_t i = 0;
  for (Halves some; step == 1 && i + 8 <= n; i += 8) {
    std::memcpy(&some, from + i, sizeof some);
    const auto made = __builtin_ia32_vcvtph2ps256(some);
    std::memcpy(to + i, &made, sizeof made);
  }
  for (; i < n; ++i) to[i * step] = from[i * step];
}

template <>
inline void map_row<Converted<Trunc>>(Half* __restrict to, const float* from, int64_t step, int64_t n) {
  using Floats __attribute__((vector_size(32))) = float;
  int64_t i = 0;
  for (Floats some; step == 1 && i + 8 <= n; i += 8) {
    std::memcpy(&some, from + i, sizeof some);
    const auto made = __builtin_ia32_vcvtps2ph256(some, 0);
    std::memcpy(to + i, &made, sizeof made);
  }
  for (; i < n; ++i) to[i * step] = from[i * step];
}
#endif

template <class Op, class T>
void zip_row(T* __restrict to, int64_t step, const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t n) {
  if (step == 1 && a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = Op::of(a[i], b[i]);
  } else if (step == 1 && a_step == 1 && b_step == 0) {
    const T all = *b;
    for (int64_t i = 0; i < n; ++i) to[i] = Op::of(a[i], all);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * step] = Op::of(a[i * a_step], b[i * b_step]);
  }
}

template <class Comparison, class T, class C>
void select_row(T* __restrict to, const T* yes, const T* no, const C* a, int64_t step, const C* b, int64_t b_step,
                int64_t n) {
  if (step == 1 && b_step == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = Comparison::of(a[i], b[i]) ? yes[i] : no[i];
  else
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * step;
      to[at] = Comparison::of(a[at], b[i * b_step]) ? yes[at] : no[at];
    }
}

// to[i] op= from[i]
template <class Op, class T>
void reduce_row(T* __restrict to, int64_t step, const T* from, int64_t from_step, int64_t n) {
  if (step == 1 && from_step == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = Op::of(to[i], from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i * step] = Op::of(to[i * step], from[i * from_step]);
}

// to[i] += x * from[i]
template <class S>
CROSSRANK_APART void add_products(S* __restrict to, S x, const S* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += x * from[i];
}

}  // namespace crossrank::program
