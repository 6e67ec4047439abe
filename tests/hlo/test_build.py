"""New instructions: XLA accepts each, and constants of every type keep their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from crossrank.collective.dtypes import BF16, F32, S32, U32
from crossrank.hlo import build
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.literals import has_literal, read_literal
from crossrank.hlo.module import Module
from crossrank.passes import Pass
from crossrank.remarks import Remarks
from tests.support import find, parse, reread

TYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


@pytest.mark.parametrize("dtype", [*map(np.dtype, TYPES), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_constants_of_every_type(dtype: np.dtype) -> None:
    values = np.array([[0, 1, 2], [3, 1, 0]]).astype(dtype)
    file = parse("  ROOT p = f32[] parameter(0)")
    build.constant(file.module.entry, values, name="k")
    k = find(reread(file).module, "k")
    assert has_literal(k.shape.dtype)
    np.testing.assert_array_equal(read_literal(k.proto.literal), values)


def test_constants_in_another_layout() -> None:
    file = parse("  ROOT k = s32[2,3]{0,1} constant({{1,2,3},{4,5,6}})")
    np.testing.assert_array_equal(read_literal(file.module.entry.root.proto.literal), [[1, 2, 3], [4, 5, 6]])


def test_types_without_a_field_are_said() -> None:
    file = parse("  ROOT k = f8e5m2[2] constant({1,2})")
    assert read_literal(file.module.entry.root.proto.literal) is None
    with pytest.raises(ValueError, match="no constants of type f8e5m2"):
        build.constant(file.module.entry, np.zeros(2, ml_dtypes.float8_e5m2))


@dataclass(frozen=True)
class Detour(Pass[Module]):
    """x → … → x + 0, with every opcode that there is a function for."""

    name: ClassVar[str] = "detour"

    def run(self, module: Module, remarks: Remarks) -> bool:
        c = module.entry
        y = build.transpose(build.reshape(build.transpose(c.root, (1, 0)), (2, 3, 4)), (0, 2, 1))
        y = build.transpose(build.reshape(build.transpose(y, (0, 2, 1)), (6, 4)), (1, 0))
        y = build.concatenate([build.slice_along(y, 0, 0, 2), build.slice_(y, (2, 0), (4, 6))], 0)
        at = build.convert(build.scalar(c, 0, S32), U32)
        y = build.dynamic_slice(y, [at, at], (4, 6))
        zero = build.broadcast(build.scalar(c, 0.0, F32), (4, 6))
        y = build.select(build.compare("LT", y, zero), build.binary("add", y, zero), y)
        c.set_root(build.element(build.tuple_of(c, [build.convert(y, BF16), y]), 1))
        return True


def test_what_is_built_is_accepted_and_means_what_it_says() -> None:
    file = parse("  ROOT x = f32[4,6] parameter(0)")
    report = run_module(file, [Detour()], RunOptions(iters=0))
    assert report.result["exact"]
    x = file.module.entry.root
    assert build.convert(x, F32) is x
    assert build.reshape(x, (4, 6)) is x


def test_bodies_are_made_once() -> None:
    file = parse("  ROOT x = f32[4,6] parameter(0)")
    bodies = build.ReductionBodies(file.module)
    assert bodies.get("add", F32) is bodies.get("add", F32)
    assert bodies.get("add", F32) is not bodies.get("add", BF16)
