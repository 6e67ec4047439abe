"""`opt-barrier-removal`: what a barrier holds goes straight to its users."""

from __future__ import annotations

from ...support import opcodes, parse, run_values
from .rewrites import Lines, declined, rewritten

NAME = "opt-barrier-removal"
TWO = (
    "  p = f32[8] parameter(0)\n  q = f32[3] parameter(1)\n  t = (f32[8], f32[3]) tuple(p, q)\n"
    "  b = (f32[8], f32[3]) opt-barrier(t)\n"
)


def test_elements_go_straight_to_their_users() -> None:
    tail = (
        "  x = f32[8] get-tuple-element(b), index=0\n  y = f32[3] get-tuple-element(b), index=1\n"
        "  m = f32[8] negate(x)\n  ROOT r = (f32[3], f32[8], f32[8]) tuple(y, x, m)"
    )
    module = rewritten(parse(TWO + tail), NAME)
    assert opcodes(module) == ["parameter", "parameter", "negate", "tuple"]
    assert [o.name for o in module.entry.root.operands] == ["q", "p", "m"]


def test_barriers_behind_barriers() -> None:
    tail = (
        "  x = f32[8] get-tuple-element(b), index=0\n  u = (f32[8]) tuple(x)\n  c = (f32[8]) opt-barrier(u)\n"
        "  y = f32[8] get-tuple-element(c), index=0\n  ROOT r = f32[8] negate(y)"
    )
    assert opcodes(rewritten(parse(TWO + tail), NAME)) == ["parameter", "parameter", "negate"]


def test_whole_tuples_and_arrays() -> None:
    module = rewritten(parse(TWO.replace("  b =", "  ROOT b =")), NAME)
    assert (module.entry.root.name, module.entry.root.opcode) == ("t", "tuple")
    array = parse("  p = f32[8] parameter(0)\n  b = f32[8] opt-barrier(p)\n  ROOT r = f32[8] negate(b)")
    assert opcodes(rewritten(array, NAME)) == ["parameter", "negate"]
    given = parse(
        "  p = (f32[8], f32[3]) parameter(0)\n  b = (f32[8], f32[3]) opt-barrier(p)\n"
        "  ROOT r = f32[3] get-tuple-element(b), index=1"
    )
    assert opcodes(rewritten(given, NAME)) == ["parameter", "get-tuple-element"]


def test_control_dependencies() -> None:
    held = parse(TWO + "  ROOT r = f32[8] negate(p), control-predecessors={b}")
    assert declined(held.module, NAME) == ["%b has control dependencies"]
    element = parse(
        TWO + "  x = f32[8] get-tuple-element(b), index=0\n  ROOT r = f32[8] negate(x), control-predecessors={x}"
    )
    assert opcodes(rewritten(element, NAME)) == ["parameter", "parameter", "tuple", "get-tuple-element", "negate"]


def test_values() -> None:
    lines = Lines()
    p, q = lines.parameter("f32[8]"), lines.parameter("f32[8]")
    t = lines.add("(f32[8], f32[8])", f"tuple({p}, {q})")
    b = lines.add("(f32[8], f32[8])", f"opt-barrier({t})")
    x, y = (lines.add("f32[8]", f"get-tuple-element({b}), index={k}") for k in (0, 1))
    c = lines.add("f32[8]", f"opt-barrier({x})")
    lines.add("f32[8]", f"subtract({c}, {y})", output=True)
    assert run_values(lines.text(), NAME).result["exact"]
