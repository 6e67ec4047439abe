"""`inline-calls`: open every `call`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.passes import register
from crossrank.remarks import Remarks


@register
@dataclass(frozen=True)
class InlineCalls(HloPass):
    """Puts the body of each `call` in the place of the call.

    Matches every `call` in every computation, callees first, so that nested calls end up in the caller too. JAX keeps
    the bodies of shard_map behind calls, and passes that look at the entry computation would not see them.

    Makes copies of the callee's instructions over the call's operands. What ran before the call by a control dependency
    runs before all of the body, what ran after it runs after all of it. Sends (and recvs) on one channel that come from
    several calls are put in the order of the calls, so that it stays certain who meets whom. Bodies that nothing calls
    any more are dropped.

    Declines calls that ask for another place to run (frontend attribute `_xla_compute_type`).
    """

    name: ClassVar[str] = "inline-calls"

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Open all calls; returns whether there was one."""
        changed = False
        inliner = Inliner(module)
        for computation in module.reachable():
            if not self.covers(computation):
                continue
            calls = [i for i in computation.post_order() if i.opcode == "call"]
            for call in calls:
                place = call.frontend_attributes.get("_xla_compute_type")
                if place:
                    remarks.declined(f"%{call.name}", f"it runs elsewhere (_xla_compute_type={place})", call.where)
                    continue
                callee = call.called[0]
                remarks.done(f"%{call.name}", f"opened %{callee.name} in %{computation.name}", call.where)
                inliner.open(call)
                changed = True
        if changed:
            module.remove_unreachable()
        return changed


class Inliner:
    """Opens calls one after the other; knows how often each computation is called, so that the last call may move it.

    Args:
        module: whose calls will be opened, callees before their callers.
    """

    def __init__(self, module: Module) -> None:
        self._sites = Counter(c for i in module.instructions() for c in i.called)
        self._halves: dict[tuple[Computation, str, int], list[Instruction]] = {}  # of the body opened last

    def open(self, call: Instruction) -> None:
        """Replace one `call` by its body: the body itself where nothing else calls it, else a copy."""
        callee, caller = call.called[0], call.computation
        if self._sites[callee] == 1:
            body = [i for i in callee.post_order() if i.opcode != "parameter"]
            root = caller.move_in(callee, call.operands)
        else:
            new = copy_body(callee, caller, call.operands)
            root = new[callee.root]
            body = [n for i, n in new.items() if i.opcode != "parameter"]
            self._sites.update(c for n in body for c in n.called)
        self._sites[callee] -= 1
        self._order_halves(caller, body)
        _hand_over(call, body, root)

    def _order_halves(self, caller: Computation, body: list[Instruction]) -> None:
        """Let sends (recvs) of a body wait for those of the bodies before it that are on the same channel.

        Calls are opened operands first, so that nothing comes to wait for itself.
        """
        halves: dict[tuple[Computation, str, int], list[Instruction]] = {}
        for i in body:
            if i.opcode in ("send", "recv"):
                halves.setdefault((caller, i.opcode, int(i.proto.channel_id)), []).append(i)
        for key, some in halves.items():
            for i in some:
                i.set_control_predecessors((*i.control_predecessors, *self._halves.get(key, ())))
        self._halves |= halves


def _hand_over(call: Instruction, body: list[Instruction], root: Instruction) -> None:
    """Let the body stand for the call: uses and control dependencies."""
    if call.control_predecessors:
        inside = set(body)
        for n in body:
            if not any(o in inside for o in n.operands) and not any(p in inside for p in n.control_predecessors):
                n.set_control_predecessors((*n.control_predecessors, *call.control_predecessors))
    if call.control_successors:
        inside = set(body)
        # a call that only hands on an operand leaves nothing behind but what it waited for
        last = [n for n in body if not any(u in inside for u in n.users)] or list(call.control_predecessors)
        for s in call.control_successors:
            s.set_control_predecessors((*(p for p in s.control_predecessors if p is not call), *last))
    call.replace_all_uses_with(root)
    call.set_control_predecessors(())
    call.computation.remove(call)


def copy_body(callee: Computation, into: Computation, operands: list[Instruction]) -> dict[Instruction, Instruction]:
    """Copy the instructions of ``callee`` into another computation, its parameters replaced by ``operands``."""
    new: dict[Instruction, Instruction] = {}
    for i in callee.post_order():
        if i.opcode == "parameter":
            new[i] = operands[int(i.proto.parameter_number)]
            continue
        new[i] = into.clone_in(i, [new[o] for o in i.operands])
        if i.control_predecessors:
            new[i].set_control_predecessors(new[p] for p in i.control_predecessors if p.opcode != "parameter")
    return new
