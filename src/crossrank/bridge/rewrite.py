"""A module in the middle of XLA:CPU's compiler: its collectives become calls of a backend, the rest stays as it is.

By then XLA has combined, widened and fused, has given every value a layout, and has put in the copies that loops need.
So nothing may be added that shares a buffer with anything it did not share before, and what a handler gets must lie
row-major:

* a collective whose operands and results lie in one order, row-major or not, is said over the buffers as they lie
  (a bitcast before and after, which cost nothing), along the dimension as it lies;
* where an operand lies otherwise than its result, it is copied into the result's order first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from crossrank.collective.dtypes import U32
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.build import ReductionBodies, binary, constant, element, tuple_of
from crossrank.hlo.collectives import CollectiveInfo, describe, kind_of
from crossrank.hlo.config import ModuleConfig
from crossrank.hlo.execute.backends import KernelBackend, prepare
from crossrank.hlo.ffi.call import Call, call_of
from crossrank.hlo.ffi.custom_calls import give
from crossrank.hlo.ffi.open_calls import part_bodies
from crossrank.hlo.hlo_pass import WRAPPERS
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.passes.raise_custom_call_collectives import raise_collective
from crossrank.hlo.shape import Shape
from crossrank.hlo.xla import check_made_proto
from crossrank.passes import Pass, PassResult, run_passes

_NAMES = tuple(str(kind).encode() for kind in Kind)


@dataclass(frozen=True)
class Given:
    """A collective that runs on the backend.

    Attributes:
        kind: which collective.
        number: what it is registered as.
        label: kind, instruction, source line.
    """

    kind: Kind
    number: int
    label: str


@dataclass(frozen=True)
class Left:
    """A collective that stays with XLA.

    Attributes:
        kind: which collective.
        instruction: as ``%name``.
        reason: why.
        where: the author's source line, or the empty string.
    """

    kind: Kind
    instruction: str
    reason: str
    where: str


@dataclass
class Rewritten:
    """What became of a module.

    Attributes:
        name: of the module.
        ranks: that run it; 0 where it does not say.
        data: the module to go on with; None where it stays as it was.
        given: the collectives on the backend.
        left: the collectives that stay with XLA.
        passes: what each pass did.
    """

    name: str
    ranks: int = 0
    data: bytes | None = field(default=None, repr=False)
    given: list[Given] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    passes: list[PassResult] = field(default_factory=list)


def may_communicate(data: bytes) -> bool:
    """Whether a serialized module can hold a collective: cheap, and rarely wrong."""
    return any(name in data for name in _NAMES)


def read(data: bytes) -> Module:
    """The module that XLA shows to a hook, with the number of ranks that stands in its device assignment."""
    module = Module(data, ModuleConfig())
    if module.proto.HasField("device_assignment"):
        devices = module.proto.device_assignment
        module.config = module.config.with_fields(
            replica_count=devices.replica_count, num_partitions=devices.computation_count
        )
    return module


def rewrite(module: Module, passes: Sequence[Pass[Module]], backend: KernelBackend) -> Rewritten:
    """Run ``passes``, then give every collective that ``backend`` serves to it.

    Args:
        module: what `read` gave; it is changed.
        passes: what runs before.
        backend: who computes collectives.

    Raises:
        InputError, RunError: a pass or a kernel failed.
        ValueError: XLA refuses what was made.
    """
    made = Rewritten(module.name, module.world if module.config.says_ranks else 0)
    made.passes = run_passes(module, passes)
    changed = any(p.changed for p in made.passes)
    calls = _served(module, backend, made)
    prepare([call for _, _, call in calls])
    ranks = _Ranks(module.config)
    for i, info, call in calls:
        if _lay_out(i, info):
            call = call_of(i, info_of(i), module.config)
        number = backend.register(call)
        give(i, call, number, ranks.rank(i.computation), _own_buffers)
        made.given.append(Given(info.kind, number, call.label))
    if calls or changed:
        module.remove_unreachable()
        made.data = module.serialize()
        check_made_proto(made.data)
    return made


def info_of(i: Instruction) -> CollectiveInfo:
    """What a collective says."""
    info = describe(i)
    assert info is not None
    return info


def _served(module: Module, backend: KernelBackend, made: Rewritten) -> list[tuple[Instruction, CollectiveInfo, Call]]:
    """The collectives that the backend serves; the others are noted in ``made``."""
    part_bodies(module)
    wrapped = {body for i in module.instructions() if i.opcode in WRAPPERS for body in i.called}
    bodies = ReductionBodies(module)
    served = []
    for c in list(module.computations):
        for i in [i for i in c.post_order() if kind_of(i) is not None]:
            if i.opcode == "custom-call":  # made by a pass: one way for all, and what is left must be XLA's own
                raise_collective(i, info_of(i), bodies)
            try:
                info = info_of(i)
                call, reason = _call(i, info, module.config, backend, c in wrapped)
            except (InputError, ValueError) as error:
                call, reason = None, str(error).removeprefix(f"%{i.name}: ")
            if call is not None:
                served.append((i, info, call))
            else:
                kind = kind_of(i)
                assert kind is not None
                made.left.append(Left(kind, f"%{i.name}", reason, i.where))
    return served


def _call(
    i: Instruction, info: CollectiveInfo, config: ModuleConfig, backend: KernelBackend, wrapped: bool
) -> tuple[Call | None, str]:
    """The call of a collective that the backend serves; else why it does not."""
    if not config.says_ranks:
        return None, "the module does not say how many ranks it has"
    if info.asynchronous:
        return None, "it is asynchronous"
    if wrapped:
        return None, "it stands within a fusion or an asynchronous wrapper"
    if info.kind.reduces and info.reduce_op is None:
        return None, f"no kernel reduces with {info.reduction}"
    call = call_of(i, info, config)
    if not backend.serves(call):
        return None, f"there is no kernel for {_what(info)}"
    return call, ""


def _what(info: CollectiveInfo) -> str:
    types = info.dtype.name if info.dtype else "several types"
    return " ".join(filter(None, (str(info.kind), info.reduction, f"of {types}")))


class _Ranks:
    """The flattened rank as a value, once in each computation."""

    def __init__(self, config: ModuleConfig) -> None:
        self._config = config
        self._rank: dict[Computation, Instruction] = {}

    def rank(self, c: Computation) -> Instruction:
        """The rank, ``u32[]``."""
        if c not in self._rank:
            partitions, replicas = self._config.num_partitions, self._config.replica_count
            if replicas == 1:
                rank = _id(c, "partition-id")
            elif partitions == 1:
                rank = _id(c, "replica-id")
            else:
                first = binary("multiply", _id(c, "replica-id"), constant(c, np.array(partitions, np.uint32)))
                rank = binary("add", first, _id(c, "partition-id"))
            self._rank[c] = rank
        return self._rank[c]


def _id(c: Computation, opcode: str) -> Instruction:
    return next((i for i in c.instructions if i.opcode == opcode), None) or c.add(opcode, Shape(U32, (), ()))


# -- buffers -----------------------------------------------------------------------------------------------------------
_UPDATES = ("dynamic-update-slice", "scatter", "set-dimension-size", "ragged-all-to-all", "sort")
# what hands its operand's buffer on, or writes into it; XLA has put in the copies that these need, and does not again
_SHARES = {
    *_UPDATES,
    *("parameter", "constant", "tuple", "while", "conditional", "call", "custom-call", "opt-barrier"),
    *("get-tuple-element", "async-start", "async-update", "async-done", "copy-start", "infeed", "domain"),
}


def _own_buffers(operand: Instruction, user: Instruction) -> bool:
    """Whether ``user`` may leave its result in the buffer of ``operand`` with nobody else noticing.

    Then the buffer is made by the operand, read by nobody but ``user``, and its new value is read in this computation
    only, by instructions that make buffers of their own.
    """
    reader = user
    while True:
        if len(operand.users) != 1 or reader.operands.count(operand) != 1 or operand.is_root:
            return False
        if operand.opcode != "bitcast":
            return not _shares(operand) and _stays_within(user)
        operand, reader = operand.operands[0], operand


def _shares(i: Instruction) -> bool:
    """Whether a result may lie in a buffer that the instruction did not make."""
    if i.proto.output_operand_aliasing:
        return True
    if i.opcode == "fusion":
        return any(inner.opcode in _UPDATES for inner in i.called[0].instructions)
    return i.opcode in _SHARES or not i.shape.is_array


def _stays_within(i: Instruction) -> bool:
    if i.is_root:
        return False
    handed_on = ("bitcast", "get-tuple-element")
    return all(_stays_within(u) if u.opcode in handed_on else not _shares(u) for u in i.users)


# -- layouts -----------------------------------------------------------------------------------------------------------
def _lay_out(i: Instruction, info: CollectiveInfo) -> bool:
    """Say a collective over its buffers as they lie, row-major; returns whether anything had to change."""
    results = list(i.shape.elements) if i.shape.is_tuple else [i.shape]
    if all(s.row_major for s in (*results, *(o.shape for o in i.operands))):
        return False
    orders = _orders(info, results, len(i.operands))
    # operands beyond the results (sizes, offsets) have no order but their own
    last = len(results) - 1
    operands = [_as_it_lies(o, orders[min(n, last)]) for n, o in enumerate(i.operands)]
    i.set_operands(operands)
    if info.dim is not None:
        dimensions = i.edit().dimensions
        dimensions[0] = orders[0].index(info.dim)
    physical = [_physical(s, order) for s, order in zip(results, orders, strict=True)]
    users, root, was_tuple = list(i.users), i.is_root, i.shape.is_tuple
    i.set_shape(Shape.tuple_of(physical) if was_tuple else physical[0])
    if was_tuple:
        parts = [_back(element(i, n), s, orders[n]) for n, s in enumerate(results)]
        new = tuple_of(i.computation, parts)
    else:
        new = _back(i, results[0], orders[0])
    for u in users:
        if was_tuple and u.opcode == "get-tuple-element":
            parts[u.proto.tuple_index].take_place_of(u)
        else:
            u.replace_operand(i, new)
    if root:
        i.computation.set_root(new)
    elif was_tuple and not new.users:
        i.computation.remove(new)
    return True


def _orders(info: CollectiveInfo, results: Sequence[Shape], operands: int) -> list[tuple[int, ...]]:
    """For each result its dimensions from major to minor, in which the collective is said."""
    orders = [_order(s) for s in results]
    if operands == len(results):
        if info.kind is Kind.ALL_TO_ALL:  # operands become other ranks' results: all in one order
            return [orders[0]] * len(orders)
        if info.dim is None or len({order.index(info.dim) for order in orders}) == 1:
            return orders
    return [tuple(range(len(s.dims))) for s in results]


def _order(shape: Shape) -> tuple[int, ...]:
    return tuple(range(len(shape.dims))) if shape.row_major else tuple(reversed(shape.layout or ()))


def _physical(shape: Shape, order: Sequence[int]) -> Shape:
    return shape.with_dims([shape.dims[d] for d in order])


def _in_order(shape: Shape, order: Sequence[int]) -> Shape:
    return Shape(shape.dtype, shape.dims, tuple(reversed(order)))


def _lies_in(shape: Shape, order: Sequence[int]) -> bool:
    """Whether the bytes lie in ``order``; where a dimension of extent 1 stands makes no difference."""
    mine = [d for d in _order(shape) if shape.dims[d] != 1]
    return mine == [d for d in order if shape.dims[d] != 1]


def _as_it_lies(x: Instruction, order: tuple[int, ...]) -> Instruction:
    """An operand in ``order``, as a row-major value."""
    if len(order) != len(x.shape.dims):
        order = tuple(range(len(x.shape.dims)))
    c, lies = x.computation, _in_order(x.shape, order)
    if not _lies_in(x.shape, order):
        x = c.add("copy", lies, [x], like=x)
    physical = _physical(x.shape, order)
    return x if x.shape.row_major else c.add("bitcast", physical, [x], like=x)


def _back(x: Instruction, wanted: Shape, order: tuple[int, ...]) -> Instruction:
    """A result that lies row-major in ``order``, as ``wanted``."""
    c, lies = x.computation, _in_order(wanted, order)
    copied = not _lies_in(wanted, order)
    if x.shape != (lies if copied else wanted):
        x = c.add("bitcast", lies if copied else wanted, [x], like=x)
    return c.add("copy", wanted, [x], like=x) if copied else x
