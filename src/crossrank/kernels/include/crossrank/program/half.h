// f16 and bf16 as scalars: they are read as f32, and what is made of them is rounded once when it is put back.
//
// All in integers without a branch, so that loops over them become vectors; the bits are those of number.h.
#pragma once
#include <cstdint>
#include <cstring>

namespace crossrank::program {

template <class To, class From>
inline To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// A double as the float from which it rounds to 16 bits as the double itself would: cut off, and odd where not exact.
inline float sticky(double d) {
  const float f = float(d);
  const uint32_t u = bits_of<uint32_t>(f);
  const uint32_t away = (double(f) > d) == (d > 0);  // from zero
  const bool inexact = (double(f) != d) & ((u & 0x7fffffffu) < 0x7f800000u);
  return bits_of<float>(inexact ? (u - away) | 1u : u);
}

struct Brain {
  uint16_t bits;

  Brain() = default;
  Brain(float f) {
    const uint32_t u = bits_of<uint32_t>(f);
    const uint32_t rounded = u + (0x7fffu + ((u >> 16) & 1u));
    const uint32_t quiet = u | 0x00400000u;
    bits = uint16_t(((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
  }
  explicit Brain(double d) : Brain(sticky(d)) {}
  operator float() const { return bits_of<float>(uint32_t(bits) << 16); }
};

struct Half {
  uint16_t bits;

  Half() = default;
  Half(float f) {
    const uint32_t u = bits_of<uint32_t>(f);
    const uint32_t magnitude = u & 0x7fffffffu;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t subnormal = bits_of<uint32_t>(bits_of<float>(magnitude) + 0.5f) - (126u << 23);
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
    uint32_t made = magnitude < (113u << 23) ? subnormal : normal;
    made = magnitude >= (143u << 23) ? 0x7c00u : made;
    made = magnitude > 0x7f800000u ? nan : made;
    bits = uint16_t(made | (u >> 31) << 15);
  }
  explicit Half(double d) : Half(sticky(d)) {}
  operator float() const {
    const uint32_t magnitude = uint32_t(bits & 0x7fffu) << 13;
    const uint32_t exponent = magnitude & 0x0f800000u;
    const uint32_t quiet = (magnitude & 0x007fe000u) != 0u ? 0x00400000u : 0u;
    const uint32_t special = (magnitude + (224u << 23)) | quiet;  // infinity or NaN
    const uint32_t subnormal = bits_of<uint32_t>(bits_of<float>(magnitude + (113u << 23)) - 0x1p-14f);
    const uint32_t finite = exponent == 0u ? subnormal : magnitude + (112u << 23);
    return bits_of<float>((exponent == 0x0f800000u ? special : finite) | uint32_t(bits & 0x8000u) << 16);
  }
};

}  // namespace crossrank::program
