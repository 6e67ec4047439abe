"""Pieces cut out of modules: XLA takes them, and they run by themselves."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.hlo.collectives import collectives
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.extract import extract, find_instruction, neighbourhood
from crossrank.hlo.io import ModuleFile, parse_module, to_text
from crossrank.hlo.module import Module
from crossrank.passes import pipeline
from tests.support import corpus_file, each_small_module, hlo, parse, reducer

LOOP = """
  p = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, p)
  loop = (s32[], f32[8]) while(start), condition=condition, body=body
  ROOT out = f32[8] get-tuple-element(loop), index=1"""
BODY = """
body {
  state = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[8] get-tuple-element(state), index=1
  twice = f32[8] add(x, x)
  ar = f32[8] all-reduce(twice), channel_id=3, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=add_f32,
    use_global_device_ids=true
  half = f32[8] negate(ar)
  ROOT result = (s32[], f32[8]) tuple(next, half)
}
condition {
  state.1 = (s32[], f32[8]) parameter(0)
  n.1 = s32[] get-tuple-element(state.1), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(n.1, three), direction=LT
}
"""


def written(module: Module) -> ModuleFile:
    """The module through XLA's printer and parser."""
    file = parse("  ROOT p = f32[] parameter(0)")
    file.module = module
    return parse_module(to_text(file).encode(), "piece.hlo")


def test_one_collective_out_of_a_loop_body() -> None:
    file = parse_module(hlo(LOOP, reducer(), BODY).encode(), "loop.hlo")
    ar = find_instruction(file.module, "%ar")
    piece = written(extract(file.module, [ar]))
    assert [i.opcode for i in piece.module.entry] == ["parameter", "all-reduce"]
    assert piece.module.world == 8
    ((_, info),) = collectives(piece.module)
    assert info.channel_id == 3
    assert str(info.groups) == "{{0,1},{2,3},{4,5},{6,7}}"
    assert run_module(piece, pipeline("default"), RunOptions(iters=0)).result["exact"]


def test_a_neighbourhood_has_what_it_needs_and_gives_what_others_took() -> None:
    file = parse_module(hlo(LOOP, reducer(), BODY).encode(), "loop.hlo")
    ar = find_instruction(file.module, "ar")
    piece = written(extract(file.module, neighbourhood(ar, 1)))
    assert sorted(i.opcode for i in piece.module.entry) == ["add", "all-reduce", "negate", "parameter"]
    wider = written(extract(file.module, neighbourhood(ar, 2)))
    assert wider.module.entry.root.opcode == "tuple"
    assert sorted(p.shape.dims for p in wider.module.entry.parameters) == [(), (), (8,)]  # the state, and %next
    assert file.module.entry.root.name == "out"  # the module itself stays


def test_constants_and_ids_come_along_and_tuples_are_taken_apart() -> None:
    file = parse("""
  id = u32[] partition-id()
  k = u32[] constant(3)
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  t = (f32[4], f32[4]) tuple(p, q)
  b = (f32[4], f32[4]) opt-barrier(t)
  sum = u32[] add(id, k)
  x = f32[4] get-tuple-element(b), index=1
  ROOT out = (f32[4], u32[]) tuple(x, sum)""")
    piece = written(extract(file.module, [find_instruction(file.module, "sum"), find_instruction(file.module, "b")]))
    assert len(piece.module.entry.parameters) == 2
    assert {i.opcode for i in piece.module.entry} >= {"partition-id", "constant", "tuple", "opt-barrier"} - {
        "opt-barrier"
    }
    assert run_module(piece, [], RunOptions(iters=0)).result["exact"]


def test_what_is_not_there() -> None:
    file = parse("  ROOT p = f32[] parameter(0)")
    with pytest.raises(InputError, match="no instruction %nothing"):
        find_instruction(file.module, "nothing")
    with pytest.raises(InputError, match="nothing to extract"):
        extract(file.module, [])
    with pytest.raises(InputError, match="%p is a parameter"):
        extract(file.module, [file.module.entry.root])


@each_small_module
def test_every_first_collective_of_the_corpus_can_be_cut_out(name: str) -> None:
    file = corpus_file(name)
    seen = set()
    for i, info in collectives(file.module):
        if info.asynchronous or i.opcode in seen or i.opcode in ("send", "recv"):
            continue
        seen.add(i.opcode)
        piece = written(extract(file.module, [i]))
        assert [x.opcode for x, _ in collectives(piece.module)] == [i.opcode]
