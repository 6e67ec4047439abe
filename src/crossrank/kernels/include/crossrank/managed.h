// The collectives of programs: a kernel that runs in blocks on every rank at once, and meets its peers by a signal.
//
// Its arguments are its tensors, a context for each distributed one (all of one domain: the first is used), scalars, and
// the launch. The signal is an s32[ranks, stride], all zero between calls: cell [src, b] counts what block b of rank src
// told block b of this rank. At its k-th meeting within a call a block adds 1 to its cell on every peer, and waits until
// each of its own is at least k: at least, for a peer may be one ahead. At the end it takes off what it was told.
#pragma once
#include "crossrank/comm.h"

namespace crossrank {

class Credits {
 public:
  Credits(CommContext* ctx, const Tensor* signal, uint32_t slot)
      : ctx_(ctx), slot_(slot), stride_(uint64_t(signal->shape[1])), block_(ctx->launch->block) {
    const uint64_t launched = ctx->launch->blocks;
    blocks_ = launched < stride_ ? launched : stride_;
  }

  uint64_t block() const { return block_; }
  // How many blocks take part; those beyond the signal's columns retire.
  uint64_t blocks() const { return blocks_; }
  bool retires() const { return block_ >= blocks_; }

  // Everything that this block has written is there for its peers once they have met it.
  Status meet() {
    ++meetings_;
    if (const Status s = fence(ctx_)) return s;
    for (uint32_t p = next(ctx_->rank); p != ctx_->rank; p = next(p))
      if (const Status s = notify(ctx_, slot_, p, cell(ctx_->rank), 1, Notify::kAdd)) return s;
    for (uint32_t p = next(ctx_->rank); p != ctx_->rank; p = next(p))
      if (const Status s = wait(ctx_, slot_, cell(p), meetings_, Compare::kAtLeast)) return s;
    return kOk;
  }

  Status end() {
    for (uint32_t p = next(ctx_->rank); p != ctx_->rank; p = next(p))
      if (const Status s = notify(ctx_, slot_, ctx_->rank, cell(p), -meetings_, Notify::kAdd)) return s;
    return kOk;
  }

 private:
  uint32_t next(uint32_t rank) const { return rank + 1 == ctx_->size ? 0 : rank + 1; }
  uint64_t cell(uint32_t source) const { return source * stride_ + block_; }

  CommContext* ctx_;
  uint32_t slot_;
  uint64_t stride_, block_, blocks_;
  int32_t meetings_ = 0;
};

// Arrive, work, leave. `work(ctx, k, n)` does the k-th of n pieces of the whole group's work. Of the arguments
// `tensors` are tensors, one of them the signal.
template <class Work>
inline Status managed_kernel(const Slot* args, uint32_t tensors, uint32_t signal, Work&& work) {
  CommContext* ctx = args[tensors].context;
  Credits credits(ctx, args[signal].tensor, signal);
  if (credits.retires()) return kOk;
  if (const Status s = credits.meet()) return s;
  const uint64_t piece = ctx->rank * credits.blocks() + credits.block();
  if (const Status s = work(ctx, piece, ctx->size * credits.blocks())) return s;
  if (const Status s = credits.meet()) return s;
  return credits.end();
}

}  // namespace crossrank
