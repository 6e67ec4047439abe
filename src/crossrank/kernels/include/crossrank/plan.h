// How the work of a collective is cut into blocks.
//
// The work of a group is a span of bytes (of the result of an all-gather, or of all ranks' results where they stay in
// the caches; else of one rank's operand). Block k of `blocks` owns slice k of it: it reads it from every rank that has
// it and writes it to every rank that wants it, so blocks need no order, and a rank may have its result in the place of
// its operand.
#pragma once
#include "crossrank/abi.h"

namespace crossrank {

constexpr uint64_t kSmall = 512 << 10;      // bytes moved up to which one block, on one core, is the fastest
constexpr uint64_t kBlockMoved = 2 << 20;   // bytes moved by a block of something large
constexpr uint64_t kFewest = 8;             // blocks of something not small: cores that come late still find work
constexpr uint64_t kGrain = 4096;           // slices begin on multiples of it

// `moved`: bytes that all ranks together read and write.
inline uint64_t blocks_of(uint64_t moved, uint64_t block_moved = kBlockMoved) {
  if (moved <= kSmall) return 1;
  const uint64_t blocks = (moved + block_moved - 1) / block_moved;
  return blocks < kFewest ? kFewest : blocks;
}

inline Range slice(uint64_t span, uint64_t block, uint64_t blocks) {
  uint64_t width = (span + blocks - 1) / blocks;
  if (blocks > 1) width = (width + kGrain - 1) / kGrain * kGrain;
  const uint64_t begin = block * width < span ? block * width : span;
  return {begin, span - begin < width ? span - begin : width};
}

}  // namespace crossrank
