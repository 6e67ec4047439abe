"""Every test of the gate, in its order, with the reason that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from crossrank.instr.builder import KernelBuilder
from crossrank.instr.lowering.sb2sb import effective_bytes, incompatibility
from crossrank.instr.operands import AccessOp
from crossrank.instr.tensors import DynamicSlice, View


def access(b: KernelBuilder, view: View) -> AccessOp:
    found = b._access(view).owner
    assert isinstance(found, AccessOp)
    return found


def tile(b: KernelBuilder, shape: Sequence[int], dtype: str = "f32", space: str = "sbuf") -> View:
    return b.tensor(shape, dtype, space)


def small(b: KernelBuilder) -> View:
    return tile(b, (64, 16))


REASONS: list[tuple[str, Any, Any, dict[str, int], str | None]] = [
    ("fits", small, small, {}, None),
    ("cores", small, small, {"lnc": 4}, "a rank has 4 cores, not 2"),
    ("cores first", small, lambda b: None, {"lnc": 1}, "a rank has 1 cores, not 2"),
    ("operands", small, lambda b: None, {}, "an operand is missing"),
    ("base", small, lambda b: tile(b, (128, 16))[5:69], {}, "it begins at partition 5, not at 0, 32, 64, 96"),
    ("another base", small, lambda b: tile(b, (128, 16))[64:128], {}, None),
    ("rank 1", lambda b: tile(b, (64,)), small, {}, "it has 1 dimensions, not 2 to 5"),
    ("rank 6", lambda b: tile(b, (64, 1, 1, 1, 1, 16)), small, {}, "it has 6 dimensions, not 2 to 5"),
    ("rank 5", lambda b: tile(b, (64, 2, 2, 2, 2)), small, {}, None),
    ("elements", small, lambda b: tile(b, (64, 8)), {}, "16 elements per partition are sent, 8 received"),
    ("type", small, lambda b: tile(b, (64, 16), "s32"), {}, "f32 is sent, s32 received"),
    ("hbm", small, lambda b: tile(b, (64, 16), "f32", "private_hbm"), {}, "private_hbm, not in sbuf"),
    ("psum", lambda b: tile(b, (64, 16), "f32", "psum"), small, {}, "psum, not in sbuf"),
    ("register", lambda b: tile(b, (64, 32))[:, DynamicSlice(b.rank_id(), 16)], small, {}, "does not go partition by"),
    ("transposed", lambda b: tile(b, (16, 64)).permute((1, 0)), small, {}, "does not go partition by partition"),
    ("strided", lambda b: tile(b, (64, 48))[:, ::3], small, {}, None),
    ("every other", lambda b: tile(b, (128, 16))[::2], small, {}, None),
    ("limit", lambda b: tile(b, (64, 256)), lambda b: tile(b, (64, 256)), {}, None),
    ("above", lambda b: tile(b, (64, 257)), lambda b: tile(b, (64, 257)), {}, "1028 bytes per partition"),
    (
        "asked for",
        small,
        small,
        {"max_bytes": 63},
        "64 bytes per partition (4 or more an element) are more than the 63",
    ),
    ("no more", lambda b: tile(b, (64, 257)), lambda b: tile(b, (64, 257)), {"max_bytes": 9999}, "more than 1024"),
    ("arch", small, small, {"arch": 20}, "the architecture level is 20"),
]


@pytest.mark.parametrize(("src", "dst", "options", "reason"), [r[1:] for r in REASONS], ids=[r[0] for r in REASONS])
def test_gate(src: Any, dst: Any, options: dict[str, int], reason: str | None) -> None:
    b = KernelBuilder(lnc=2)
    views = [make(b) for make in (src, dst)]
    found = incompatibility(*(v and access(b, v) for v in views), **{"lnc": 2} | options)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize(
    ("dtype", "bytes_each"), [("f64", 8), ("f32", 4), ("bf16", 4), ("u8", 4), ("s32", 4), ("f8e4m3fn", 4)]
)
def test_an_element_takes_four_bytes_or_more(dtype: str, bytes_each: int) -> None:
    b = KernelBuilder(lnc=2)
    assert effective_bytes(access(b, tile(b, (7, 3, 5), dtype)).type) == 15 * bytes_each
