// The two FFI targets. Both carry one attribute, the id under which everything else was registered.
#include <algorithm>
#include <cstring>

#include "call.h"
#include "meeting.h"
#include "nan.h"
#include "options.h"
#include "xla/ffi/api/ffi.h"

namespace crossrank {

namespace ffi = xla::ffi;

namespace {

ffi::Error bad(const std::string& what) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, what); }

Buffer buffer_of(const ffi::AnyBuffer& b) { return {b.untyped_data(), b.size_bytes()}; }

bool fit(const std::vector<Buffer>& buffers, const std::vector<uint64_t>& bytes) {
  return std::equal(buffers.begin(), buffers.end(), bytes.begin(), bytes.end(),
                    [](const Buffer& b, uint64_t expected) { return b.bytes == expected; });
}

// Operands: the data, then the rank as u32[].
Outcome collective(ffi::RunId run, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t id) {
  Call* call = Calls::instance().find(id);
  if (!call || call->kind == Call::kPin) return bad("no collective is registered as " + std::to_string(id));
  if (args.size() == 0) return bad(call->label + ": the rank is missing");
  const size_t data = args.size() - 1;
  const auto last = args.get<ffi::AnyBuffer>(data);
  if (last->element_type() != ffi::U32 || last->element_count() != 1)
    return bad(call->label + ": the last operand must be the rank, u32[]");
  const uint32_t rank = *static_cast<const uint32_t*>(last->untyped_data());
  if (rank >= call->places.size())
    return bad(call->label + ": rank " + std::to_string(rank) + " of " + std::to_string(call->places.size()));
  Buffers buffers;
  buffers.operands.reserve(data);
  buffers.results.reserve(rets.size());
  for (size_t i = 0; i < data; ++i) buffers.operands.push_back(buffer_of(*args.get<ffi::AnyBuffer>(i)));
  for (size_t i = 0; i < rets.size(); ++i) buffers.results.push_back(buffer_of(**rets.get<ffi::AnyBuffer>(i)));
  const Call::Place place = call->places[rank];
  if (place.group < 0) {
    for (const Buffer& result : buffers.results) std::memset(result.data, 0, result.bytes);
    return ffi::Error::Success();
  }
  if (call->kind == Call::kKernels &&
      (!fit(buffers.operands, call->operand_bytes) || !fit(buffers.results, call->result_bytes)))
    return bad(call->label + ": the buffers are not those that were registered");
  // Programs of several executables have a run id each; then what they share is the number that was set for the run.
  const int64_t shared = Options::instance().run;
  return Meeting::attend(*call, shared < 0 ? run.run_id : shared, int32_t(rank), buffers);
}

// Copies each operand to its result; where it is asked to, it notes that there was a NaN.
ffi::Error pin(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t id) {
  Call* call = Calls::instance().find(id);
  if (!call || call->kind != Call::kPin) return bad("no pin is registered as " + std::to_string(id));
  if (args.size() != rets.size()) return bad(call->label + ": a pin has as many results as operands");
  for (size_t i = 0; i < args.size(); ++i) {
    const Buffer from = buffer_of(*args.get<ffi::AnyBuffer>(i)), to = buffer_of(**rets.get<ffi::AnyBuffer>(i));
    if (from.bytes != to.bytes) return bad(call->label + ": operand and result differ in size");
    if (from.data != to.data) std::memcpy(to.data, from.data, from.bytes);
    if (i < call->watch.size() && call->watch[i] && !call->nan.load(std::memory_order_relaxed) &&
        has_nan(from.data, from.bytes, call->watch[i]))
      call->nan = true;
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace crossrank

extern "C" {
XLA_FFI_DEFINE_HANDLER_SYMBOL(crossrank_collective, crossrank::collective,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("id"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(crossrank_pin, crossrank::pin,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>("id"));
}
