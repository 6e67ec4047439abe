"""`aws_neuron_flip_all_gather_reshape`: reshape first, gather then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_movable, moved, put
from crossrank.passes import option, register


@register
@dataclass(frozen=True)
class FlipAllGatherReshape(Expander):
    """Reshapes what each rank has before it is gathered, and gathers on the dimension that the old one became.

    Matches `reshape(all-gather(x))` and makes `all-gather(reshape(x))` with the channel id of the all-gather. The
    gathered dimension must become exactly one output dimension, or merge into one together with at most one other
    dimension (those of extent 1 do not count), of which it is the major one. The local extent of that output dimension
    is its extent divided by the size of a group.

    Declines whatever would change the order of elements, and a gather with other users or control dependencies. With
    `any_reshape` it takes every reshape that keeps the order: where the gathered dimension is split so that the first
    of its parts can be cut for the ranks, or merges with several others of which it is the major one.
    """

    name: ClassVar[str] = "aws_neuron_flip_all_gather_reshape"
    opcodes: ClassVar[frozenset[str]] = frozenset({"reshape"})

    any_reshape: bool = option(False, "every reshape that keeps the order: splits, and merges of several dimensions")

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Flip one reshape."""
        gather = i.operands[0]
        if gather.opcode != "all-gather":
            return None
        check_movable(gather)
        x, dim = gather.operands[0], int(gather.proto.dimensions[0])
        gathered, dims = gather.shape.dims, list(i.shape.dims)
        if not gather.shape.count or gathered[dim] == 1:
            raise Declined("nothing is gathered, so that no output dimension stands for it")
        inputs, outputs = _block(gathered, dims, dim)
        if not self.any_reshape:
            if len(outputs) > 1:
                raise Declined(f"the gathered dimension becomes {len(outputs)} dimensions")
            if len(inputs) > 2:
                raise Declined(f"{len(inputs) - 1} other dimensions merge with the gathered one")
        size = gathered[dim] // x.shape.dims[dim]
        before = prod(gathered[:dim])
        place = next((d for d in outputs if prod(dims[:d]) == before), None)
        if place is None or dims[place] % size:
            raise Declined("the elements would come in another order")
        dims[place] //= size
        new = moved(gather, [moved(i, [x], x.shape.with_dims(dims))], i.shape)
        new.edit().dimensions[:] = [place]
        put(new, i)
        return f"reshaped before %{gather.name}, which gathers on dimension {place} now"


def _block(inputs: Sequence[int], outputs: Sequence[int], dim: int) -> tuple[list[int], list[int]]:
    """The smallest run of input dimensions around ``dim``, and of output dimensions that hold the same elements.

    Dimensions of extent 1 are left out of both; no extent is 0, and ``dim`` is none of extent 1.
    """
    ins = [d for d, extent in enumerate(inputs) if extent != 1]
    outs = [d for d, extent in enumerate(outputs) if extent != 1]
    block_in: list[int] = []
    block_out: list[int] = []
    left = right = 1  # elements of the two runs so far
    for d in ins:
        block_in.append(d)
        left *= inputs[d]
        while right < left:
            block_out.append(outs[0])
            right *= outputs[outs.pop(0)]
        if left == right:
            if dim in block_in:
                break
            block_in, block_out, left, right = [], [], 1, 1
    return block_in, block_out
