// Element types: what a line of them in memory is while it is worked on.
//
// A Number has an `Element` as it lies in memory and a `Wide`, one line of elements as held in registers (kVectors of
// type Held). `widen` and `narrow` go between the two; the order of lanes in a Wide is the Number's own affair.
#pragma once
#include <type_traits>

#include "crossrank/vector.h"

namespace crossrank {

// A maximum or minimum passes numbers on without computing. A product with one makes of a subnormal what arithmetic
// makes of it in the thread's mode: itself, or zero. The compiler must not know that it is one.
template <class Held, class T>
inline Held settled(const Held& v) {
  static const volatile T one = 1;
  return v * one;
}

// Types that are worked on as they are. Signed integers are for maximum and minimum only: what wraps is unsigned.
template <class T>
struct Native {
  using Element = T;
  using Held = Vector<T>;
  static constexpr size_t kVectors = 1;
  struct Wide {
    Held v[kVectors];
  };
  static Wide widen(const void* line) { return {{load<Held>(line)}}; }
  static Held narrow(const Wide& w) { return w.v[0]; }
  static Held zero() { return Held{}; }
  static Held one() { return Held{} + T(1); }
  static Held multiply(const Held& a, const Held& b) { return a * b; }
  static Held settle(const Held& v) {
    if constexpr (std::is_floating_point_v<T>)
      return settled<Held, T>(v);
    else
      return v;
  }
};

using S8 = Native<int8_t>;
using S16 = Native<int16_t>;
using S32 = Native<int32_t>;
using S64 = Native<int64_t>;
using U8 = Native<uint8_t>;
using U16 = Native<uint16_t>;
using U32 = Native<uint32_t>;
using U64 = Native<uint64_t>;
using F32 = Native<float>;
using F64 = Native<double>;

// Complex numbers: the two parts side by side. A product is (ac − bd, ad + bc), rounded operation by operation.
template <class T>
struct Complex : Native<T> {
  using Held = Vector<T>;
  struct Element {
    T re, im;
  };
  static constexpr size_t kLanes = kLine / sizeof(T);
  static Held one() {
    Held v{};
    for (size_t i = 0; i < kLanes; i += 2) v[i] = 1;
    return v;
  }
  // With a sign that is flipped in place of a subtraction: GCC makes fused operations of alternating additions and
  // subtractions, even where it is told to contract nothing.
  static Held multiply(const Held& a, const Held& b) {
    Held re, im, swapped, minus{};
    for (size_t i = 0; i < kLanes; ++i) {
      re[i] = a[i & ~size_t(1)];
      im[i] = a[i | 1];
      swapped[i] = b[i ^ 1];
      minus[i] = i % 2 ? T(0) : -T(0);
    }
    using Bits = Vector<uint64_t>;
    const Held cross = im * swapped;
    return re * b + bits<Held>(bits<Bits>(cross) ^ bits<Bits>(minus));
  }
};

using C64 = Complex<float>;
using C128 = Complex<double>;

// Numbers of 16 bits that are worked on in f32. A line is held as two vectors, of its even and of its odd elements, so
// that no lane ever moves. `Format` takes a number from either half of a word, and makes one in the lower half.
template <class Format>
struct Half {
  using Element = uint16_t;
  using Held = Floats;
  static constexpr size_t kVectors = 2;
  struct Wide {
    Held v[kVectors];
  };
  static Wide widen(const void* line) {
    const Words w = load<Words>(line);
    return {{Format::from_low(w), Format::from_high(w)}};
  }
  static Words narrow(const Wide& w) { return Format::to_low(w.v[0]) | (Format::to_low(w.v[1]) << 16); }
  static Held zero() { return Held{}; }
  static Held one() { return Held{} + 1.0f; }
  static Held multiply(const Held& a, const Held& b) { return a * b; }
  static Held settle(const Held& v) { return settled<Held, float>(v); }
};

// bf16: the upper half of an f32. Rounded to nearest, ties to even, in integers; a NaN stays one.
struct Brain {
  static Floats from_low(const Words& w) { return bits<Floats>(w << 16); }
  static Floats from_high(const Words& w) { return bits<Floats>(w & 0xffff0000u); }
  static Words to_low(const Floats& f) {
    const Words u = bits<Words>(f);
    const Words rounded = u + (0x7fffu + ((u >> 16) & 1u));
    const Words quiet = u | 0x00400000u;
    return select((u & 0x7fffffffu) > 0x7f800000u, quiet, rounded) >> 16;
  }
};

// f16: IEEE binary16, in integers but for the two additions that make and unmake subnormals. No f32 here is subnormal
// itself, so a thread that flushes those gets the same bits.
struct Binary16 {
  static Floats from_low(const Words& w) {
    const Words magnitude = (w & 0x7fffu) << 13;
    const Words exponent = magnitude & 0x0f800000u;
    const Words normal = magnitude + (112u << 23);
    const Words quiet = select((magnitude & 0x007fe000u) != 0u, Words{} + 0x00400000u, Words{});
    const Words special = (magnitude + (224u << 23)) | quiet;  // infinity or NaN
    const Words subnormal = bits<Words>(bits<Floats>(magnitude + (113u << 23)) - 0x1p-14f);
    const Words finite = select(exponent == 0u, subnormal, normal);
    return bits<Floats>(select(exponent == 0x0f800000u, special, finite) | (w & 0x8000u) << 16);
  }
  static Floats from_high(const Words& w) { return from_low(w >> 16); }
  static Words to_low(const Floats& f) {
    const Words u = bits<Words>(f);
    const Words magnitude = u & 0x7fffffffu;
    const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const Words subnormal = bits<Words>(bits<Floats>(magnitude) + 0.5f) - (126u << 23);
    const Words infinity = Words{} + 0x7c00u;
    const Words nan = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    const Words finite = select(magnitude < (113u << 23), subnormal, normal);
    const Words ordered = select(magnitude >= (143u << 23), infinity, finite);
    return select(magnitude > 0x7f800000u, nan, ordered) | (u >> 31) << 15;
  }
};

using BF16 = Half<Brain>;

#if defined(__AVX512F__)
// The machine's own conversions, which give the same bits; a line is held as its first and its second half.
struct F16 : Half<Binary16> {
  static Wide widen(const void* line) {
    const __m512i w = load<__m512i>(line);
    return {{bits<Floats>(_mm512_cvtph_ps(_mm512_castsi512_si256(w))),
             bits<Floats>(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(w, 1)))}};
  }
  static Words narrow(const Wide& w) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512i first = _mm512_castsi256_si512(_mm512_cvtps_ph(bits<__m512>(w.v[0]), kNearest));
    return bits<Words>(_mm512_inserti64x4(first, _mm512_cvtps_ph(bits<__m512>(w.v[1]), kNearest), 1));
  }
};
#else
using F16 = Half<Binary16>;
#endif

}  // namespace crossrank
