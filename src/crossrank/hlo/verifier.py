"""What XLA's own checks let through: collectives whose shapes, groups or pairs cannot be.

jaxlib parses and prints modules in which an all-gather has the wrong extent or a rank stands in two groups; it is at
compile time, or at run time, that these go wrong. `verify` finds them before.
"""

from __future__ import annotations

from collections.abc import Iterator

from crossrank.collective.groups import check_groups
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.errors import InputError
from crossrank.findings import Finding
from crossrank.hlo.collectives import (
    CollectiveInfo,
    describe,
    kind_of,
    named_shape,
    pairs_of,
    ranks_of,
    result_shape,
)
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import FAMILY, element_type, parse_target


def verify(module: Module) -> list[Finding]:
    """Everything that is wrong with the collectives of a module, in order."""
    findings = []
    for i in module.instructions():
        if i.opcode == "custom-call" and (problem := check_target(i)):
            findings.append(Finding("target", f"%{i.name}", problem, _REMEDIES["target"], i.where))
        if kind_of(i) is None:
            continue
        try:
            info = describe(i)
        except InputError as error:
            findings.append(Finding("config", f"%{i.name}", error.what.removeprefix(f"%{i.name}: "), where=i.where))
            continue
        assert info is not None
        for kind, message in _check(i, info, module.config):
            remedy = _REMEDIES.get(kind, "")
            if kind in ("groups", "pairs", "shape") and not module.config.says_ranks:
                remedy = "the file does not say how many ranks it has: give --ranks N"
            findings.append(Finding(kind, f"%{i.name}", message, remedy, i.where))
    return findings


_REMEDIES = {
    "target": "`crossrank passes convert-collectives-to-custom-call` tells how targets are named",
    "groups": "every rank stands in exactly one group; `replica_groups={}` is everyone",
    "pairs": "every rank is the source of at most one pair, and the target of at most one",
    "mode": "give it a channel id, or drop use_global_device_ids",
}


def check_target(i: Instruction) -> str:
    """What is wrong with the name of a custom-call of the contract's family; the empty string where nothing is."""
    name = i.proto.custom_call_target
    if not name.startswith(FAMILY):
        return ""
    target = parse_target(name)
    if target is None:
        return f"{name} is no target of the naming contract"
    actual = element_type(named_shape(i))
    if target.dtype is not None and target.dtype is not actual:
        return f"{name} contradicts its result, which is {actual.name if actual else 'of several types'}"
    if target.kind.reduces and target.reduce_op is None and b"reduce=" not in i.proto.backend_config:
        return f"{name} has no reduce= in its config, so that nobody knows what it reduces with"
    return ""


def _check(i: Instruction, info: CollectiveInfo, config: ModuleConfig) -> Iterator[tuple[str, str]]:
    if info.mode is None:
        yield "mode", "Invalid combination of has_channel_id and use_global_device_ids"
        return
    world = config.replica_count * config.num_partitions
    groups: tuple[tuple[int, ...], ...] = ()
    if info.groups is not None:
        try:
            groups = ranks_of(info, config)
        except ValueError as error:
            yield "groups", str(error)
            return
        problems = check_groups(groups, world)
        if info.kind is Kind.COLLECTIVE_BROADCAST:
            problems = [p for p in problems if "in no group" not in p]  # they get zeros
        for problem in problems:
            yield "groups", f"its groups {_short(str(info.groups))} are wrong: {problem}"
        if problems:
            return
    elif info.pairs is not None:
        try:
            pairs = SourceTargetPairs(pairs_of(info, config))
        except ValueError as error:
            yield "pairs", f"its pairs {_short(str(info.pairs))} are wrong: {error}"
            return
        for problem in pairs.check(world):
            yield "pairs", f"its pairs {_short(str(info.pairs))} are wrong: {problem}"
    if info.reduction is not None and info.trivial_body and not info.asynchronous:
        op = info.reduce_op
        for leaf in i.shape.leaves():
            if op is not None and leaf.is_array and not ReduceOp(op).valid_for(leaf.dtype):
                yield "reduction", f"{op} cannot reduce {leaf.dtype.name}"
                return
    if info.kind.reduces and i.called:
        parameters = i.called[0].parameters
        if len(parameters) != 2 and len(parameters) != 2 * len(i.operands):
            yield "reduction", f"its reduction body %{i.called[0].name} takes {len(parameters)} parameters, not 2"
        elif any(p.shape.dims for p in parameters):
            yield "reduction", f"its reduction body %{i.called[0].name} takes arrays, not scalars"
    if not info.asynchronous:
        yield from (("shape", m) for m in _check_shapes(i, info, groups))


def _check_shapes(i: Instruction, info: CollectiveInfo, groups: tuple[tuple[int, ...], ...]) -> Iterator[str]:
    operands = [o.shape for o in i.operands]
    shape = result_shape(i)
    results = list(shape.elements) if shape.is_tuple else [shape]
    sizes = {len(g) for g in groups}
    if info.kind in (Kind.SEND, Kind.RECV):
        return
    if info.kind is Kind.SEND_RECV:
        operands, results = ([s for s in shapes if s.is_array] for shapes in (operands, results))
    if info.kind is Kind.RAGGED_ALL_TO_ALL:
        yield from _check_tables(operands, max(sizes, default=1))
        operands, results = operands[1:2], results[:1]
    if info.kind is Kind.ALL_TO_ALL and info.dim is None:
        if not shape.is_tuple:
            yield "it has no dimension"
            return
        if sizes != {len(operands)}:
            yield f"it has {len(operands)} operands, and groups of {', '.join(map(str, sorted(sizes)))}"
            return
        if any(not o.same_extents(operands[0]) for o in operands):
            yield "its operands differ in shape, and each rank gets one from every other"
            return
    if info.kind is Kind.COLLECTIVE_PERMUTE and len(operands) != len(results):
        return  # in-place forms have offsets behind the data
    if len(operands) != len(results):
        yield f"it has {len(operands)} operands and {len(results)} results"
        return
    needs_dim = info.kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
    if needs_dim and info.dim is None:
        yield "it has no dimension"
        return
    if len(sizes) > 1 and info.kind not in (Kind.ALL_REDUCE, Kind.COLLECTIVE_BROADCAST):
        listed = ", ".join(map(str, sorted(sizes)))
        yield f"its groups have different sizes ({listed}), so its shape cannot hold for all of them"
        return
    size = max(sizes, default=1)
    for operand, result in zip(operands, results, strict=True):
        if operand.dtype is not result.dtype:
            yield f"it makes {result.dtype.name} of {operand.dtype.name}"
            continue
        yield from _check_dims(info, operand, result, size)


def _check_tables(operands: list[Shape], size: int) -> Iterator[str]:
    """The offsets and sizes of a ragged exchange: one entry, or as many, for each rank of the group."""
    if len(operands) != 6:
        yield f"it has {len(operands)} operands, and a ragged-all-to-all has six"
        return
    tables = operands[2:]
    if any(not t.dtype.is_integer or len(t.dims) != 1 or t.dims != tables[0].dims for t in tables):
        yield "its offsets and sizes are no lists of integers, all of one length"
    elif tables[0].count % size:
        yield f"its offsets and sizes have {tables[0].count} entries, which groups of {size} cannot share"
    if operands[0].dims[1:] != operands[1].dims[1:] or not operands[0].dims:
        yield f"rows of {operands[0].without_layout()} are no rows of {operands[1].without_layout()}"


def _check_dims(info: CollectiveInfo, operand: Shape, result: Shape, size: int) -> Iterator[str]:
    expected = list(operand.dims)
    if info.dim is not None:
        if not 0 <= info.dim < len(expected):
            yield f"its dimension {info.dim} does not exist in {operand}"
            return
        if info.kind is Kind.ALL_GATHER:
            expected[info.dim] *= size
        elif info.kind is Kind.REDUCE_SCATTER:
            if expected[info.dim] % size:
                yield f"dimension {info.dim} of {operand} cannot be cut into {size} equal parts, one for each rank"
                return
            expected[info.dim] //= size
        elif info.kind is Kind.ALL_TO_ALL and expected[info.dim] % size:
            yield f"dimension {info.dim} of {operand} cannot be cut into {size} equal parts, one for each rank"
            return
    if tuple(expected) != result.dims:
        wanted = operand.with_dims(expected)
        yield (
            f"over groups of {size} it should make {wanted.without_layout()} of {operand.without_layout()}, "
            f"not {result.without_layout()}"
        )


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
