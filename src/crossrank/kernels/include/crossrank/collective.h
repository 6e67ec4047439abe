// What the built-in collectives share: where their operands and results lie, the addresses of all ranks' slices, and the
// shape arrive, body, leave.
#pragma once
#include <memory>
#include <vector>

#include "crossrank/comm.h"
#include "crossrank/plan.h"
#include "crossrank/vector.h"

namespace crossrank {

constexpr uint32_t kOperand = 0, kResult = 1, kContext = 2;
constexpr uint64_t kStaged = 4096;    // bytes of each rank in flight where peers' memory cannot be reached
constexpr uint64_t kLongRow = 1024;   // rows from here on are worked on where they lie
constexpr uint64_t kAtOnce = 32768;   // bytes of a piece that is read once and written to several ranks
constexpr uint64_t kOneCopy = 131072;  // bytes of a piece that is written to one rank

// The [outer, dim, inner] view of one rank's operand. A row is what lies together: dim × inner elements.
struct View {
  uint64_t rows;       // outer
  uint64_t row_bytes;
  uint64_t bytes() const { return rows * row_bytes; }
};

inline View view_of(const Tensor* tensor) {
  uint64_t outer = 1, row = item_bytes(tensor->dtype);
  for (int32_t d = 0; d < tensor->rank; ++d) (d == 0 && tensor->rank == 3 ? outer : row) *= uint64_t(tensor->shape[d]);
  return {outer, row};
}

// One collective at work: the slots of its operands and results, and what there is to know of them.
struct Call {
  CommContext* ctx;
  const Tensor* operand;  // this rank's, whose extents are every rank's
  uint32_t from = kOperand, into = kResult;
  uint32_t root = 0;      // of a broadcast
  bool in_rows = false;   // of a reduce-scatter: a rank's result is its own part of its operand, not a tensor by itself
};

// The arguments of most of them: operand, result, context.
inline Call call_of(const Slot* args) { return {args[kContext].context, args[kOperand].tensor}; }

// Whether stores should go past the caches: much is moved, and no result lies where its operand did (that line is
// here).
inline bool streams(const Call& call, uint64_t moved) {
  return moved > call.ctx->stream_above && reach(call.ctx, call.into, 0) != reach(call.ctx, call.from, 0);
}

// The addresses of one slot's slices on all ranks, with room for those that are staged.
class Slices {
 public:
  Slices(CommContext* ctx, uint32_t slot) : ctx_(ctx), slot_(slot), staged_(!all_reachable(ctx, slot)) {
    at_ = ctx->size <= kInline ? inline_ : (many_ = std::make_unique<char*[]>(ctx->size)).get();
    if (staged_) room_.resize(ctx->size * kStaged);
  }
  bool staged() const { return staged_; }
  char* const* addresses() const { return at_; }

  bool read(Range range) {
    for (uint32_t r = 0; r < ctx_->size; ++r) {
      at_[r] = const_cast<char*>(crossrank::read(ctx_, slot_, r, range, room(r)));
      if (!at_[r]) return false;
    }
    return true;
  }
  void place(Range range) {
    for (uint32_t r = 0; r < ctx_->size; ++r) at_[r] = crossrank::place(ctx_, slot_, r, range, room(r));
  }
  Status write(Range range) {
    if (staged_)
      for (uint32_t r = 0; r < ctx_->size; ++r)
        if (const Status s = crossrank::write(ctx_, slot_, r, range, at_[r])) return s;
    return kOk;
  }

 private:
  static constexpr uint32_t kInline = 64;
  char* room(uint32_t rank) { return staged_ ? room_.data() + rank * kStaged : nullptr; }

  CommContext* ctx_;
  uint32_t slot_;
  bool staged_;
  char** at_;
  char* inline_[kInline];
  std::unique_ptr<char*[]> many_;
  std::vector<char> room_;
};

// The SPMD form: every rank calls it. `moved` is what the whole group reads and writes; `work(k, n)` does the k-th of n
// blocks.
template <class Work>
inline Status body_leave(CommContext* ctx, uint64_t moved, Work&& work) {
  const uint64_t blocks = blocks_of(moved);
  uint64_t mine = 0;
  for (uint64_t k; (k = claim(ctx, mine)) < blocks;)
    if (const Status s = work(k, blocks)) return s;
  return barrier(ctx);
}

template <class Work>
inline Status arrive_body_leave(CommContext* ctx, uint64_t moved, Work&& work) {
  if (const Status s = barrier(ctx)) return s;
  return body_leave(ctx, moved, work);
}

}  // namespace crossrank
