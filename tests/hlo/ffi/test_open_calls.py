"""Every collective is run from one place."""

from __future__ import annotations

from collections import Counter

from crossrank.hlo.collectives import kind_of
from crossrank.hlo.ffi.open_calls import open_calls
from crossrank.hlo.module import Module

from ...support import corpus_file, each_small_module, needs_corpus, opcodes, parse, reducer, reread

SPEAK = """
speak {
  x = f32[8] parameter(0)
  ROOT s = f32[8] all-reduce(x), replica_groups={}, to_apply=add_f32
}
"""
SILENT = "silent {\n  x = f32[8] parameter(0)\n  ROOT n = f32[8] negate(x)\n}"
COND = "cond {\n  x = f32[8] parameter(0)\n  ROOT c = pred[] constant(false)\n}"
PARAMETER = "  p = f32[8] parameter(0)\n"


def check(module: Module) -> None:
    """No call is left, and a body that speaks has one caller."""
    assert "call" not in opcodes(module)
    for c in module.computations:
        if any(kind_of(i) is not None for i in c):
            assert sum(list(i.called).count(c) for i in c.callers) == (0 if c is module.entry else 1)


def test_calls_are_opened() -> None:
    file = parse(
        f"{PARAMETER}  a = f32[8] call(p), to_apply=speak\n  ROOT b = f32[8] call(a), to_apply=speak", reducer(), SPEAK
    )
    open_calls(file.module)
    check(file.module)
    assert opcodes(reread(file).module).count("all-reduce") == 2


def test_a_loop_body_that_two_loops_share_is_copied_where_it_speaks() -> None:
    loops = "".join(f"  {a} = f32[8] while({b}), condition=cond, body=speak\n" for a, b in (("w", "p"), ("v", "w")))
    file = parse(f"{PARAMETER}{loops}  ROOT r = f32[8] copy(v)", reducer(), SPEAK, COND)
    open_calls(file.module)
    check(file.module)
    assert Counter(opcodes(reread(file).module))["all-reduce"] == 2
    assert [c.name for c in file.module.computations].count("cond") == 1


def test_silent_bodies_stay_shared() -> None:
    loops = "".join(f"  {a} = f32[8] while({b}), condition=cond, body=silent\n" for a, b in (("w", "p"), ("v", "w")))
    file = parse(f"{PARAMETER}{loops}  ROOT r = f32[8] copy(v)", SILENT, COND)
    open_calls(file.module)
    assert [c.name for c in file.module.computations].count("silent") == 1
    assert len(file.module.computations) == 3


def test_both_branches_of_a_conditional_may_share_a_body() -> None:
    file = parse(
        f"  q = pred[] parameter(1)\n{PARAMETER}"
        "  ROOT r = f32[8] conditional(q, p, p), true_computation=speak, false_computation=speak",
        reducer(),
        SPEAK,
    )
    open_calls(file.module)
    check(reread(file).module)
    assert len(set(file.module.entry.root.called)) == 2


def test_loops_in_shared_loops() -> None:
    outer = "outer {\n  x = f32[8] parameter(0)\n  ROOT w = f32[8] while(x), condition=cond, body=speak\n}"
    loops = "".join(f"  {a} = f32[8] while({b}), condition=cond, body=outer\n" for a, b in (("w", "p"), ("v", "w")))
    file = parse(f"{PARAMETER}{loops}  ROOT r = f32[8] copy(v)", reducer(), SPEAK, COND, outer)
    open_calls(file.module)
    check(reread(file).module)
    assert opcodes(file.module).count("all-reduce") == 2


@needs_corpus
@each_small_module
def test_corpus(name: str) -> None:
    module = corpus_file(name).module
    open_calls(module)
    check(module)
