// Collectives (and pins) as they are registered before a run: everything about one that its handler needs, under an id.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "crossrank/abi.h"

namespace crossrank {

class Meeting;

using BodyEntry = int32_t (*)(const Slot* args, uint64_t block, uint64_t blocks);

// One slot of a kernel: which buffer of each rank it is, and how the kernel sees it.
struct TensorSpec {
  enum From : int32_t {
    kOperand = 0,  // operand `index` of the rank itself
    kResult = 1,   // result `index` of the rank itself
    kPeer = 2,     // of rank `index` of the group: the result that has the number of the rank
    kSources = 3,  // where each rank's data comes from, as it was registered
  };
  int32_t from;
  int32_t index;
  int32_t dtype;  // a kernel that moves bytes sees u8
  int64_t extents[3];

  uint64_t bytes() const { return uint64_t(extents[0] * extents[1] * extents[2]) * item_bytes(dtype); }
};

// One run of a kernel: a collective has one for each operand, but for those that take their operands together.
struct PartSpec {
  static constexpr int32_t kMost = 7;

  BodyEntry body;
  int32_t ragged;  // whether tables must be looked at before anything is moved
  int32_t tensors;
  TensorSpec tensor[kMost];

  uint64_t moved(uint64_t ranks) const {
    uint64_t bytes = 0;
    for (int32_t t = 0; t < tensors; ++t)
      if (tensor[t].from != TensorSpec::kSources) bytes += tensor[t].bytes();
    return ranks * bytes;
  }
};

// What a collective did so far, over all its groups: meetings held, bytes read and written, time from the last arrival
// to the end.
struct Times {
  std::atomic<uint64_t> calls{0}, bytes{0}, nanoseconds{0};
};

struct Call {
  enum Kind { kKernels, kOracle, kPin };

  int64_t id = 0;
  Kind kind = kKernels;
  std::string label;
  Times times;

  // Collectives.
  struct Place {
    int32_t group = -1;  // none: the rank takes no part
    int32_t position = 0;
  };
  std::vector<Place> places;                // by rank
  std::vector<std::vector<int32_t>> groups;  // ranks, in group order
  std::vector<std::vector<int32_t>> sources;  // for each of them the position of the rank that it gets its data from
  std::vector<bool> eager;                  // by rank: whose data is taken as it comes, so that it waits for nobody
  std::vector<PartSpec> parts;              // of kKernels, and so what follows
  std::vector<uint64_t> operand_bytes, result_bytes;
  std::mutex mutex;                         // guards `open`
  std::vector<std::shared_ptr<Meeting>> open;
  std::atomic<int> lonely{0};               // how often in a row a rank lingered for nothing

  // Pins.
  std::vector<int32_t> watch;               // dtype in which NaN is looked for, by operand; 0: not
  std::atomic<bool> nan{false};
};

// All calls of the process. They are never removed: a handler may still hold one.
class Calls {
 public:
  static Calls& instance();
  Call* add(std::unique_ptr<Call> call);
  Call* find(int64_t id);
  template <class F>
  void each(F&& f) {
    for (size_t i = 0, n = count_.load(std::memory_order_acquire); i < n; ++i) f(*at(i));
  }

 private:
  // Pages that never move, so that a handler looks a call up without a lock.
  static constexpr size_t kPage = 1024, kPages = 4096;
  struct Page {
    std::unique_ptr<Call> calls[kPage];
  };
  Call* at(size_t index) { return pages_[index / kPage]->calls[index % kPage].get(); }

  std::mutex mutex_;
  std::atomic<size_t> count_{0};
  std::unique_ptr<Page> pages_[kPages];
};

}  // namespace crossrank
