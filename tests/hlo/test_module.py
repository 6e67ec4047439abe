"""Editing keeps def-use, control dependencies, the call graph, ids and schedules true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.dtypes import F32
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.schema import ModuleProto
from crossrank.hlo.shape import Shape
from crossrank.hlo.xla import check_proto, proto_to_text

from ..support import find, parse, reread

SHAPE = Shape(F32, (8,), (0,))
BASE = """
  p = f32[8] parameter(0)
  a = f32[8] add(p, p)
  b = f32[8] multiply(a, p), control-predecessors={a}
  k = f32[8] call(b), to_apply=body
  ROOT r = f32[8] add(k, a)"""
BODY = """
body {
  x = f32[8] parameter(0)
  y = f32[8] negate(x)
  ROOT z = f32[8] add(y, x), control-predecessors={y}
}
"""


def base(header: str = "num_partitions=8") -> Module:
    return parse(BASE, BODY, header=header).module


def by_names(module: Module) -> dict[str, tuple]:
    """What each node says, by names."""
    return {
        i.name: (
            i.opcode,
            i.computation.name,
            [o.name for o in i.operands],
            {u.name for u in i.users},
            [p.name for p in i.control_predecessors],
            {s.name for s in i.control_successors},
            [c.name for c in i.called],
            i.is_root,
        )
        for i in module.instructions()
    }


def check(module: Module) -> None:
    """The nodes agree with what is written, and XLA takes it."""
    data = module.serialize()
    check_proto(data)
    again = Module(data, module.config)
    assert by_names(again) == by_names(module)
    for c in module.computations:
        order = c.post_order()
        place = {i: n for n, i in enumerate(order)}
        assert len(place) == len(order)
        assert all(place[n] < place[i] for i in order for n in (*i.operands, *i.control_predecessors))
        ids = sorted(i.id & 0xFFFFFFFF for i in order)
        assert len(set(ids)) == len(ids)
        assert ids[-1] < 200  # dense: XLA's tables are as long as the largest
        callers = {i.name for x in module.computations for i in x for k in i.called if k is c}
        assert {i.name for i in c.callers} == callers
    proto = ModuleProto.FromString(data)
    if proto.HasField("schedule"):
        for c in proto.computations:
            if c.id in proto.schedule.sequences:
                assert sorted(proto.schedule.sequences[c.id].instruction_ids) == sorted(i.id for i in c.instructions)


def reaches(start: Instruction, goal: Instruction) -> bool:
    """Whether ``goal`` waits for ``start``."""
    work, seen = [goal], set()
    while work:
        i = work.pop()
        if i is start:
            return True
        if i not in seen:
            seen.add(i)
            work += [*i.operands, *i.control_predecessors]
    return False


def edit(module: Module, data: st.DataObject) -> None:
    """One random edit."""

    def pick(items):
        return data.draw(st.sampled_from(list(items)))

    computation: Computation = pick(module.computations)
    nodes = computation.post_order()
    i = pick(nodes)
    what = data.draw(st.integers(0, 9))
    if what == 0:
        computation.add("add", SHAPE, [pick(nodes), pick(nodes)], name=pick(["n", "n.1", "a"]))
    elif what == 1:
        i.replace_all_uses_with(computation.add("negate", SHAPE, [i]))
        new = computation.post_order()[-1]
        assert new
    elif what == 2 and not i.users and not i.is_root and i.opcode != "parameter":
        computation.remove(i)
    elif what == 3:
        computation.remove_dead([i])
    elif what == 4:
        other = pick(nodes)
        if not reaches(i, other):
            i.set_control_predecessors([*i.control_predecessors, other])
    elif what == 5 and i.opcode == "call" and computation is not module.entry:
        i.set_called([i.called[0]])
    elif what == 6 and len(module.computations) < 5:
        copy = module.clone_computation(pick([c for c in module.computations if c is not module.entry]))
        call = next((x for x in module.entry if x.opcode == "call"), None)
        if call is not None and data.draw(st.booleans()):
            call.set_called([copy])
    elif what == 7:
        module.remove_unreachable()
    elif what == 8 and i.operands:
        old, new = pick(i.operands), pick(nodes)
        if not reaches(i, new):
            i.replace_operand(old, new)
    elif what == 9 and i.opcode in ("add", "negate", "multiply"):
        new = computation.add("multiply", SHAPE, [i.operands[0], i.operands[-1]])
        new.take_place_of(i)


@given(st.data(), st.sampled_from(["num_partitions=8", "is_scheduled=true, num_partitions=8"]))
def test_random_edits(data: st.DataObject, header: str) -> None:
    module = base(header)
    for _ in range(data.draw(st.integers(1, 12))):
        edit(module, data)
    check(module)
    copy = module.copy()
    assert by_names(copy) == by_names(module)
    check(copy)


def test_untouched_is_written_as_it_came() -> None:
    module = base()
    data = module.serialize()
    assert not module.modified
    assert Module(data, module.config).serialize() == data


def test_copies_are_independent() -> None:
    module = base()
    before = by_names(module)
    copy = module.copy()
    find(copy, "a").set_opcode("subtract")
    find(copy, "r").set_frontend_attribute("k", "v")
    copy.entry.add("negate", SHAPE, [find(copy, "p")])
    assert by_names(module) == before
    assert not module.modified
    assert [i.origin for i in module.entry] == [i.origin for i in copy.entry][: len(module.entry.post_order())]


def test_post_order_moves_nothing_that_needs_no_moving() -> None:
    module = base()
    before = [i.name for i in module.entry]
    p, r = find(module, "p"), find(module, "r")
    new = module.entry.add("negate", SHAPE, [p])
    r.replace_operand(find(module, "a"), new)
    after = [i.name for i in module.entry]
    assert [n for n in after if n != "negate"] == before
    assert after.index("negate") == after.index("r") - 1


def test_post_order_tells_of_a_cycle() -> None:
    module = base()
    a, b = find(module, "a"), find(module, "b")
    a.set_control_predecessors([b])
    with pytest.raises(ValueError, match=r"%\w+ and %\w+ wait for each other"):
        module.entry.post_order()


def test_post_order_is_linear() -> None:
    """Counted, not timed: each dependency is asked for a constant number of times."""

    class Counted(list):
        asked = 0

        def __iter__(self):
            for item in super().__iter__():
                Counted.asked += 1
                yield item

    module = base()
    last = find(module, "p")
    for _ in range(3000):
        last = module.entry.add("add", SHAPE, [last, last])
    module.entry.set_root(last)
    module.entry.instructions.reverse()
    for i in module.entry.instructions:
        i.operands = Counted(i.operands)
    module.entry.post_order()
    assert Counted.asked <= 2 * 2 * 3010


def test_names_are_unique() -> None:
    module = base()
    assert [module.unique_name(n) for n in ("new", "new", "a", "a", "a.1", "body")] == [
        "new",
        "new.1",
        "a.1",
        "a.2",
        "a.3",
        "body.1",
    ]


def test_remove_refuses_what_is_in_use() -> None:
    module = base()
    for name in ("a", "r"):
        with pytest.raises(ValueError, match=f"%{name} is still in use"):
            module.entry.remove(find(module, name))


def test_remove_keeps_what_it_ordered() -> None:
    module = base()
    a, b = find(module, "a"), find(module, "b")
    middle = module.entry.add("negate", SHAPE, [a])
    middle.set_control_predecessors([a])
    b.set_control_predecessors([middle])
    module.entry.remove(middle)
    assert b.control_predecessors == (a,)
    check(module)


def test_remove_dead_takes_operands_too_but_no_parameters() -> None:
    module = base()
    k, r, a = find(module, "k"), find(module, "r"), find(module, "a")
    r.replace_operand(k, a)
    module.entry.remove_dead([k])
    assert [i.name for i in module.entry] == ["p", "a", "r"]
    module.remove_unreachable()
    assert [c.name for c in module.computations] == ["main"]
    check(module)


def test_clone_computation() -> None:
    module = base()
    body = find(module, "x").computation
    copy = module.clone_computation(body)
    assert copy.name == "body.1"
    assert [i.opcode for i in copy] == [i.opcode for i in body]
    assert [i.origin for i in copy] == [i.origin for i in body]
    assert find(module, "z.1").control_predecessors == (find(module, "y.1"),)
    find(module, "k").set_called([copy])
    module.remove_unreachable()
    check(module)
    assert "to_apply=%body.1" in proto_to_text(module.serialize())


def test_a_new_instruction_takes_metadata_and_origin() -> None:
    module = parse(
        '  p = f32[8] parameter(0), metadata={op_name="n" source_file="f.py" source_line=7}\n'
        "  ROOT r = f32[8] negate(p)"
    )
    p = find(module.module, "p")
    assert p.where == "f.py:7"
    new = module.module.entry.add("negate", SHAPE, [p], like=p)
    assert (new.where, new.origin) == ("f.py:7", p.id)


def test_schedule_runs_new_instructions_late() -> None:
    module = base("is_scheduled=true, num_partitions=8")
    new = module.entry.add("negate", SHAPE, [find(module, "p")])
    find(module, "r").replace_operand(find(module, "a"), new)
    module.serialize()
    sequence = list(module.proto.schedule.sequences[module.entry.id].instruction_ids)
    names = {i.id: i.name for i in module.entry}
    assert [names[k] for k in sequence] == ["p", "a", "b", "k", "negate", "r"]
    check(module)


def test_next_channel_id() -> None:
    file = parse(
        "  p = f32[8] parameter(0)\n  ROOT r = f32[8] collective-permute(p), channel_id=41, source_target_pairs={}"
    )
    assert file.module.next_channel_id() == 42
    assert base().next_channel_id() == 1


def test_frontend_attributes() -> None:
    file = parse("  p = f32[8] parameter(0)\n  ROOT r = f32[8] negate(p)")
    r = find(file.module, "r")
    r.set_frontend_attribute("k", 'a "quoted" value')
    assert find(reread(file).module, "r").frontend_attributes == {"k": 'a "quoted" value'}
    r.set_frontend_attribute("k", None)
    r.set_frontend_attribute("never", None)
    assert find(reread(file).module, "r").frontend_attributes == {}
