"""`aws_neuron_flip_all_gather_dynamic_slice`: cut first, gather then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from crossrank.hlo.collectives import describe, ranks_of
from crossrank.hlo.module import Instruction
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_movable, moved, put
from crossrank.passes import option, register


@register
@dataclass(frozen=True)
class FlipAllGatherDynamicSlice(Expander):
    """Cuts what each rank has before it is gathered, so that only what is wanted travels.

    Matches `dynamic-slice(all-gather(x), …)` of three or more dimensions of which more than one is cut, the gathered
    one not among them, and makes `all-gather(dynamic-slice(x, …))` with the channel id of the all-gather; the size on
    the gathered dimension is the local extent.

    Every rank of a group must cut at the same place, for each rank's part is cut by that rank now. What is computed
    from ids and constants is evaluated for every rank. The counters of loops are the same everywhere, and so are the
    scalar parameters of a module without replicas: nothing can partition them.

    Declines offsets that may differ between ranks, and a gather with other users or control dependencies. With
    `any_shape` arrays of fewer dimensions and cuts along a single one are taken too.
    """

    name: ClassVar[str] = "aws_neuron_flip_all_gather_dynamic_slice"
    opcodes: ClassVar[frozenset[str]] = frozenset({"dynamic-slice"})

    any_shape: bool = option(False, "also fewer than three dimensions, and cuts along one of them only")

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Flip one dynamic-slice."""
        gather, *starts = i.operands
        if gather.opcode != "all-gather":
            return None
        check_movable(gather)
        full, sizes = gather.shape.dims, list(i.shape.dims)
        dim = int(gather.proto.dimensions[0])
        cut = [d for d, size in enumerate(sizes) if size != full[d]]
        if dim in cut:
            raise Declined(f"it cuts the gathered dimension {dim}")
        if not self.any_shape:
            if len(full) < 3:
                raise Declined(f"it has {len(full)} dimensions, fewer than three")
            if len(cut) < 2:
                raise Declined(f"it cuts {len(cut)} dimensions, not more than one")
        known = _known(gather, fresh)
        for d in cut:
            if (odd := _differing(starts[d], known)) is not None:
                raise Declined(f"its offset on dimension {d} may differ between ranks, by %{odd.name}")
        x = gather.operands[0]
        sizes[dim] = x.shape.dims[dim]
        local = moved(i, [x, *starts], x.shape.with_dims(sizes))
        local.proto.dynamic_slice_sizes[:] = sizes
        put(moved(gather, [local], i.shape), i)
        return f"cut before %{gather.name}, which moves {i.shape.nbytes} bytes now, not {gather.shape.nbytes}"


# what gives equal results on all ranks where its operands are equal there
# fmt: off
_PURE = frozenset((
    "abs", "add", "and", "bitcast", "bitcast-convert", "broadcast", "clamp", "compare", "concatenate", "constant",
    "convert", "copy", "divide", "dynamic-slice", "iota", "maximum", "minimum", "multiply", "negate", "not", "or",
    "pad", "remainder", "reshape", "reverse", "select", "shift-left", "shift-right-arithmetic",
    "shift-right-logical", "sign", "slice", "subtract", "transpose", "xor",
))
# fmt: on
_Value = tuple[Instruction, int | None]
"""An instruction, or one element of the tuple that it gives."""


def _known(gather: Instruction, fresh: Fresh) -> Callable[[Instruction], bool | None]:
    """Tells whether a value is the same on all ranks of each group; None where ids alone do not decide it."""
    config = gather.module.config
    info = describe(gather)
    assert info is not None
    if not config.says_ranks:
        return lambda _: None
    try:
        groups = ranks_of(info, config)
    except ValueError as error:
        raise Declined(str(error)) from None

    def known(i: Instruction) -> bool | None:
        values = fresh.rank_values.of(i)
        return None if values is None else all((values[list(g)] == values[g[0]]).all() for g in groups)

    return known


def _differing(start: Instruction, known: Callable[[Instruction], bool | None]) -> Instruction | None:
    """Something from which a value is computed that may differ between ranks; None where there is nothing."""
    work: list[_Value] = [(start, None)]
    seen = set(work)
    while work:
        value = work.pop()
        alike = known(value[0]) if value[1] is None else None
        if alike:
            continue
        sources = _sources(*value) if alike is None else None
        if sources is None:
            return value[0]
        for source in sources:
            if source not in seen:
                seen.add(source)
                work.append(source)
    return None


def _sources(i: Instruction, element: int | None) -> Iterable[_Value] | None:
    """What a value is computed from; None where it may differ between ranks by itself, or nobody knows."""
    if i.opcode == "parameter":
        return _arguments(i, element)
    if i.opcode == "get-tuple-element" and element is None:
        return [(i.operands[0], int(i.proto.tuple_index))]
    if i.opcode == "opt-barrier":
        return [(i.operands[0], element)]
    if i.opcode == "tuple" and element is not None:
        return [(i.operands[element], None)]
    return [(o, None) for o in i.operands] if i.opcode in _PURE and element is None else None


def _arguments(parameter: Instruction, element: int | None) -> Iterable[_Value] | None:
    """What a parameter (or one element of it) may be: what callers give it, what the last turn of a loop left in it."""
    computation, module = parameter.computation, parameter.module
    if computation is module.entry:
        alike = not parameter.shape.dims and not parameter.shape.is_tuple and module.config.replica_count == 1
        return [] if alike else None
    found: list[_Value] = []
    for caller in computation.callers:
        if caller.opcode == "while":
            found += [(caller.operands[0], element), (caller.called[0].root, element)]
        elif caller.opcode == "call":
            found.append((caller.operands[int(parameter.proto.parameter_number)], element))
        else:
            return None
    return found
