// The collectives of programs: a kernel that runs in blocks on every rank at once, and meets its peers by a signal.
//
// Its arguments are its tensors, a context for each distributed one (all of one domain: the first is used), scalars, and
// the launch. What only its own rank reads or writes may be any tensor: it is taken from the arguments, and never looked
// for at a peer.
//
// The signal is an s32[ranks, stride], all zero between calls: cell [src, b] counts what block b of rank src told block
// b of this rank. At its k-th meeting within a call a block adds 1 to its cell on every peer, and waits until each of its
// own is at least k: at least, for a peer may be one ahead. At the end it takes off what it was told. The cell of a rank
// on itself tells nothing. Rank 0's are the counters from which the ranks take pieces of what they share.
#pragma once
#include "crossrank/comm.h"
#include "crossrank/plan.h"

namespace crossrank {

class Credits {
 public:
  Credits(CommContext* ctx, const Tensor* signal, uint32_t slot)
      : ctx_(ctx), slot_(slot), stride_(uint64_t(signal->shape[1])), block_(ctx->launch->block) {
    const uint64_t launched = ctx->launch->blocks;
    blocks_ = launched < stride_ ? launched : stride_;
  }

  CommContext* context() const { return ctx_; }
  uint64_t block() const { return block_; }
  // How many blocks take part; those beyond the signal's columns retire.
  uint64_t blocks() const { return blocks_; }
  bool retires() const { return block_ >= blocks_; }

  // Everything that this block has written is there for its peers once they have met it.
  Status meet() {
    if (const Status s = fence(ctx_)) return s;
    return crossrank::meet(ctx_, slot_, block_, stride_, ++meetings_);
  }

  Status end() {
    for (uint32_t p = 0; p < ctx_->size; ++p)
      if (p != ctx_->rank)
        if (const Status s = notify(ctx_, slot_, ctx_->rank, cell(p), -meetings_, Notify::kAdd)) return s;
    if (ctx_->rank == 0) return notify(ctx_, slot_, 0, cell(0), 0, Notify::kSet);
    return kOk;
  }

  // Between two meetings: does pieces of what is to be done for the whole group, `work(k, n)` the k-th of n of them, which
  // any rank can do. Who is early does more where all can reach rank 0's counter.
  template <class Work>
  Status share(uint64_t moved, Work&& work) {
    const uint64_t pieces = (blocks_of(moved) + blocks_ - 1) / blocks_;  // of this block and its peers
    int32_t* const cells = all_reachable(ctx_, slot_) ? reinterpret_cast<int32_t*>(reach(ctx_, slot_, 0)) : nullptr;
    for (uint64_t k = ctx_->rank;; k += ctx_->size) {
      if (cells) k = uint64_t(__atomic_fetch_add(cells + cell(0), 1, __ATOMIC_RELAXED));
      if (k >= pieces) return kOk;
      if (const Status s = work(block_ + blocks_ * k, blocks_ * pieces)) return s;
    }
  }

 private:
  uint64_t cell(uint32_t source) const { return source * stride_ + block_; }

  CommContext* ctx_;
  uint32_t slot_;
  uint64_t stride_, block_, blocks_;
  int32_t meetings_ = 0;
};

// Arrive, work, leave. Of the arguments `tensors` are tensors, one of them the signal.
template <class Work>
inline Status managed_kernel(const Slot* args, uint32_t tensors, uint32_t signal, Work&& work) {
  Credits credits(args[tensors].context, args[signal].tensor, signal);
  if (credits.retires()) return kOk;
  if (const Status s = credits.meet()) return s;
  if (const Status s = work(credits)) return s;
  if (const Status s = credits.meet()) return s;
  return credits.end();
}

}  // namespace crossrank
