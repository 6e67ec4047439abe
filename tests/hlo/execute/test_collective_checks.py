"""Collectives against the oracle: what is right is handed on in silence, the first wrong element is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from crossrank.collective.dtypes import C64, F16, F32, DType
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.semantics import Collective
from crossrank.hlo.execute.collective_checks import CollectiveChecks
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.ffi.call import Call
from crossrank.hlo.shape import Shape
from crossrank.passes import parse_passes
from tests.support import parse, reducer

GROUPS = ((0, 2), (3, 1))


class Caught:
    """Stands where native code would be, and keeps the function that it would call."""

    call: Callable[..., None]

    def oracle(self, _label: str, _ranks: int, _groups: Sequence[Sequence[int]], call: Any) -> int:
        self.call = call
        return 7


def checked(op: ReduceOp, dtype: DType, values: list[list[Any]], results: list[list[Any]], *, ours: bool) -> dict:
    """One check of an all-reduce in group 1, whose members are ranks 3 and 1."""
    shape = Shape(dtype).with_dims((2,))
    call = Call("all-reduce %r (f.py:3)", 4, Collective(Kind.ALL_REDUCE, GROUPS, op), (shape,), (shape,))
    native = Caught()
    checks = CollectiveChecks(native)  # type: ignore[arg-type]
    assert checks.register(call, ours=ours) == 7
    raw = [[np.array(a, dtype.numpy).view(np.uint8) for a in member] for member in zip(values, results, strict=True)]
    outputs = [[np.zeros_like(member[1])] for member in raw]
    native.call(1, raw, outputs)
    native.call(1, raw, outputs)
    for member, copies in zip(raw, outputs, strict=True):
        np.testing.assert_array_equal(member[1], copies[0])
    return checks.as_dict()


def test_what_is_right_is_counted() -> None:
    found = checked(ReduceOp.ADD, F32, [[1, 2], [3, 4]], [[4, 6], [4, 6]], ours=True)
    assert found == {"checked": 1, "meetings": 2, "different": []}


def test_the_first_wrong_element_is_named_once() -> None:
    found = checked(ReduceOp.ADD, F32, [[1, 2], [3, 4]], [[4, 6], [4, 7]], ours=True)
    (one,) = found["different"]
    assert (one["rank"], one["result"], one["element"]) == (1, 0, (1,))
    assert (one["expected"], one["actual"]) == ("6.0", "7.0")
    assert one["collective"] == "all-reduce %r (f.py:3)"
    assert one["what"] == "rank 1, result 0, element [1]: 7.0 instead of 6.0"


@pytest.mark.parametrize(
    ("op", "dtype", "values", "results"),
    [
        (ReduceOp.MAXIMUM, F32, [[np.nan, 2], [3, 4]], [[3, 4], [3, 4]]),
        (ReduceOp.ADD, F16, [[1, 2], [3, 4]], [[4, 6], [4, 6.004]]),
        (ReduceOp.MULTIPLY, C64, [[1, 2], [3, 4]], [[3, 8], [3, 8.001]]),
    ],
)
def test_what_xla_does_in_its_own_way_is_not_held_against_it(
    op: ReduceOp, dtype: DType, values: list[list[Any]], results: list[list[Any]]
) -> None:
    assert not checked(op, dtype, values, results, ours=False)["different"]
    assert checked(op, dtype, values, results, ours=True)["different"]


def test_all_collectives_of_a_run_are_met() -> None:
    flags = "replica_groups={{0,1,2,3},{4,5,6,7}}, channel_id=1, use_global_device_ids=true"
    entry = f"""
  p = f32[8] parameter(0)
  h = f16[8] parameter(1)
  a = (f32[8], f16[8]) all-reduce(p, h), {flags}, to_apply=add_f32
  b = f32[8] get-tuple-element(a), index=0
  c = f16[8] get-tuple-element(a), index=1
  m = f32[8] all-reduce(b), {flags}, to_apply=maximum_f32
  g = f32[32] all-gather(m), dimensions={{0}}, {flags}
  ROOT out = (f32[32], f16[8]) tuple(g, c)"""
    passes = parse_passes("convert-collectives-to-custom-call")
    for chosen in ([], passes):
        report = run_module(parse(entry, reducer(), reducer("maximum")), chosen, RunOptions(iters=0, verify_each=True))
        assert report.equal
        assert report.result["collective_checks"] == {"checked": 3, "meetings": 6, "different": []}
        assert report.as_dict()["verify_each"]["collectives"]["checked"] == 3
