"""Conversions of numbers of 16 bits: all of them, both ways, and roundings; the machine's own and the portable ones."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from crossrank.kernels.compile import Unit, build

SOURCE = """
#include "crossrank/number.h"
using namespace crossrank;
template <class N> void widen(const char* in, float* out, size_t lines) {
  for (size_t l = 0; l < lines; ++l) {
    // Lane by lane, whatever their order: narrow a line that holds one element, and see where it is.
    const auto w = N::widen(in + l * kLine);
    for (size_t e = 0; e < 32; ++e) {
      uint16_t mark[32] = {};
      mark[e] = 0x3c00;  // not zero in both formats
      const auto where = N::widen(mark);
      for (size_t v = 0; v < 2; ++v)
        for (size_t i = 0; i < 16; ++i)
          if (where.v[v][i] != 0) out[l * 32 + e] = w.v[v][i];
    }
  }
}
template <class N> void narrow(const float* in, char* out, size_t lines) {
  for (size_t l = 0; l < lines; ++l) {
    typename N::Wide w;
    for (size_t e = 0; e < 32; ++e) {
      uint16_t mark[32] = {};
      mark[e] = 0x3c00;
      const auto where = N::widen(mark);
      for (size_t v = 0; v < 2; ++v)
        for (size_t i = 0; i < 16; ++i)
          if (where.v[v][i] != 0) w.v[v][i] = in[l * 32 + e];
    }
    store(out + l * kLine, N::narrow(w));
  }
}
#define BOTH(name, N) \
  extern "C" void widen_##name(const char* in, float* out, size_t lines) { widen<N>(in, out, lines); } \
  extern "C" void narrow_##name(const float* in, char* out, size_t lines) { narrow<N>(in, out, lines); }
BOTH(bf16, BF16)
BOTH(f16, F16)
BOTH(f16_portable, Half<Binary16>)
"""


@pytest.fixture(scope="module")
def numbers() -> ctypes.CDLL:
    return ctypes.CDLL(str(build(Unit("test-numbers", SOURCE, flags=("-O2",)))))


FORMATS = [("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("f16_portable", np.float16)]


@pytest.mark.parametrize(("name", "numpy"), FORMATS)
def test_all_values(numbers: ctypes.CDLL, name: str, numpy: type) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = np.empty(every.size, np.float32)
    getattr(numbers, f"widen_{name}")(
        every.ctypes.data_as(ctypes.c_void_p), wide.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(every.size // 32)
    )
    with np.errstate(invalid="ignore"):
        wanted = every.view(numpy).astype(np.float32)
    nan = np.isnan(wanted)
    assert np.array_equal(np.isnan(wide), nan)
    assert np.array_equal(wide.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])
    assert np.array_equal(narrowed(numbers, name, wide)[~nan], every[~nan])


def narrowed(numbers: ctypes.CDLL, name: str, wide: np.ndarray) -> np.ndarray:
    half = np.empty(wide.size, np.uint16)
    narrow = getattr(numbers, f"narrow_{name}")
    narrow(wide.ctypes.data_as(ctypes.c_void_p), half.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(wide.size // 32))
    return half


@pytest.mark.parametrize(("name", "numpy"), FORMATS)
def test_roundings(numbers: ctypes.CDLL, name: str, numpy: type) -> None:
    """Around every value: halfway to its neighbour, a little less, a little more; and any f32."""
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = every.view(numpy).astype(np.float32).view(np.uint32)
        kept = 16 if name == "bf16" else 13
        steps = [
            exact + np.uint32(d) for d in (1, (1 << kept - 1) - 1, 1 << kept - 1, (1 << kept - 1) + 1, (1 << kept) - 1)
        ]
        any_f32 = np.random.default_rng(1).integers(0, 1 << 32, 1 << 18, np.uint32)
        wide = np.concatenate([*steps, any_f32]).view(np.float32)
        wanted = wide.astype(numpy)
    half = narrowed(numbers, name, wide)
    nan = np.isnan(wide)
    assert np.array_equal(half[~nan], wanted.view(np.uint16)[~nan])
    assert np.isnan(half.view(numpy)[nan].astype(np.float32)).all()
    if name == "f16":
        assert np.array_equal(half, narrowed(numbers, "f16_portable", wide)), "NaNs too are the same bits on both paths"
