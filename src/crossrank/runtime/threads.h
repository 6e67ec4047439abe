// The fabric of threads in one process: peers' arguments are read and written where they lie.
#pragma once
#include <atomic>
#include <vector>

#include "crossrank/abi.h"
#include "waiting.h"

namespace crossrank {

// One group of ranks, each a thread.
class ThreadGroup {
 public:
  // `tensors`: [size][slots], rank by rank. Staged: no peer is reachable, so that every access goes through the
  // fabric's functions, which check it.
  ThreadGroup(uint32_t size, uint32_t slots, const Tensor* tensors, uint64_t stream_above, double limit_s, bool staged);

  CommContext context(uint32_t rank);
  const std::vector<Slot> arguments(uint32_t rank, CommContext* ctx) const;

  // Nobody waits any more, in this group; whoever does returns kGivenUp.
  void give_up();

  static const Fabric kFabric;

 private:
  static ThreadGroup& of(CommContext* ctx) { return *static_cast<ThreadGroup*>(ctx->state); }
  static Status read(CommContext*, uint32_t slot, uint32_t rank, Range, void* into);
  static Status write(CommContext*, uint32_t slot, uint32_t rank, Range, const void* from);
  static Status notify(CommContext*, uint32_t slot, uint32_t rank, uint64_t cell, int32_t value, Notify);
  static Status wait(CommContext*, uint32_t slot, uint64_t cell, int32_t value, Compare);
  static Status fence(CommContext*);
  static Status barrier(CommContext*);
  static uint64_t claim(CommContext*);

  char* at(uint32_t slot, uint32_t rank, Range range) const;  // null where there is no such range
  std::atomic<int32_t>* cell(uint32_t slot, uint32_t rank, uint64_t index) const;
  bool late();

  const uint32_t size_, slots_;
  const std::vector<Tensor> tensors_;
  const uint64_t stream_above_;
  const double limit_s_;
  const Clock::time_point start_;
  std::vector<void*> peers_;  // [slots][size]
  std::atomic<bool> given_up_{false};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  alignas(64) std::atomic<uint64_t> next_{0};
};

}  // namespace crossrank
