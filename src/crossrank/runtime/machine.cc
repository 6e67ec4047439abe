#include "machine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace crossrank {

#if defined(__linux__)
namespace {

// As they were before any thread was pinned.
const cpu_set_t& allowed() {
  static const cpu_set_t set = [] {
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0) CPU_ZERO(&all);
    return all;
  }();
  return set;
}

}  // namespace
#endif

int cores() {
#if defined(__linux__)
  if (const int n = CPU_COUNT(&allowed())) return n;
#endif
  const unsigned n = std::thread::hardware_concurrency();
  return n ? int(n) : 1;
}

void pin_to_core(int index) {
#if defined(__linux__)
  const cpu_set_t& all = allowed();
  if (CPU_COUNT(&all) == 0) return;
  cpu_set_t one;
  int left = index % CPU_COUNT(&all), cpu = 0;
  while (!CPU_ISSET(cpu, &all) || left-- > 0) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
#else
  (void)index;
#endif
}

void unpin() {
#if defined(__linux__)
  if (CPU_COUNT(&allowed())) sched_setaffinity(0, sizeof allowed(), &allowed());
#endif
}

void begin_on_core(int index) {
  pin_to_core(index);
  unpin();
}

namespace {

// Bytes of the last cache; a usual size where the system does not say. In virtual machines sysconf tends to report the
// caches of a whole socket, of which the kernel knows what these cores share.
uint64_t last_cache_bytes() {
  constexpr uint64_t kUsual = 32 << 20;
  std::string text;  // "32768K"
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> text && text.back() == 'K')
    return std::strtoull(text.c_str(), nullptr, 10) << 10;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return uint64_t(bytes);
#endif
  return kUsual;
}

}  // namespace

uint64_t stream_above() {
  constexpr uint64_t kMost = 128 << 20;  // what is reported may be far more than is ours
  static const uint64_t cache = last_cache_bytes();  // read from a file
  return std::min(cache + cache / 2, kMost);
}

void advise_huge(void* data, uint64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = 2 << 20;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) & ~(kHuge - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes + kHuge - 1) & ~(kHuge - 1);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace crossrank
