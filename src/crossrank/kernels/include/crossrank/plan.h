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

// The peers that a block of a ragged exchange sends to, and its part of what it sends to each. Where there are fewer
// blocks than peers a block has all of every blocks-th peer, else each peer has as many blocks as any other, its lanes.
struct Lanes {
  uint64_t first, step;  // of its peers
  uint64_t lane, lanes;
};

inline Lanes lanes_of(uint64_t block, uint64_t blocks, uint64_t ranks) {
  const uint64_t lanes = blocks / ranks;
  if (lanes == 0) return {block, blocks, 0, 1};
  return {block / lanes, ranks, block % lanes, lanes};  // blocks that are left over find no peer
}

// A count of rows that somebody may have got wrong.
inline int32_t clamped(int32_t count, int64_t most) {
  return count < 0 ? 0 : count > most ? int32_t(most) : count;
}

// A lane's part of some elements. It begins on a multiple of 32 bytes, and may be empty.
inline Range part_of(uint64_t elements, uint64_t element_bytes, const Lanes& l) {
  constexpr uint64_t kEven = 32;
  const uint64_t each = (elements + l.lanes - 1) / l.lanes, bytes = elements * element_bytes;
  const auto bound = [&](uint64_t lane) {
    const uint64_t at = (lane * each * element_bytes + kEven - 1) / kEven * kEven;
    return lane == l.lanes || at > bytes ? bytes : at;
  };
  const uint64_t begin = bound(l.lane);
  return {begin, bound(l.lane + 1) - begin};
}

}  // namespace crossrank
