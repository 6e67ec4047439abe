// Moving bytes: copies, past the caches where that pays and of pieces too small to call for; and from one rank's argument
// to another's, whether or not they can be reached.
#pragma once
#include "crossrank/collective.h"
#include "crossrank/vector.h"

namespace crossrank {

inline void copy(char* to, const char* from, size_t bytes, bool streamed) {
  if (to == from) return;
  if (!streamed) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (head >= bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) stream(to + at, load<Words>(from + at));
  std::memcpy(to + at, from + at, bytes - at);
}

// For rows of a few bytes: sizes that the compiler knows become one load and one store.
inline void copy_row(char* to, const char* from, size_t bytes) {
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    case 8: std::memcpy(to, from, 8); break;
    case 16: std::memcpy(to, from, 16); break;
    case 32: std::memcpy(to, from, 32); break;
    case 64: std::memcpy(to, from, 64); break;
    default: std::memcpy(to, from, bytes);
  }
}

// Where a position of a value stands that is made of rows, each of which has a part for every rank: in row `row`, in the
// part of `rank`, at `within`.
struct Place {
  uint64_t row, rank, within;
};

inline Place place_of(uint64_t position, uint64_t part, uint64_t ranks) {
  const uint64_t index = position / part;
  return {index / ranks, index % ranks, position % part};
}

// A place in a rank's argument.
struct At {
  uint32_t slot, rank;
  uint64_t offset;
};

// Own memory to a rank's argument.
inline Status deliver(CommContext* ctx, At to, const char* from, uint64_t bytes, bool streamed) {
  char* const at = reach(ctx, to.slot, to.rank);
  if (!at) return put(ctx, to.slot, to.rank, {to.offset, bytes}, from);
  for (uint64_t done = 0; done < bytes; done += kOneCopy)
    copy(at + to.offset + done, from + done, kOneCopy < bytes - done ? kOneCopy : bytes - done, streamed);
  return kOk;
}

// One rank's argument to another's.
inline Status carry(CommContext* ctx, At from, At to, uint64_t bytes, bool streamed) {
  alignas(kLine) char tile[kAtOnce];
  const uint64_t most = reach(ctx, from.slot, from.rank) ? kOneCopy : kAtOnce;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t here = most < bytes - done ? most : bytes - done;
    const char* at = read(ctx, from.slot, from.rank, {from.offset + done, here}, tile);
    if (!at) return kGivenUp;
    if (const Status s = deliver(ctx, {to.slot, to.rank, to.offset + done}, at, here, streamed)) return s;
    done += here;
  }
  return kOk;
}

// Zeros.
inline Status clear(CommContext* ctx, At to, uint64_t bytes) {
  if (char* at = reach(ctx, to.slot, to.rank)) {
    std::memset(at + to.offset, 0, bytes);
    return kOk;
  }
  static const char zeros[kAtOnce] = {};
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t here = kAtOnce < bytes - done ? kAtOnce : bytes - done;
    if (const Status s = put(ctx, to.slot, to.rank, {to.offset + done, here}, zeros)) return s;
    done += here;
  }
  return kOk;
}

}  // namespace crossrank
