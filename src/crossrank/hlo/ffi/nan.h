// Looks for a NaN in a buffer of floats (or complex numbers, part by part).
#pragma once
#include <cstdint>

namespace crossrank {

// `dtype`: its number in XLA's PrimitiveType; false for a type that has no NaN.
bool has_nan(const void* data, uint64_t bytes, int32_t dtype);

}  // namespace crossrank
