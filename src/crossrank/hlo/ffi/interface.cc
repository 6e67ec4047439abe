// What Python calls, through ctypes.
#include <cstring>

#include "call.h"
#include "failures.h"
#include "meeting.h"
#include "options.h"

namespace crossrank {
namespace {

// `members`: the ranks of all groups, one group after the other; `sources`, where there are any, likewise.
int64_t add_collective(std::unique_ptr<Call> call, int32_t ranks, int32_t groups, const int32_t* sizes,
                       const int32_t* members, const int32_t* sources) {
  call->places.resize(size_t(ranks));
  for (int32_t g = 0; g < groups; members += sizes[g++]) {
    call->groups.emplace_back(members, members + sizes[g]);
    for (int32_t i = 0; i < sizes[g]; ++i) call->places[size_t(members[i])] = {g, i};
    if (sources) {
      call->sources.emplace_back(sources, sources + sizes[g]);
      sources += sizes[g];
    }
  }
  start_watchdog();
  const Call* added = Calls::instance().add(std::move(call));
  return added ? added->id : -1;
}

}  // namespace
}  // namespace crossrank

using namespace crossrank;

// The functions that add something return its id, or -1 where no more can be added.
extern "C" {

int64_t crossrank_add_kernels(const char* label, int32_t ranks, int32_t groups, const int32_t* sizes,
                              const int32_t* members, const int32_t* sources, int32_t parts, const PartSpec* specs,
                              int32_t operands, const uint64_t* operand_bytes, int32_t results,
                              const uint64_t* result_bytes) {
  auto call = std::make_unique<Call>();
  call->label = label;
  call->parts.assign(specs, specs + parts);
  call->operand_bytes.assign(operand_bytes, operand_bytes + operands);
  call->result_bytes.assign(result_bytes, result_bytes + results);
  return add_collective(std::move(call), ranks, groups, sizes, members, sources);
}

int64_t crossrank_add_oracle(const char* label, int32_t ranks, int32_t groups, const int32_t* sizes,
                             const int32_t* members) {
  auto call = std::make_unique<Call>();
  call->kind = Call::kOracle;
  call->label = label;
  return add_collective(std::move(call), ranks, groups, sizes, members, nullptr);
}

// The data of these ranks is taken as it comes, so that they wait for nobody.
void crossrank_set_eager(int64_t id, int32_t count, const int32_t* ranks) {
  Call* call = Calls::instance().find(id);
  if (!call) return;
  call->eager.resize(call->places.size());
  for (int32_t i = 0; i < count; ++i) call->eager[size_t(ranks[i])] = true;
}

int64_t crossrank_add_pin(const char* label, int32_t operands, const int32_t* watch) {
  auto call = std::make_unique<Call>();
  call->kind = Call::kPin;
  call->label = label;
  call->watch.assign(watch, watch + operands);
  const Call* added = Calls::instance().add(std::move(call));
  return added ? added->id : -1;
}

void crossrank_set_callback(Callback callback) { set_callback(callback); }

int32_t crossrank_nan_seen(int64_t id) {
  const Call* call = Calls::instance().find(id);
  return call && call->nan;
}

void crossrank_clear_nan() {
  Calls::instance().each([](Call& call) { call.nan = false; });
}

// The length of the first failure's text, 0 where there is none; as much of it as fits in `text`.
int32_t crossrank_failure(char* text, int32_t size) {
  const std::string why = Failures::instance().first();
  std::strncpy(text, why.c_str(), size_t(size));
  return int32_t(why.size());
}

void crossrank_reset() { Failures::instance().reset(); }

int32_t crossrank_set_option(const char* name, int64_t value) {
  std::atomic<int64_t>* option = Options::instance().find(name);
  if (!option) return -1;
  *option = value;
  return 0;
}

// Calls, bytes read and written, nanoseconds from the last arrival to the end.
void crossrank_times(int64_t id, uint64_t* three) {
  if (const Call* call = Calls::instance().find(id)) {
    three[0] = call->times.calls;
    three[1] = call->times.bytes;
    three[2] = call->times.nanoseconds;
  }
}
}
