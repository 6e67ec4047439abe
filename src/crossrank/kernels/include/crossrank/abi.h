// What a kernel is given: an argument array, the tensors in it, and the communication context behind them.
//
// Slots 0..n-1 of the array are tensors, slot n is the CommContext of one group. How many ranks there are is read from
// the context, never from an argument, and every table in it is sized by the group. Kernels of the program level may have
// several contexts (one for each distributed tensor among their parameters), then their scalars, and at the end their
// Launch.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crossrank {

struct Tensor {
  void* data;
  const int64_t* shape;    // `rank` extents
  const int64_t* strides;  // in elements; the built-in collectives take row-major tensors
  int32_t dtype;           // the number of the type in XLA's PrimitiveType
  int32_t rank;
};

struct CommContext;

// One block of a launch: what a kernel may ask about itself, and what it says of itself to people.
struct Launch {
  uint32_t block, blocks;  // this one, of how many
  uint32_t line, column;   // in the author's source, 0 where not known; set before whatever can wait or fail
  char fault[240];         // what went wrong, in words, where the kernel returns kBadCall
  void* state;             // the runtime's own
};

union Slot {
  const Tensor* tensor;
  CommContext* context;
  int64_t integer;  // scalars: integers and predicates
  double real;      // floats
  Launch* launch;
};

// What a kernel returns, and every call that can wait.
enum Status : int32_t {
  kOk = 0,
  kGivenUp = 1,  // the fabric gave the group up (a peer is missing): nobody waits any more
  kBadCall = 2,  // a slot, rank or range that is not there
  kBadRows = 3,  // this rank's rows of a ragged exchange lie outside of an array, or are not as many as expected
  kPeerFailed = 4,  // another rank's arguments are wrong, so that nothing was done
};

// Numbers of these two are part of the interface: append only.
enum class Notify : int32_t { kAdd = 0, kSet = 1 };
enum class Compare : int32_t { kEqual = 0, kAtLeast = 1 };

// Bytes of one rank's argument.
struct Range {
  uint64_t offset;
  uint64_t bytes;
};

// What one fabric does in its own way. A kernel never calls these itself, but the functions of comm.h, which take the
// short way where a peer's memory is reachable.
struct Fabric {
  Status (*read)(CommContext*, uint32_t slot, uint32_t rank, Range, void* into);
  Status (*write)(CommContext*, uint32_t slot, uint32_t rank, Range, const void* from);
  Status (*notify)(CommContext*, uint32_t slot, uint32_t rank, uint64_t cell, int32_t value, Notify);
  Status (*wait)(CommContext*, uint32_t slot, uint64_t cell, int32_t value, Compare);
  // The task is not over before the own cell is at least `value`; returns at once. Null where there are no tasks.
  Status (*defer)(CommContext*, uint32_t slot, uint64_t cell, int32_t value);
  Status (*fence)(CommContext*);
  Status (*barrier)(CommContext*);
  // The next piece of work that no rank has claimed since the last barrier. Null where ranks share no counter.
  uint64_t (*claim)(CommContext*);
  // Adds 1 to one cell of every peer's signal, and waits until some own cells are at least `count`: those of a column
  // but the one of this rank, as comm.h says. Null where it is no faster than to notify and to wait for each.
  Status (*meet)(CommContext*, uint32_t slot, uint64_t column, uint64_t stride, int32_t count);
};

struct CommContext {
  const Fabric* fabric;   // null for a body whose peers are all reachable: it needs no fabric
  void* state;            // the fabric's own
  void* const* peers;     // [slots][size]: where the ranks' arguments are reachable from here; null where one is not
  uint64_t stream_above;  // bytes moved by the whole group from which stores should go past the caches
  uint32_t rank;
  uint32_t size;
  uint32_t slots;
  Launch* launch;         // whose context it is; null where nothing is launched in blocks
};

// Bytes of one element, by the number of its type in XLA's PrimitiveType; 0 for a type that no kernel knows.
inline uint64_t item_bytes(int32_t dtype) {
  switch (dtype) {
    case 1: case 2: case 6: return 1;             // pred s8 u8
    case 3: case 7: case 10: case 16: return 2;   // s16 u16 f16 bf16
    case 4: case 8: case 11: return 4;            // s32 u32 f32
    case 5: case 9: case 12: case 15: return 8;   // s64 u64 f64 c64
    case 18: return 16;                           // c128
    default: return 0;
  }
}

}  // namespace crossrank
