"""Every instruction of a run is executed from one place: calls are opened, shared bodies copied.

The ranks meet at an instruction. Were a body with a collective run from two places at once, two meetings would look
like one.
"""

from __future__ import annotations

from crossrank.hlo.collectives import kind_of
from crossrank.hlo.module import Computation, Module
from crossrank.hlo.passes.inline_calls import Inliner


def open_calls(module: Module) -> None:
    """Open every call, and give each while and conditional its own copies of bodies that hold collectives."""
    inliner = Inliner(module)
    for computation in module.reachable():
        for i in [i for i in computation.post_order() if i.opcode == "call"]:
            inliner.open(i)
    module.remove_unreachable()
    part_bodies(module)


def part_bodies(module: Module) -> None:
    """Give each instruction its own copies of those of the computations it calls that hold collectives."""
    speaking: dict[Computation, bool] = {}
    for c in module.computations:  # callees first
        speaking[c] = any(kind_of(i) is not None or any(speaking[b] for b in i.called) for i in c.post_order())
    taken: set[Computation] = set()
    work = [module.entry]
    while work:
        for i in work.pop().post_order():
            if not any(speaking[b] for b in i.called):
                continue
            bodies = []
            for body in i.called:
                if speaking[body] and body in taken:
                    copy = module.clone_computation(body)
                    speaking[copy] = True
                    body = copy
                taken.add(body)
                bodies.append(body)
            if list(i.called) != bodies:
                i.set_called(bodies)
            work.extend(b for b in bodies if speaking[b])
