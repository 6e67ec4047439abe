// Reductions over a range of several ranks' memory, in the order in which the ranks are given: each input is read once
// and each output written once.
//
// Sums start from +0 and products from 1, the others from the first rank. Maximum and minimum let a NaN through, and of
// equal values (zeros of both signs) they keep the earlier one. The result of an element never depends on where it lies
// in a line, so that the end of a range that fills no line is worked on as a padded one.
#pragma once
#include <type_traits>

#include "crossrank/number.h"

namespace crossrank {

struct Add {
  static constexpr bool kHasIdentity = true;
  template <class N>
  static typename N::Held identity() { return N::zero(); }
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) { return a + b; }
};

struct Multiply {
  static constexpr bool kHasIdentity = true;
  template <class N>
  static typename N::Held identity() { return N::one(); }
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) { return N::multiply(a, b); }
};

struct Maximum {
  static constexpr bool kHasIdentity = false;
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) {
    return select((a >= b) | (a != a), a, b);
  }
};

struct Minimum {
  static constexpr bool kHasIdentity = false;
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) {
    return select((a <= b) | (a != a), a, b);
  }
};

struct And {
  static constexpr bool kHasIdentity = false;
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) { return a & b; }
};

struct Or {
  static constexpr bool kHasIdentity = false;
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) { return a | b; }
};

struct Xor {
  static constexpr bool kHasIdentity = false;
  template <class N>
  static typename N::Held apply(const typename N::Held& a, const typename N::Held& b) { return a ^ b; }
};

// Lines of each input in flight, times the vectors that a line is held in. There are registers for more, but the inputs
// of all ranks lie alike in their pages, and more of them at once push one another out of the first cache.
#if defined(__AVX__)
constexpr size_t kAccumulators = 4;
#else
constexpr size_t kAccumulators = 2;
#endif

template <class N, class Op>
class Reduction {
 public:
  // outs[*] = in[0] op in[1] op …, `bytes` of each. An output may be an input (the same address); otherwise they are
  // disjoint.
  static void run(const char* const* in, size_t ranks, char* const* outs, size_t n_outs, size_t bytes, bool streamed) {
    for (size_t o = 0; o < n_outs; ++o) streamed = streamed && starts_line(outs[o]);
    const size_t lines = bytes / kLine;
    if (ranks <= kStreams)
      in_registers(in, ranks, outs, n_outs, lines, streamed);
    else
      in_tiles(in, ranks, outs, n_outs, lines, streamed);
    if (bytes % kLine) end(in, ranks, outs, n_outs, lines * kLine, bytes % kLine);
  }

 private:
  using Wide = typename N::Wide;
  static constexpr size_t kStreams = 16;  // inputs that walk together: more would outrun prefetchers and TLB
  static constexpr size_t kTile = 64;     // lines of a partial result, which stays in L1
  static constexpr size_t kSideBySide = kAccumulators / N::kVectors;  // lines of each input in flight

  template <size_t L>
  using Count = std::integral_constant<size_t, L>;

  template <class F>
  static void by_lines(size_t lines, F&& f) {
    size_t line = 0;
    for (; line + kSideBySide <= lines; line += kSideBySide) f(Count<kSideBySide>{}, line);
    for (; line < lines; ++line) f(Count<1>{}, line);
  }

  static void combine(Wide& acc, const Wide& w) {
    for (size_t v = 0; v < N::kVectors; ++v) acc.v[v] = Op::template apply<N>(acc.v[v], w.v[v]);
  }

  // Begins the accumulators; returns how many ranks they hold already.
  template <size_t L>
  static size_t begin(Wide (&acc)[L], const char* first) {
    for (size_t l = 0; l < L; ++l) {
      if constexpr (Op::kHasIdentity)
        for (auto& held : acc[l].v) held = Op::template identity<N>();
      else
        acc[l] = N::widen(first + l * kLine);
    }
    return Op::kHasIdentity ? 0 : 1;
  }

  template <size_t L>
  static void accumulate(Wide (&acc)[L], const char* const* in, size_t from, size_t to, size_t at) {
    for (size_t r = from; r < to; ++r)
      for (size_t l = 0; l < L; ++l) combine(acc[l], N::widen(in[r] + at + l * kLine));
  }

  static auto finish(Wide acc) {
    if constexpr (!Op::kHasIdentity)
      for (auto& held : acc.v) held = N::settle(held);
    return N::narrow(acc);
  }

  template <size_t L>
  static void deliver(const Wide (&acc)[L], char* const* outs, size_t n_outs, size_t at, bool streamed) {
    decltype(N::narrow(acc[0])) line[L];
    for (size_t l = 0; l < L; ++l) line[l] = finish(acc[l]);
    for (size_t o = 0; o < n_outs; ++o)
      for (size_t l = 0; l < L; ++l) {
        char* to = outs[o] + at + l * kLine;
        streamed ? stream(to, line[l]) : store(to, line[l]);
      }
  }

  static void in_registers(const char* const* in, size_t ranks, char* const* outs, size_t n_outs, size_t lines,
                           bool streamed) {
    by_lines(lines, [&](auto count, size_t line) {
      const size_t at = line * kLine;
      Wide acc[count];
      accumulate(acc, in, begin(acc, in[0] + at), ranks, at);
      deliver(acc, outs, n_outs, at, streamed);
    });
  }

  static void in_tiles(const char* const* in, size_t ranks, char* const* outs, size_t n_outs, size_t lines,
                       bool streamed) {
    Wide tile[kTile];
    for (size_t start = 0; start < lines; start += kTile) {
      const size_t here = lines - start < kTile ? lines - start : kTile;
      for (size_t from = 0; from < ranks; from += kStreams) {
        const size_t to = ranks - from < kStreams ? ranks : from + kStreams;
        by_lines(here, [&](auto count, size_t line) {
          const size_t at = (start + line) * kLine;
          Wide acc[count];
          size_t next = from;
          if (from == 0)
            next = begin(acc, in[0] + at);
          else
            std::memcpy(acc, tile + line, sizeof acc);
          accumulate(acc, in, next, to, at);
          if (to < ranks)
            std::memcpy(tile + line, acc, sizeof acc);
          else
            deliver(acc, outs, n_outs, at, streamed);
        });
      }
    }
  }

  static void end(const char* const* in, size_t ranks, char* const* outs, size_t n_outs, size_t at, size_t bytes) {
    char padded[kLine] = {};
    std::memcpy(padded, in[0] + at, bytes);
    Wide acc[1];
    for (size_t r = begin(acc, padded); r < ranks; ++r) {
      std::memcpy(padded, in[r] + at, bytes);
      combine(acc[0], N::widen(padded));
    }
    store(padded, finish(acc[0]));
    for (size_t o = 0; o < n_outs; ++o) std::memcpy(outs[o] + at, padded, bytes);
  }
};

}  // namespace crossrank
