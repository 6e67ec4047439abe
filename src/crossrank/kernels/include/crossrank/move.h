// Copies: past the caches where that pays, and of pieces too small to call for.
#pragma once
#include "crossrank/vector.h"

namespace crossrank {

inline void copy(char* to, const char* from, size_t bytes, bool streamed) {
  if (to == from) return;
  if (!streamed) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (head >= bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) stream(to + at, load<Words>(from + at));
  std::memcpy(to + at, from + at, bytes - at);
}

// For rows of a few bytes: sizes that the compiler knows become one load and one store.
inline void copy_row(char* to, const char* from, size_t bytes) {
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    case 8: std::memcpy(to, from, 8); break;
    case 16: std::memcpy(to, from, 16); break;
    case 32: std::memcpy(to, from, 32); break;
    case 64: std::memcpy(to, from, 64); break;
    default: std::memcpy(to, from, bytes);
  }
}

}  // namespace crossrank
