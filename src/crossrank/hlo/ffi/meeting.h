// The meeting of one group's ranks in one collective of one run.
//
//   arrive   each rank leaves the addresses of its buffers;
//   body     the last one to arrive starts the work: blocks, that it, the pool and ranks still in their handlers take;
//   leave    a rank that is still in its handler at the end returns; one that had left has its promise kept.
//
// No rank waits for another without bound, so ranks may enter independent collectives in any order.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "call.h"
#include "waiting.h"
#include "xla/ffi/api/ffi.h"

namespace crossrank {

// What a handler gives back: success or an error at once, or a future.
using Outcome = std::variant<xla::ffi::Error, xla::ffi::Future>;

// One rank's buffers in one collective.
struct Buffer {
  void* data;
  uint64_t bytes;
};
struct Buffers {
  std::vector<Buffer> operands, results;
};

class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  Meeting(Call& call, int64_t run, int32_t group);

  // A rank comes to its collective, and is served as far as that can be done without waiting long.
  static Outcome attend(Call& call, int64_t run, int32_t rank, const Buffers& buffers);

  int64_t run() const { return run_; }
  Clock::time_point first_arrival() const { return first_; }
  // "all-reduce %ar.3 waited 60 s: ranks 0,1,2 arrived, rank 3 did not". Call it under the call's mutex.
  std::string late_message(double limit_s) const;
  // The ranks that have not come, and what one that has come waits for: "rank 0 waits in recv %r for rank 1". Call them
  // under the call's mutex.
  std::vector<int32_t> missing() const;
  bool has(int32_t rank) const;
  std::string waiting_message(int32_t rank) const;

  // Ends the meeting for who waits in it.
  void fail(const std::string& why);

 private:
  // One run of a kernel: its arguments, with the addresses of all ranks.
  struct Part {
    Tensor tensors[PartSpec::kMost];
    std::vector<void*> peers;  // [tensors][size]
    CommContext context;
    Slot args[PartSpec::kMost + 1];
    uint64_t blocks;
    void run(BodyEntry body, uint64_t block) const { body(args, block, blocks); }
  };

  // What a rank finds as it arrives: the meeting, and whether it is the last; or why the run has failed already.
  struct Arrival {
    std::shared_ptr<Meeting> meeting;
    bool last = false;
    std::string failed;
  };
  // Copies of the buffers of a rank that does not stay.
  using Copies = std::vector<std::unique_ptr<void, void (*)(void*)>>;
  static Buffers copied(const Buffers& buffers, Copies& copies);
  static Arrival join(Call& call, int64_t run, Call::Place place, const Buffers& buffers, Copies copies, bool present);
  void start();
  void prepare(Part& part, const PartSpec& spec);
  void* address(const TensorSpec& tensor, uint32_t member);
  std::string fault_of(const Part& part) const;
  void fail_run(const std::string& why);
  void work();
  void call_back();
  void complete();
  Outcome await();
  Outcome leave();
  bool lingers(Clock::time_point now);
  bool done() const { return done_.load(std::memory_order_acquire) == total_; }

  Call& call_;
  const int64_t run_;
  const int32_t group_;
  const uint32_t size_;
  const Clock::time_point first_ = Clock::now();
  Clock::time_point started_at_{};
  uint32_t arrived_ = 0;
  std::vector<bool> here_;         // by position
  std::vector<Buffers> buffers_;   // by position
  Copies copies_;
  std::vector<Part> parts_;
  uint64_t total_ = 0;             // blocks of all parts
  uint64_t moved_ = 0;
  std::atomic<bool> started_{false};
  std::atomic<int> lingering_{0};

  std::mutex mutex_;  // guards what follows
  bool over_ = false;
  std::string failed_;
  std::vector<xla::ffi::Promise> promises_;

  alignas(64) std::atomic<uint64_t> next_{0};
  alignas(64) std::atomic<uint64_t> done_{0};
};

// Python's part: computes a collective from all ranks' buffers. Returns 0, else fills `error`.
using Callback = int32_t (*)(int64_t id, int32_t group, int32_t members, int32_t operands, int32_t results,
                             void* const* operand_data, const int64_t* operand_bytes, void* const* result_data,
                             const int64_t* result_bytes, char* error, int32_t error_size);
void set_callback(Callback callback);

}  // namespace crossrank

// A handler that has nothing to wait for needs no future.
template <xla::ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, crossrank::Outcome> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* ctx,
                                                              crossrank::Outcome outcome) {
    if (auto* error = std::get_if<Error>(&outcome))
      return ResultEncoding<stage, Error>::Encode(api, ctx, std::move(*error));
    return ResultEncoding<stage, Future>::Encode(api, ctx, std::move(std::get<Future>(outcome)));
  }
};
