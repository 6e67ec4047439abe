"""`decompose-cc-ops`: a variadic collective becomes one for each of its elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.build import tuple_of
from crossrank.hlo.collectives import describe
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.rewrite import Declined, Expander, Fresh, hand_over_control, moved
from crossrank.passes import register


@register
@dataclass(frozen=True)
class DecomposeCcOps(Expander):
    """Splits variadic all-gathers, all-reduces and reduce-scatters into single ones.

    Matches those of the three in the entry computation whose result is a tuple. Makes one copy for each element, named
    after the collective with `-clone` behind it, and a tuple `cc-tuple0`, `cc-tuple1`, … of them in the old one's
    place. Groups, flags, channel id, metadata and control dependencies are those of the old one; the body of a
    reduction is made anew for elements of another type than its own.

    All copies have the channel id of the old one. What meets is told by the instruction, here and in XLA's own
    runtime for one process; `neuron_unique_channel_id_enforcer` makes ids unique for those who want them so.

    Declines a reduction of several types whose body does more than combine its two parameters.
    """

    name: ClassVar[str] = "decompose-cc-ops"
    opcodes: ClassVar[frozenset[str]] = frozenset({"all-gather", "all-reduce", "reduce-scatter"})

    def scope(self, module: Module) -> list[Computation]:
        """The entry computation."""
        return self.entry(module)

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Split one collective."""
        if not i.shape.is_tuple:
            return None
        info = describe(i)
        assert info is not None
        results = i.shape.elements
        if len(results) != len(i.operands):
            raise Declined(f"it has {len(i.operands)} operands and {len(results)} results")
        body = {p.shape.dtype for c in i.called for p in c.parameters}
        others = {r.dtype for r in results if body and body != {r.dtype}}
        if others and (not info.trivial_body or info.reduction is None):
            raise Declined("reduction body is not a binary op over its two parameters")
        copies: list[Instruction] = []
        for operand, result in zip(i.operands, results, strict=True):
            copy = moved(copies[0] if copies else i, [operand], result)  # the first one's shape is small
            if not copies:
                copy.edit().name = i.module.unique_name(f"{i.name}-clone")
            if info.reduction is not None and result.dtype in others:
                copy.set_called([fresh.bodies.get(info.reduction, result.dtype)])
            else:
                copy.set_called(i.called)
            copies.append(copy)
        hand_over_control(i, copies)
        whole = tuple_of(i.computation, copies, like=i)
        whole.edit().name = i.module.unique_name(f"cc-tuple{fresh.number()}")
        whole.take_place_of(i)
        return f"split into {len(copies)}"
