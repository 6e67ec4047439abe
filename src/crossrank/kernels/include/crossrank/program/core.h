// One block of a kernel's launch: how it fails, in words, and the memory of its tiles.
//
// What fails throws a Status, which the kernel returns.
#pragma once
#include <cstdarg>
#include <cstdlib>

#include "crossrank/comm.h"

namespace crossrank::program {

// Memory of a tile; its elements lie behind it.
struct alignas(64) Buffer {
  class Arena* arena;
  Buffer* next;
  uint32_t tiles;  // that share it
  uint32_t power;  // of two, its bytes
  char* data() { return reinterpret_cast<char*>(this + 1); }
};

// The buffers of one block. A free one is taken again by the next tile of its size, while it is in the cache. The
// thread keeps the memory, so that it is allocated once.
class Arena {
 public:
  Arena() : own_(kept()), at_(own_.memory), end_(own_.memory + own_.bytes) { kept() = Memory(); }
  ~Arena() {
    if (more_) {
      while (more_) {
        Chunk* const chunk = more_;
        more_ = chunk->next;
        std::free(chunk);
      }
      std::free(own_.memory);
      own_.memory = allocate(used_);
      own_.bytes = own_.memory ? used_ : 0;
    }
    std::free(kept().memory);
    kept() = own_;
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Null where there is no memory.
  Buffer* take(size_t bytes) {
    const uint32_t power = bytes <= 64 ? 6 : 64 - __builtin_clzll(bytes - 1);
    Buffer* buffer = free_[power];
    if (buffer)
      free_[power] = buffer->next;
    else if (!(buffer = fresh(power)))
      return nullptr;
    buffer->tiles = 1;
    return buffer;
  }
  void give(Buffer* buffer) {
    buffer->next = free_[buffer->power];
    free_[buffer->power] = buffer;
  }

 private:
  struct Memory {
    char* memory = nullptr;
    size_t bytes = 0;
  };
  struct Keeper : Memory {
    ~Keeper() { std::free(memory); }
  };
  struct alignas(64) Chunk {
    Chunk* next;
  };

  static Memory& kept() {
    static thread_local Keeper keeper;
    return keeper;
  }
  static char* allocate(size_t bytes) { return static_cast<char*>(std::aligned_alloc(64, bytes)); }

  __attribute__((noinline)) Buffer* fresh(uint32_t power) {
    const size_t bytes = sizeof(Buffer) + (size_t(1) << power);
    used_ += bytes;
    if (size_t(end_ - at_) < bytes) {
      const size_t chunk = sizeof(Chunk) + (bytes > kChunk ? bytes : kChunk);
      char* const memory = allocate(chunk);
      if (!memory) return nullptr;
      reinterpret_cast<Chunk*>(memory)->next = more_;
      more_ = reinterpret_cast<Chunk*>(memory);
      at_ = memory + sizeof(Chunk), end_ = memory + chunk;
    }
    Buffer* const buffer = reinterpret_cast<Buffer*>(at_);
    buffer->arena = this;
    buffer->power = power;
    at_ += bytes;
    return buffer;
  }

  static constexpr size_t kChunk = 1 << 16;
  Memory own_;
  char *at_, *end_;
  size_t used_ = 0;
  Chunk* more_ = nullptr;
  Buffer* free_[64] = {};
};

class Core {
 public:
  explicit Core(const Slot& launch) : launch_(launch.launch) {}

  uint32_t block() const { return launch_->block; }
  uint32_t blocks() const { return launch_->blocks; }

  // Where the author wrote what comes next. Others read the line while we run, and the column when we have failed.
  void at(uint32_t line, uint32_t column) {
    __atomic_store_n(&launch_->line, line, __ATOMIC_RELAXED);
    launch_->column = column;
  }

  [[noreturn]] __attribute__((noinline, cold, format(printf, 2, 3))) void fail(const char* format, ...) {
    va_list values;
    va_start(values, format);
    __builtin_vsnprintf(launch_->fault, sizeof launch_->fault, format, values);
    va_end(values);
    throw kBadCall;
  }

  // Memory of a tile.
  Buffer* take(size_t bytes) {
    Buffer* const buffer = arena_.take(bytes);
    if (!buffer) fail("there is no memory for a tile of %zu bytes", bytes);
    return buffer;
  }

  // What a call of the fabric came to.
  void check(Status status) {
    if (status != kOk) throw status;
  }

 private:
  Launch* launch_;
  Arena arena_;
};

// Keeps a scalar from taking part in the deduction of the element type.
template <class T>
struct Given {
  using Type = T;
};
template <class T>
using Scalar = typename Given<T>::Type;

constexpr int kMostDims = 8;

// Extents, offsets or strides, one a dimension.
template <int N>
struct Dims {
  static_assert(N <= kMostDims);
  int64_t n[N];
  int64_t& operator[](int d) { return n[d]; }
  int64_t operator[](int d) const { return n[d]; }
};

template <int N>
inline bool operator==(const Dims<N>& a, const Dims<N>& b) {
  bool same = true;
  for (int d = 0; d < N; ++d) same &= a[d] == b[d];
  return same;
}

template <int N>
inline int64_t count(const Dims<N>& shape) {
  int64_t n = 1;
  for (int d = 0; d < N; ++d) n *= shape[d];
  return n;
}

// The strides of row-major elements without gaps.
template <int N>
inline Dims<N> packed(const Dims<N>& shape) {
  Dims<N> strides;
  int64_t stride = 1;
  for (int d = N - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

// How far from the first element one lies.
template <int N>
inline int64_t distance(const Dims<N>& at, const Dims<N>& strides) {
  int64_t n = 0;
  for (int d = 0; d < N; ++d) n += at[d] * strides[d];
  return n;
}

// A walk over one region in K layouts at once, row by row: where a row begins in each, how many elements it has, and
// how far they lie from one another. Dimensions that follow one another without a gap are one.
//
//   for (Walk<2> w(N, extents, {strides, others}); w.more; w.next()) copy(w.at[0], w.at[1], w.count);
template <int K>
struct Walk {
  bool more = true;
  int64_t count = 1, at[K] = {}, step[K];

  __attribute__((noinline)) Walk(int dims, const int64_t* extents, const int64_t* const (&strides)[K]) {
    for (int k = 0; k < K; ++k) step[k] = 1;
    for (int d = 0; d < dims; ++d) {
      more &= extents[d] > 0;
      if (extents[d] == 1) continue;
      bool joined = levels_ > 0;
      for (int k = 0; k < K; ++k) joined = joined && strides_[k][levels_ - 1] == extents[d] * strides[k][d];
      const int level = joined ? levels_ - 1 : levels_++;
      extents_[level] = joined ? extents_[level] * extents[d] : extents[d];
      for (int k = 0; k < K; ++k) strides_[k][level] = strides[k][d];
    }
    if (!levels_) return;
    count = extents_[--levels_];
    for (int k = 0; k < K; ++k) step[k] = strides_[k][levels_];
  }

  __attribute__((noinline)) void next() {
    for (int level = levels_ - 1; level >= 0; --level) {
      for (int k = 0; k < K; ++k) at[k] += strides_[k][level];
      if (++index_[level] < extents_[level]) return;
      for (int k = 0; k < K; ++k) at[k] -= strides_[k][level] * extents_[level];
      index_[level] = 0;
    }
    more = false;
  }

 private:
  int levels_ = 0;  // but for the innermost
  int64_t extents_[kMostDims], strides_[K][kMostDims], index_[kMostDims] = {};
};

// Says that a range is not within an extent: "pl.load reads rows 8..12 of x, which has 10".
[[noreturn]] __attribute__((noinline, cold)) inline void outside(Core& core, const char* does, const char* name,
                                                                int dims, int d, long long from, long long extent,
                                                                long long there) {
  const char* const what = dims == 1 ? "elements" : d == dims - 1 ? "columns" : d == dims - 2 ? "rows" : "slices";
  if (extent < 0) core.fail("%s %lld %s of %s", does, extent, what, name);
  core.fail("%s %s %lld..%lld of %s, which has %lld", does, what, from, from + extent, name, there);
}

template <int N>
inline void ask_within(Core& core, const char* does, const char* name, const Dims<N>& from, const Dims<N>& extents,
                       const Dims<N>& shape) {
  for (int d = 0; d < N; ++d)
    if (extents[d] < 0 || from[d] < 0 || from[d] > shape[d] - extents[d])
      outside(core, does, name, N, d, from[d], extents[d], shape[d]);
}

template <int N>
inline Dims<N> ones() {
  Dims<N> all;
  for (int d = 0; d < N; ++d) all[d] = 1;
  return all;
}

}  // namespace crossrank::program
