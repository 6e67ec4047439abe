#include "options.h"

#include <cstring>

#include "crossrank/plan.h"
#include "machine.h"

namespace crossrank {

Options::Options()
    : block(int64_t(kBlockMoved)),
      small(int64_t(kSmall)),
      threads(cores()),
      stream_above(int64_t(crossrank::stream_above())) {}

Options& Options::instance() {
  static Options* options = new Options;
  return *options;
}

std::atomic<int64_t>* Options::find(const char* name) {
  const struct {
    const char* name;
    std::atomic<int64_t>* value;
  } all[] = {{"limit_us", &limit_us},         {"linger_us", &linger_us},       {"block", &block},
             {"small", &small},               {"threads", &threads},           {"stream_above", &stream_above},
             {"advise_above", &advise_above}, {"absent_rank", &absent_rank},   {"absent_id", &absent_id},
             {"flush_subnormals", &flush_subnormals}, {"crowd_us", &crowd_us},
             {"run", &run}};
  for (const auto& option : all)
    if (!std::strcmp(option.name, name)) return option.value;
  return nullptr;
}

}  // namespace crossrank
