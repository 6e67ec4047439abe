"""Who depends on whom."""

from __future__ import annotations

from crossrank.hlo.dependence import depends_on, independent, levels
from tests.support import find, parse

DIAMOND = """
  a = f32[] parameter(0)
  b = f32[] negate(a)
  c = f32[] negate(a)
  d = f32[] add(b, c)
  e = f32[] negate(a), control-predecessors={d}
  ROOT f = (f32[], f32[]) tuple(d, e)"""


def test_levels_count_members_on_the_longest_path() -> None:
    module = parse(DIAMOND).module
    a, b, c, d, e = (find(module, n) for n in "abcde")
    assert levels([b, c]) == {b: 1, c: 1}
    assert levels([a, d, e]) == {a: 1, d: 2, e: 3}
    assert levels([a, b, c, d]) == {a: 1, b: 2, c: 2, d: 3}
    assert levels([]) == {}


def test_independence_sees_control_dependencies() -> None:
    module = parse(DIAMOND).module
    a, b, c, d, e = (find(module, n) for n in "abcde")
    assert independent([b, c])
    assert not independent([b, d])
    assert not independent([b, e])
    assert depends_on(e, [b])
    assert depends_on(b, [b])
    assert not depends_on(b, [c, d, e])
    assert depends_on(d, [a])
