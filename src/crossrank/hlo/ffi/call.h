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

// How work and bytes of an operand grow with the group.
enum class Shape : int32_t { kAllReduce = 0, kReduceScatter = 1, kAllGather = 2 };

// One data operand that a kernel serves, as it comes through the C interface.
struct OperandSpec {
  BodyEntry body;
  int32_t shape;  // Shape
  int32_t dtype;  // of the tensors that the kernel sees; a kernel that moves bytes sees u8
  int64_t view[3];  // [outer, dim, inner] of one rank's operand
};

struct Operand {
  BodyEntry body;
  Shape shape;
  int32_t dtype;
  int64_t extents[3];
  uint64_t bytes;  // of one rank's operand

  uint64_t result_bytes(uint64_t ranks) const {
    return shape == Shape::kAllReduce ? bytes : shape == Shape::kAllGather ? bytes * ranks : bytes / ranks;
  }
  uint64_t moved(uint64_t ranks) const { return ranks * (bytes + result_bytes(ranks)); }
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
  std::vector<Operand> operands;            // of kKernels
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
