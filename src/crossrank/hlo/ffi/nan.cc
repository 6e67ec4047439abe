#include "nan.h"

#include <algorithm>
#include <cstring>

namespace crossrank {

namespace {

// A NaN is what lies above infinity once the sign is gone. Piece by piece without a branch inside, so that compilers
// make vectors of it.
template <class Bits>
bool above(const void* data, uint64_t bytes, Bits infinity) {
  constexpr uint64_t kPiece = 4096;
  constexpr Bits kMagnitude = Bits(~Bits(0)) >> 1;
  const char* at = static_cast<const char*>(data);
  for (uint64_t done = 0; done < bytes; done += kPiece) {
    const uint64_t count = std::min(kPiece, bytes - done) / sizeof(Bits);
    Bits found = 0;
    for (uint64_t i = 0; i < count; ++i) {
      Bits x;
      std::memcpy(&x, at + done + i * sizeof x, sizeof x);
      found |= Bits((x & kMagnitude) > infinity);
    }
    if (found) return true;
  }
  return false;
}

}  // namespace

bool has_nan(const void* data, uint64_t bytes, int32_t dtype) {
  switch (dtype) {
    case 10: return above<uint16_t>(data, bytes, 0x7c00);                          // f16
    case 16: return above<uint16_t>(data, bytes, 0x7f80);                          // bf16
    case 11: case 15: return above<uint32_t>(data, bytes, 0x7f800000);             // f32, c64
    case 12: case 18: return above<uint64_t>(data, bytes, 0x7ff0000000000000ull);  // f64, c128
    default: return false;
  }
}

}  // namespace crossrank
