"""The passes together: what each requires is made before it, and all of it still holds at the end."""

from __future__ import annotations

import pytest

from crossrank.passes import all_passes, pipeline
from crossrank.program.program import Program
from crossrank.program.program_pass import ProgramPass
from crossrank.program.properties import PROPERTIES

from .texts import program, run

PROGRAM = (
    "@fill(%x: !t (In), %y: !t (Out)) -> (!t) KERNEL { %c0 = arith.constant 0 : index "
    "%tile = program.load %x[%c0, %c0] valid[] : !t -> !tile %r = program.store %tile, %y[%c0, %c0] : !tile, !t "
    "func.return %r : !t }",
    "@k(%w: !w (InOut), %s: !s (InOut), %y: !t (Out)) -> (!w, !t) KERNEL { "
    '%r = program.allreduce %w signal %s : !s op "Sum" mode "mesh" : !w func.return %r, %y : !w, !t }',
    "@chip(%w: !w (InOut), %s: !s (InOut), %y: !t (Out), %n: index (In)) -> (!t) CHIP { "
    "%c0 = arith.constant 0 : index %c4 = arith.constant 4 : index %c64 = arith.constant 64 : index "
    "%v, %z, %t = program.call @k(%w, %s, %y) core_num %n : (!w, !s, !t) -> (!w, !t) "
    '%u = program.allreduce %v signal %s : !s op "Sum" mode "mesh" : !w '
    "%out = program.create_tensor %c4, %c64 : !t %part = program.create_tensor %c4, %c64 : !t "
    "%full, %g = program.call @fill(%z, %part) : (!t, !t) -> (!t) "
    "%both = program.assemble %out, %full[%c0, %c0] : !t, !t func.return %z : !t }",
    "@host(%y: !t (Out)) -> (!t) HOST { %c0 = arith.constant 0 : index %c1 = arith.constant 1 : index "
    "%c4 = arith.constant 4 : index %c64 = arith.constant 64 : index %c1024 = arith.constant 1024 : index "
    '%bw = program.alloc_window_buffer "data", %c1024 %bs = program.alloc_window_buffer "signal", %c1024 '
    "%w = program.window %bw[%c4, %c64] : !w %s = program.window %bs[%c4, %c1] : !s %n = program.world_size "
    "scf.for %i = %c0 to %n step %c1 { "
    "%z, %t = program.call @chip(%w, %s, %y, %c4) device %i : (!w, !s, !t, index) -> (!t) } "
    '%v = program.allreduce %w op "Sum" mode "mesh" : !w func.return %y : !t }',
)


def test_nothing_is_left_to_do() -> None:
    subject = program(*PROGRAM)
    assert all(result.changed for result in run(subject, _text()))
    assert set(subject.properties) == set(PROPERTIES)
    assert not any(result.changed for result in run(subject, _text()))


def _text() -> str:
    return ",".join(p.name for p in pipeline("program"))


KNOWN = {name: cls for name, cls in all_passes(Program.TITLE).items() if issubclass(cls, ProgramPass)}


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_pass_requires_is_made_by_another(name: str) -> None:
    makers = [PROPERTIES[required].made_by for required in KNOWN[name].requires]
    for maker, required in zip(makers, KNOWN[name].requires, strict=True):
        assert required in KNOWN[maker].produces
    order = [p.name for p in pipeline("program")]
    assert name not in order or all(order.index(maker) < order.index(name) for maker in makers)
