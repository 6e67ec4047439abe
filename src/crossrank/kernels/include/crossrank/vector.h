// Lines: 64 bytes as a vector of the compiler's own, whatever registers the machine has, and stores past the caches.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace crossrank {

constexpr size_t kLine = 64;

template <class T>
using Vector __attribute__((vector_size(kLine))) = T;

using Words = Vector<uint32_t>;
using Floats = Vector<float>;

template <class To, class From>
inline To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class V>
inline V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
inline void store(void* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}

// `mask` has all bits of a lane set or none.
template <class V, class M>
inline V select(const M& mask, const V& yes, const V& no) {
  const M y = bits<M>(yes), n = bits<M>(no);
  return bits<V>((y & mask) | (n & ~mask));
}

// A store that does not read the line that it overwrites and leaves none behind in the caches; `to` starts a line.
template <class V>
inline void stream(void* to, const V& v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), bits<__m512i>(v));
#elif defined(__SSE2__)
  __m128i parts[4];
  std::memcpy(parts, &v, sizeof v);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(static_cast<__m128i*>(to) + i, parts[i]);
#else
  store(to, v);
#endif
}

// Streamed stores are not ordered with others: call it before anybody is told that they are done.
inline void end_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

inline bool starts_line(const void* p) { return reinterpret_cast<uintptr_t>(p) % kLine == 0; }

}  // namespace crossrank
