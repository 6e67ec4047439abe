// What can be set from Python: limits, and knobs to measure with.
#pragma once
#include <atomic>
#include <cstdint>

namespace crossrank {

struct Options {
  std::atomic<int64_t> limit_us{60'000'000};        // how long a meeting may stay incomplete
  std::atomic<int64_t> linger_us{200};              // how long a rank stays in its handler for the others
  std::atomic<int64_t> crowd_us{200'000};           // for how long nobody lingers once giving way took long
  std::atomic<int64_t> block;                       // bytes that a block reads and writes
  std::atomic<int64_t> small;                       // bytes moved up to which the last to arrive works alone
  std::atomic<int64_t> threads;                     // that work on one collective
  std::atomic<int64_t> stream_above;                // bytes moved from which stores go past the caches
  std::atomic<int64_t> advise_above{4 << 20};       // bytes of a result from which huge pages are asked for
  std::atomic<int64_t> flush_subnormals{0};         // 1: as XLA's own collectives do; 0: as the NumPy meaning has it
  std::atomic<int64_t> run{-1};                     // what meetings are keyed by; -1: XLA's own run id
  std::atomic<int64_t> absent_rank{-1};             // test hook: whose arrivals are swallowed
  std::atomic<int64_t> absent_id{-1};               // and in which collective; -1: in all

  static Options& instance();
  std::atomic<int64_t>* find(const char* name);     // null where there is none

 private:
  Options();
};

}  // namespace crossrank
