"""Values that only the rank decides: evaluated here, and by XLA on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossrank.hlo.rank_values import RankValues
from tests.support import find, hlo, parse, run_values

HEADERS = {
    "num_partitions=8": (range(8), [0] * 8),
    "replica_count=8": ([0] * 8, range(8)),
    "replica_count=2, num_partitions=4": ([0, 1, 2, 3] * 2, [0] * 4 + [1] * 4),
}

EXPRESSIONS = """
  p = u32[] partition-id()
  r = u32[] replica-id()
  four = u32[] constant(4)
  rows = u32[] multiply(r, four)
  id = u32[] add(p, rows)
  s = s32[] convert(id)
  table = s32[8] constant({0, -3, 7, -2147483648, 2147483647, 5, 4, 1})
  t1 = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={1}
  t = s32[] reshape(t1)
  zero = s32[] constant(0)
  minus = s32[] constant(-1)
  two = s32[] constant(2)
  big = s32[] constant(40)
  quotient = s32[] divide(t, s)
  negated = s32[] divide(t, minus)
  rest = s32[] remainder(t, two)
  rest0 = s32[] remainder(t, zero)
  product = s32[] multiply(t, big)
  difference = s32[] subtract(minus, t)
  narrow = s8[] convert(product)
  wide = s64[] convert(narrow)
  unsigned = u8[] convert(t)
  most = s32[] maximum(t, two)
  least = s32[] minimum(t, two)
  within = s32[] clamp(zero, t, big)
  both = s32[] and(t, big)
  either = s32[] or(t, big)
  one = s32[] xor(t, big)
  none = s32[] not(t)
  size = s32[] abs(t)
  opposite = s32[] negate(t)
  up = s32[] shift-left(t, two)
  gone = s32[] shift-left(t, big)
  down = s32[] shift-right-arithmetic(t, two)
  sign = s32[] shift-right-arithmetic(t, big)
  logical = s32[] shift-right-logical(t, two)
  lost = s32[] shift-right-logical(t, big)
  backwards = s32[] shift-right-logical(t, minus)
  less = pred[] compare(t, two), direction=LT
  same = pred[] compare(id, four), direction=EQ
  least_id = pred[] compare(id, four), direction=GE
  other = pred[] not(less)
  any = pred[] or(less, same)
  chosen = s32[] select(any, t, s)
  ramp = s32[2,4] iota(), iota_dimension=1
  turned = s32[4,2] transpose(ramp), dimensions={1,0}
  flat = s32[8] reshape(turned)
  copied = s32[8] copy(flat)
  window = s32[3] dynamic-slice(copied, t), dynamic_slice_sizes={3}
  cut = s32[2] slice(table), slice={[1:6:3]}
  joined = s32[5] concatenate(window, cut), dimensions={0}
  spread = s32[5,2] broadcast(joined), dimensions={0}
  crossed = s32[2,3,4] broadcast(ramp), dimensions={0,2}
  pair = (s32[], s32[5,2]) tuple(chosen, spread)
  fence = (s32[], s32[5,2]) opt-barrier(pair)
  first = s32[] get-tuple-element(fence), index=0
  second = s32[5,2] get-tuple-element(fence), index=1
"""


def _names() -> list[str]:
    lines = [line.split() for line in EXPRESSIONS.strip().splitlines()]
    return [words[0] for words in lines if not words[2].startswith("(")]


@pytest.mark.parametrize("header", HEADERS)
def test_every_operation_gives_what_xla_gives(header: str, tmp_path: Path) -> None:
    names = _names()
    shapes = {line.split()[0]: line.split()[2] for line in EXPRESSIONS.strip().splitlines()}
    root = f"  ROOT out = ({', '.join(shapes[n] for n in names)}) tuple({', '.join(names)})"
    text = hlo(EXPRESSIONS + root, header=header)
    saved = tmp_path / "out.npz"
    run_values(text, "", outputs=str(saved))
    file = parse(EXPRESSIONS + root, header=header)
    values = RankValues(file.module)
    with np.load(saved) as given:
        for n, name in enumerate(names):
            mine = values.of(find(file.module, name))
            assert mine is not None, name
            np.testing.assert_array_equal(mine, given[f"o{n}"], err_msg=name)
    partitions, replicas = HEADERS[header]
    assert values.of(find(file.module, "p")).tolist() == list(partitions)  # type: ignore[union-attr]
    assert values.of(find(file.module, "r")).tolist() == list(replicas)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "  x = s32[] parameter(0)",
        "  q = s32[] parameter(0)\n  p = u32[] partition-id()\n  c = s32[] convert(p)\n  x = s32[] add(c, q)",
        "  p = u32[] partition-id()\n  f = f32[] convert(p)\n  x = s32[] convert(f)",
        "  p = u32[] partition-id()\n  m = u32[2] broadcast(p), dimensions={}\n  x = u32[2097152] iota(), "
        "iota_dimension=0",
        "  q = (s32[]) parameter(0)\n  x = s32[] get-tuple-element(q), index=0",
        "  c = s32[2,3]{0,1} constant({{1,2,3},{4,5,6}})\n  x = s32[6] bitcast(c)",
    ],
)
def test_what_depends_on_more_is_unknown(text: str) -> None:
    module = parse(text + "\n  ROOT out = () tuple()").module
    assert RankValues(module).of(find(module, "x")) is None


def test_long_chains_are_no_recursion() -> None:
    lines = ["  p = u32[] partition-id()", "  step0 = u32[] add(p, p)"]
    lines += [f"  step{n} = u32[] add(step{n - 1}, p)" for n in range(1, 5000)]
    module = parse("\n".join(lines) + "\n  ROOT out = () tuple()").module
    values: Any = RankValues(module).of(find(module, "step4999"))
    assert values.tolist() == [5001 * p for p in range(8)]
