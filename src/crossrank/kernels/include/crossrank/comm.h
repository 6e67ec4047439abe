// How a kernel speaks to its peers: these functions and nothing else. The same source so runs on every fabric.
//
// `read` and `place` give an address. Where the peer's argument is reachable it is the argument itself and nothing is
// copied; where it is not (another process, or accesses that are watched) it is the caller's scratch, which `read` has
// filled and `write` sends. A kernel has one path for both.
#pragma once
#include <cstring>

#include "crossrank/abi.h"

namespace crossrank {

inline uint32_t rank(const CommContext* ctx) { return ctx->rank; }
inline uint32_t size(const CommContext* ctx) { return ctx->size; }

// The peer's argument itself, or null where it cannot be reached from here.
inline char* reach(const CommContext* ctx, uint32_t slot, uint32_t rank) {
  return static_cast<char*>(ctx->peers[uint64_t(slot) * ctx->size + rank]);
}

// Whether the arguments of all ranks in `slot` are reachable.
inline bool all_reachable(const CommContext* ctx, uint32_t slot) {
  for (uint32_t r = 0; r < ctx->size; ++r)
    if (!reach(ctx, slot, r)) return false;
  return true;
}

// The address of a range of a peer's argument, to read from. `scratch` has room for the range; it may be null where
// the argument is reachable. Null when the fabric failed.
inline const char* read(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, void* scratch) {
  if (const char* at = reach(ctx, slot, rank)) return at + range.offset;
  return ctx->fabric->read(ctx, slot, rank, range, scratch) == kOk ? static_cast<const char*>(scratch) : nullptr;
}

// The address to which a range of a peer's argument is to be written, before `write` makes it the peer's.
inline char* place(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, void* scratch) {
  char* at = reach(ctx, slot, rank);
  return at ? at + range.offset : static_cast<char*>(scratch);
}

// Ends what `place` began: `at` is the address that it gave, filled.
inline Status write(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, const void* at) {
  return reach(ctx, slot, rank) ? kOk : ctx->fabric->write(ctx, slot, rank, range, at);
}

// Own memory to a peer's argument. Visible to the peer once it has seen a `notify` that came after, or a barrier.
inline Status put(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, const void* from) {
  char* at = reach(ctx, slot, rank);
  if (!at) return ctx->fabric->write(ctx, slot, rank, range, from);
  std::memcpy(at + range.offset, from, range.bytes);
  return kOk;
}

// A peer's argument to own memory.
inline Status get(CommContext* ctx, uint32_t slot, uint32_t rank, Range range, void* into) {
  const char* at = reach(ctx, slot, rank);
  if (!at) return ctx->fabric->read(ctx, slot, rank, range, into);
  std::memcpy(into, at + range.offset, range.bytes);
  return kOk;
}

// Change cell `cell` of the peer's signal, an s32 argument. Everything written before it is visible to who sees it.
inline Status notify(CommContext* ctx, uint32_t slot, uint32_t rank, uint64_t cell, int32_t value, Notify how) {
  return ctx->fabric->notify(ctx, slot, rank, cell, value, how);
}

// Wait until the own cell `cell` of a signal is equal to `value`, or at least `value`.
inline Status wait(CommContext* ctx, uint32_t slot, uint64_t cell, int32_t value, Compare how) {
  return ctx->fabric->wait(ctx, slot, cell, value, how);
}

// Tell every peer that this rank has come, and wait for all of them. Their signals are [ranks, stride]: cell
// [rank, column] of each peer's gets one more, and each own cell [peer, column] must come to `count`.
inline Status meet(CommContext* ctx, uint32_t slot, uint64_t column, uint64_t stride, int32_t count) {
  if (ctx->fabric->meet) return ctx->fabric->meet(ctx, slot, column, stride, count);
  for (uint32_t n = 1; n < ctx->size; ++n)
    if (const Status s = notify(ctx, slot, (ctx->rank + n) % ctx->size, ctx->rank * stride + column, 1, Notify::kAdd))
      return s;
  for (uint32_t n = 1; n < ctx->size; ++n) {
    const uint64_t cell = (ctx->rank + n) % ctx->size * stride + column;
    if (const Status s = wait(ctx, slot, cell, count, Compare::kAtLeast)) return s;
  }
  return kOk;
}

// Let the task that this kernel runs for be over only when the own cell is at least `value`; returns at once.
inline Status defer(CommContext* ctx, uint32_t slot, uint64_t cell, int32_t value) {
  return ctx->fabric->defer ? ctx->fabric->defer(ctx, slot, cell, value) : kBadCall;
}

// Everything put before it has arrived at its peer when it returns.
inline Status fence(CommContext* ctx) { return ctx->fabric->fence(ctx); }

// Wait until every rank of the group has come here; what any of them wrote before is then visible to all.
inline Status barrier(CommContext* ctx) { return ctx->fabric->barrier(ctx); }

// The next piece of work for this rank, of pieces 0.. that the group shares out since its last barrier: from one
// shared counter where there is one (who is early does more), else every size-th piece. `mine` starts as 0 and is the
// call's own.
inline uint64_t claim(CommContext* ctx, uint64_t& mine) {
  return ctx->fabric->claim ? ctx->fabric->claim(ctx) : ctx->rank + ctx->size * mine++;
}

}  // namespace crossrank
