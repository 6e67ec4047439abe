// The tables of a ragged exchange: rows of any number from everyone to everyone, and what can be wrong with them.
//
// Arguments: input, output, four tables (input offsets, send sizes, output offsets, receive sizes; s32 or s64), result,
// context. A table counts rows and has `each` entries for every peer, peer by peer. Entry j of member i: so many rows of
// its input go to peer j, to an offset in what peer j's output becomes.
#pragma once
#include <vector>

#include "crossrank/comm.h"

namespace crossrank {

constexpr uint32_t kInput = 0, kOutput = 1, kInputOffsets = 2, kSendSizes = 3, kOutputOffsets = 4, kRecvSizes = 5,
                   kRaggedResult = 6, kRaggedContext = 7;

// The rows of one entry.
struct Rows {
  int64_t start, count, place, expected;
};

// What is wrong with an entry.
struct RaggedFault {
  enum What { kSizesDiffer, kOutsideInput, kOutsideResult } what;
  uint32_t member, peer;
  Rows rows;
};

class Ragged {
 public:
  explicit Ragged(const Slot* args) : ctx_(args[kRaggedContext].context) {
    const Tensor &input = *args[kInput].tensor, &output = *args[kOutput].tensor, &table = *args[kSendSizes].tensor;
    input_rows_ = input.shape[0];
    result_rows_ = output.shape[0];
    row_bytes_ = item_bytes(output.dtype);
    for (int32_t d = 1; d < output.rank; ++d) row_bytes_ *= uint64_t(output.shape[d]);
    entry_bytes_ = item_bytes(table.dtype);
    entries_ = uint64_t(table.shape[0]);
  }

  // Makes all tables readable from here.
  Status load() {
    const uint64_t bytes = entries_ * entry_bytes_;
    for (uint32_t t = 0; t < kTables; ++t)
      for (uint32_t r = 0; r < size(ctx_); ++r) {
        if (!reach(ctx_, kInputOffsets + t, r)) copies_.emplace_back(bytes);
        void* room = copies_.empty() ? nullptr : copies_.back().data();
        tables_.push_back(read(ctx_, kInputOffsets + t, r, {0, bytes}, room));
        if (!tables_.back() && bytes) return kGivenUp;
      }
    return kOk;
  }

  CommContext* context() const { return ctx_; }
  uint64_t row_bytes() const { return row_bytes_; }
  uint64_t result_bytes() const { return uint64_t(result_rows_) * row_bytes_; }
  uint64_t moved() const { return 2 * result_bytes() * size(ctx_); }
  int64_t input_rows() const { return input_rows_; }
  int64_t result_rows() const { return result_rows_; }
  uint64_t each() const { return entries_ / size(ctx_); }

  Rows rows(uint32_t member, uint32_t peer, uint64_t k) const {
    const uint64_t mine = peer * each() + k, theirs = member * each() + k;
    return {number(kInputOffsets, member, mine), number(kSendSizes, member, mine), number(kOutputOffsets, member, mine),
            number(kRecvSizes, peer, theirs)};
  }

  // Looks at every entry; false, and the first that cannot be in `fault`.
  bool right(RaggedFault& fault) const {
    for (uint32_t member = 0; member < size(ctx_); ++member)
      for (uint32_t peer = 0; peer < size(ctx_); ++peer)
        for (uint64_t k = 0; k < each(); ++k) {
          const Rows r = rows(member, peer, k);
          fault = {RaggedFault::kSizesDiffer, member, peer, r};
          if (r.count != r.expected) return false;
          fault.what = RaggedFault::kOutsideInput;
          if (r.count < 0 || r.start < 0 || r.start > input_rows_ - r.count) return false;
          fault.what = RaggedFault::kOutsideResult;
          if (r.place < 0 || r.place > result_rows_ - r.count) return false;
        }
    return true;
  }

 private:
  static constexpr uint32_t kTables = 4;

  int64_t number(uint32_t slot, uint32_t rank, uint64_t index) const {
    const char* at = tables_[uint64_t(slot - kInputOffsets) * size(ctx_) + rank] + index * entry_bytes_;
    return entry_bytes_ == sizeof(int64_t) ? read_as<int64_t>(at) : read_as<int32_t>(at);
  }

  template <class T>
  static T read_as(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  CommContext* ctx_;
  int64_t input_rows_, result_rows_;
  uint64_t row_bytes_, entry_bytes_, entries_;
  std::vector<const char*> tables_;       // [4][size]
  std::vector<std::vector<char>> copies_;  // of those that cannot be reached
};

}  // namespace crossrank
