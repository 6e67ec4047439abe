// The memory floor: the time in which this machine's cores copy so many bytes, the best of plain stores and of stores
// past the caches, over pages that were touched before.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "crossrank/move.h"
#include "machine.cc"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kHuge = 2 << 20;

class Copiers {
 public:
  explicit Copiers(size_t moved) : share_((moved / 2 / cores_ + 4095) / 4096 * 4096) {
    const size_t size = (share_ * cores_ + kHuge - 1) / kHuge * kHuge;
    for (char*& half : halves_) {
      if (posix_memalign(reinterpret_cast<void**>(&half), kHuge, size)) std::abort();
      crossrank::advise_huge(half, size);
      std::memset(half, 1, size);
    }
  }
  ~Copiers() {
    for (char* half : halves_) std::free(half);
  }

  // One thread a core, in step; the best round counts, from the start of the first to the end of the last.
  double best(int rounds) {
    std::vector<std::thread> threads;
    std::atomic<int> arrived{0};
    double best = 1e9;
    const auto step = [&](int& steps) {
      ++arrived;
      for (++steps; arrived < steps * int(cores_);) {}
    };
    for (size_t t = 0; t < cores_; ++t)
      threads.emplace_back([&, t] {
        crossrank::pin_to_core(int(t));
        int steps = 0;
        for (int i = 0; i < 2 * rounds; ++i) {
          step(steps);
          const auto start = Clock::now();
          crossrank::copy(halves_[1] + t * share_, halves_[0] + t * share_, share_, i % 2);
          crossrank::end_streams();
          step(steps);
          const double spent = std::chrono::duration<double>(Clock::now() - start).count();
          if (t == 0 && spent < best) best = spent;
        }
      });
    for (auto& thread : threads) thread.join();
    return best;
  }

 private:
  const size_t cores_ = size_t(crossrank::cores());
  const size_t share_;
  char* halves_[2];
};

}  // namespace

extern "C" void* floor_open(uint64_t moved) { return new Copiers(moved); }
extern "C" void floor_close(void* copiers) { delete static_cast<Copiers*>(copiers); }
extern "C" double floor_seconds(void* copiers, int32_t rounds) { return static_cast<Copiers*>(copiers)->best(rounds); }
