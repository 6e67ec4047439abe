"""`fuse-reduce-scatter`: reduce-scatters that end in one concatenate become one; a mean divides once, afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import BF16, F32, F64, DType
from crossrank.collective.kinds import ReduceOp
from crossrank.hlo.build import (
    binary,
    broadcast,
    concatenate,
    constant,
    convert,
    element,
    reshape,
    transpose,
    tuple_of,
)
from crossrank.hlo.collectives import CollectiveInfo, comparable_groups, describe
from crossrank.hlo.dependence import levels
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.literals import read_literal
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.order import cyclic
from crossrank.hlo.rewrite import moved, put
from crossrank.hlo.schema import InstructionProto
from crossrank.passes import option, register
from crossrank.remarks import Remarks

_RESHAPES = ("reshape", "bitcast", "copy")
_MOVES = (*_RESHAPES, "transpose")
_COMMUTATIVE = frozenset(map(str, ReduceOp))
_SCALES = {"divide": "divided", "multiply": "multiplied"}
_DEPENDENT = "one of the reduce-scatters, or of the barriers behind them, depends on another"
_HOIST_OUT_OF_SUMS = (BF16, F32, F64)
"""A sum before the division may overflow in a type of narrower range."""


@register
@dataclass(frozen=True)
class FuseReduceScatter(HloPass):
    """Fuses reduce-scatters whose results are concatenated, and divides once where each of them was divided.

    Matches, in the entry computation or with `all_computations` in all, a `concatenate` with at least two neighbouring
    operands that are reduce-scatters alike in groups (as lists of ranks), group mode, reduction, scatter dimension and
    element type, each used by nothing else. Tuples, get-tuple-elements, optimization barriers, reshapes, copies,
    conversions and divisions by one constant (or multiplications with one) may stand in between. Each longest row of
    such neighbours is fused. Besides, `reduce-scatter(divide(concatenate(…), constant))` is matched alone.

    Makes one reduce-scatter of the concatenated inputs, with the channel id and the flags of the first in post-order. A
    concat along the scattered dimension gives each rank a piece of every input, so that the inputs are interleaved by
    rank; reshaped results are brought to `[group, …]` first. What stood in between is made once, on the wide
    result: conversions, the division, one optimization barrier. A division of the inputs of an add moves behind the
    reduction.

    Declines what has other users or control dependencies, is variadic, or depends on another one of the row;
    divisions of integers; and leaves a division inside the reduction where its constant is zero or not finite, the
    type is f16 or narrower, or `allow_reassociate` is off.
    """

    name: ClassVar[str] = "fuse-reduce-scatter"
    reassociates: ClassVar[bool] = True

    all_computations: bool = option(False, "also while and conditional bodies, and whatever else is called")
    fuse_same_dim: bool = option(True, "also along the scattered dimension, by interleaving the inputs")
    allow_reassociate: bool = option(True, "move divisions out of reductions, which rounds otherwise")

    def __post_init__(self) -> None:
        # everything but moving a division is exact
        object.__setattr__(self, "reassociates", self.allow_reassociate)

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Fuse; returns whether anything was fused."""
        changed = False
        for computation in self.computations(module) if self.all_computations else self.entry(module):
            if not any(i.opcode == "reduce-scatter" for i in computation.post_order()):
                continue
            work = _Fusion(self, computation, remarks)
            changed |= work.concatenation_fusion()
            changed |= work.concatenation_dividend_fusion()
            work.explain()
        if changed:
            module.remove_unreachable()
        return changed


# -- what is found -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Step:
    """An operation on every element alike: a conversion, or a division (multiplication) with one constant.

    Attributes:
        opcode: ``convert``, ``divide`` or ``multiply``.
        dtype: of the result.
        constant: the bytes of the constant; none for a conversion.
        instruction: where it was found.
        operand: what varies there.
    """

    opcode: str
    dtype: DType
    constant: bytes
    instruction: Instruction = field(compare=False)
    operand: Instruction = field(compare=False)

    @property
    def value(self) -> npt.NDArray[Any]:
        """The constant."""
        return np.frombuffer(self.constant, self.dtype.numpy)

    def apply(self, x: Instruction) -> Instruction:
        """The operation on ``x``."""
        if self.opcode == "convert":
            return convert(x, self.dtype, like=self.instruction)
        uniform = broadcast(constant(x.computation, self.value.reshape(())), x.shape.dims, like=self.instruction)
        return binary(self.opcode, x, uniform, like=self.instruction)


@dataclass
class _Chain:
    """A reduce-scatter and what stands between it and a concatenate.

    Attributes:
        scatter: the reduce-scatter.
        info: what it says.
        end: the operand of the concatenate.
        steps: what happens to every element, in order.
        passed: the tuples on the way: the optimization barrier behind (or the tuple itself), and the index in it.
        order: how many reduce-scatters come before it in post-order.
        fault: why it cannot be fused.
    """

    scatter: Instruction
    info: CollectiveInfo
    end: Instruction
    steps: list[_Step] = field(default_factory=list)
    passed: list[tuple[Instruction, int]] = field(default_factory=list)
    order: int = 0
    fault: str = ""

    @property
    def reshaped(self) -> bool:
        """Whether the concatenate sees other extents than the reduce-scatter gives."""
        return self.end.shape.dims != self.scatter.shape.dims

    @property
    def dim(self) -> int:
        """The scatter dimension."""
        assert self.info.dim is not None
        return self.info.dim

    @property
    def width(self) -> int:
        """How many ranks a group has."""
        part = self.scatter.shape.dims[self.dim]
        return self.scatter.operands[0].shape.dims[self.dim] // part if part else 0

    @cached_property
    def inner_scale(self) -> _Step | None:
        """The division of its input, where nothing but moves of elements stands in between."""
        return _inner_scale(self.scatter)


@dataclass
class _Row:
    """Neighbouring operands of a concatenate that can become one.

    Attributes:
        concat: the concatenate.
        chains: one for each.
    """

    concat: Instruction
    chains: list[_Chain]

    @property
    def axis(self) -> int:
        return int(self.concat.proto.dimensions[0])

    @cached_property
    def common_inner_scale(self) -> _Step | None:
        """The division that the inputs of all have in common."""
        scale = self.chains[0].inner_scale
        return scale if all(c.inner_scale == scale for c in self.chains) else None

    @property
    def divides(self) -> bool:
        """Whether a division stands before or behind the reductions of all."""
        return self.common_inner_scale is not None or any(s.opcode in _SCALES for s in self.chains[0].steps)

    @property
    def interleaves(self) -> bool:
        """Whether fusing takes more than putting the inputs behind one another."""
        if any(c.reshaped for c in self.chains):
            return any(c.scatter.shape.dims[c.dim] != 1 or _before(c) != 1 for c in self.chains)
        return self.axis == self.chains[0].dim

    @cached_property
    def barriers(self) -> dict[Instruction, set[int]]:
        """The barriers and tuples on the way, with the elements in them that will be fused."""
        found: dict[Instruction, set[int]] = {}
        for chain in self.chains:
            for holder, index in chain.passed:
                found.setdefault(holder, set()).add(index)
        return found

    @property
    def mixed(self) -> list[Instruction]:
        """Barriers that hold other values too: they must be kept for those."""
        return [
            b
            for b, fused in self.barriers.items()
            if b.opcode == "opt-barrier" and b.shape.is_tuple and len(fused) < len(b.shape.elements)
        ]

    def parts(self) -> list[list[Instruction]]:
        """What each becomes one instruction."""
        return [part for part in ([c.scatter for c in self.chains], self.mixed) if part]


def _before(c: _Chain) -> int:
    return math.prod(c.scatter.shape.dims[: c.dim])


def _held(i: Instruction) -> bool:
    return bool(i.control_predecessors or i.control_successors)


def _uniform(i: Instruction) -> npt.NDArray[Any] | None:
    """The one value of all elements of a constant, also of one that is broadcast."""
    while i.opcode in ("broadcast", "reshape"):
        i = i.operands[0]
    values = read_literal(i.proto.literal) if i.opcode == "constant" and not i.shape.is_tuple else None
    if values is None or not values.size:
        return None
    first = values.reshape(-1)[:1]
    return first if (values.reshape(-1).view(f"u{values.itemsize}") == first.view(f"u{first.itemsize}")).all() else None


def _scale(i: Instruction) -> _Step | None:
    """A division by a constant, or a multiplication with one."""
    if i.opcode not in _SCALES or i.shape.dtype.is_complex:
        return None
    for varying, fixed in (i.operands, i.operands[::-1]) if i.opcode == "multiply" else (i.operands,):
        value = _uniform(fixed)
        if value is not None:
            return _Step(i.opcode, i.shape.dtype, value.tobytes(), i, varying)
    return None


def _alone(i: Instruction) -> bool:
    return len(i.users) == 1 and not i.is_root and not _held(i)


def _inner_scale(scatter: Instruction) -> _Step | None:
    """The division of what a reduce-scatter reduces, used by nothing else."""
    i = scatter.operands[0]
    while i.opcode in _MOVES and i.operands[0].shape.dtype is i.shape.dtype and _alone(i):
        i = i.operands[0]
    return _scale(i) if _alone(i) else None


def _is_reshape(i: Instruction) -> bool:
    if i.opcode != "bitcast":
        return i.opcode in _RESHAPES
    before = i.operands[0].shape
    return before.dtype is i.shape.dtype and before.row_major and i.shape.row_major


def _body_key(body: Computation) -> tuple[bytes, ...]:
    """Equal for bodies that compute the same, whatever their names, metadata and order of parameters."""
    number: dict[Instruction, int] = {}
    lines = []
    order = body.post_order()
    for i in sorted((i for i in order if i.opcode == "parameter"), key=lambda i: int(i.proto.parameter_number)):
        number[i] = len(number)
    for i in order:
        if i.opcode == "parameter":
            continue
        number[i] = len(number)
        proto = InstructionProto()
        proto.CopyFrom(i.proto)
        for name in ("name", "id", "operand_ids", "control_predecessor_ids", "metadata"):
            proto.ClearField(name)
        operands = [number[o] for o in i.operands]
        if i.opcode in _COMMUTATIVE:
            operands.sort()
        proto.operand_ids.extend(operands)
        lines.append(bytes(proto.SerializeToString(deterministic=True)))
    return (str(number[body.root]).encode(), *lines)


class _Tuple:
    """A tuple on the way of values that are taken out of it again, directly or behind an optimization barrier."""

    def __init__(self, made: Instruction) -> None:
        user = next(iter(made.users), made)
        behind = user.opcode == "opt-barrier" and len(made.users) == 1 and not made.is_root
        self.holder = user if behind else made
        self.whole = self.holder.is_root or any(u.opcode != "get-tuple-element" for u in self.holder.users)
        self.held = _held(made) or _held(self.holder)
        self.index: dict[Instruction, int] = {}
        self.elements: dict[int, list[Instruction]] = {}
        if self.whole:
            return
        self.index = {o: n for n, o in enumerate(made.operands)}
        if len(self.index) < len(made.operands):  # what is in it twice cannot be followed
            twice = {o for n, o in enumerate(made.operands) if self.index[o] != n}
            self.index = {o: n for o, n in self.index.items() if o not in twice}
        for user in self.holder.users:
            self.elements.setdefault(int(user.proto.tuple_index), []).append(user)
        if not behind:  # it will be taken apart
            self.held = self.held or any(map(_held, self.holder.users))

    def element(self, value: Instruction) -> tuple[int, Instruction] | None:
        """Where ``value`` stands and the one instruction that takes it out; None where it does not come out once."""
        n = self.index.get(value)
        taken = self.elements.get(n, []) if n is not None else []
        return (n, taken[0]) if n is not None and len(taken) == 1 else None


# -- what is done ------------------------------------------------------------------------------------------------------
class _Fusion:
    """The two rewrites on one computation.

    Args:
        options: the pass.
        computation: what is changed.
        remarks: where it is said.
    """

    def __init__(self, options: FuseReduceScatter, computation: Computation, remarks: Remarks) -> None:
        self._options = options
        self._computation = computation
        self._remarks = remarks
        self._keys: dict[Instruction, dict[str, object]] = {}
        self._bodies: dict[Computation, tuple[bytes, ...]] = {}
        self._tuples: dict[Instruction, _Tuple] = {}

    def concatenation_fusion(self) -> bool:
        """Fuse the rows without a division; returns whether there was one."""
        return self._fuse_rows(divides=False)

    def concatenation_dividend_fusion(self) -> bool:
        """Fuse the rows with a division, and divide after single reductions of a concatenate."""
        changed = self._fuse_rows(divides=True)
        return self._divide_after_single_ones() or changed

    def explain(self) -> None:
        """Say why reduce-scatters that meet in a concatenate are still several."""
        for concat, chains in self._concats():
            found = [c for c in chains if c is not None]
            if len(found) < 2:
                continue
            in_rows: set[Instruction] = set()
            for row in self._rows(concat, chains):
                reason = (
                    self._why_not(row)
                    or "one of the reduce-scatters, or of the barriers behind them, depends on another"
                )
                in_rows.update(c.scatter for c in row.chains)
                self._remarks.declined(f"%{concat.name}", reason, concat.where)
            for n, chain in enumerate(chains):
                if chain is None or chain.scatter in in_rows:
                    continue
                near = [c for c in (*chains[max(n - 1, 0) : n], *chains[n + 1 : n + 2]) if c and not c.fault]
                alone = f"nothing beside it in %{concat.name} can join it"
                reason = chain.fault or (self._difference(chain, near[0]) if near else alone)
                self._remarks.declined(f"%{chain.scatter.name}", reason, chain.scatter.where)

    # -- finding -------------------------------------------------------------------------------------------------------
    def _concats(self) -> list[tuple[Instruction, list[_Chain | None]]]:
        """The concatenates that reduce-scatters end in, with one entry for each operand."""
        self._tuples.clear()
        ends: dict[Instruction, dict[Instruction, _Chain]] = {}
        scatters = [i for i in self._computation.post_order() if i.opcode == "reduce-scatter"]
        for order, i in enumerate(scatters):
            for concat, chain in self._follow(i):
                chain.order = order
                ends.setdefault(concat, {})[chain.end] = chain
        found = []
        for concat, chains in ends.items():
            seen: set[Instruction] = set()
            for operand in concat.operands:
                if operand in seen and operand in chains:
                    chains[operand].fault = f"it is in %{concat.name} twice"
                seen.add(operand)
            found.append((concat, [chains.get(operand) for operand in concat.operands]))
        return found

    def _rows(self, concat: Instruction, chains: Sequence[_Chain | None]) -> Iterator[_Row]:
        """The longest rows of neighbours that are alike, of at least two."""
        row: list[_Chain] = []
        for chain in (*chains, None):
            sound = chain if chain is not None and not chain.fault else None
            if row and (sound is None or self._difference(sound, row[0])):
                if len(row) > 1:
                    yield _Row(concat, row)
                row = []
            if sound is not None:
                row.append(sound)

    def _follow(self, scatter: Instruction) -> Iterator[tuple[Instruction, _Chain]]:
        """The concatenate that a reduce-scatter ends in, where nothing but plumbing stands in between."""
        info = describe(scatter)
        assert info is not None
        if scatter.shape.is_tuple:
            for part in scatter.users:
                for concat in (u for u in part.users if u.opcode == "concatenate"):
                    yield concat, _Chain(scatter, info, part, fault="it is variadic")
            return
        chain = _Chain(scatter, info, scatter, fault=self._fault(scatter, info))
        node: Instruction | None = scatter
        while node is not None:
            if _held(node):
                chain.fault = chain.fault or f"%{node.name} has control dependencies"
            several = len(node.users) > 1
            user = next((u for u in node.users if not several or u.opcode == "concatenate"), None)
            if user is None:
                return
            if several or node.is_root:
                chain.fault = chain.fault or f"%{node.name} has other users"
            if user.opcode == "concatenate":
                chain.end = node
                yield user, chain
                return
            node = self._onward(node, user, chain)

    def _onward(self, node: Instruction, user: Instruction, chain: _Chain) -> Instruction | None:
        """What carries the value of ``node`` behind its user; None where that is no plumbing."""
        if user.opcode == "tuple":
            through = self._tuples.get(user) or self._tuples.setdefault(user, _Tuple(user))
            found = through.element(node)
            if found is None:
                return None
            if through.held:
                chain.fault = chain.fault or f"%{through.holder.name} has control dependencies"
            chain.passed.append((through.holder, found[0]))
            return found[1]
        if user.opcode == "opt-barrier" and not user.shape.is_tuple:
            chain.passed.append((user, 0))
            return user
        if user.opcode == "convert":
            chain.steps.append(_Step("convert", user.shape.dtype, b"", user, node))
            return user
        scale = _scale(user)
        if scale is not None and scale.operand is node:
            chain.steps.append(scale)
            return user
        return user if _is_reshape(user) else None

    def _fault(self, scatter: Instruction, info: CollectiveInfo) -> str:
        shapes = (scatter.shape, scatter.operands[0].shape)
        if any(s.tiled or s.dynamic for s in shapes):
            return "it has a layout or an extent that is a device's own"
        if not shapes[1].count:
            return "it is empty"
        try:
            groups = comparable_groups(info, scatter.module.config)
        except ValueError as error:
            return str(error)
        if scatter not in self._keys:
            body = scatter.called[0]
            if body not in self._bodies:
                self._bodies[body] = _body_key(body)
            self._keys[scatter] = {
                "element type": info.dtype,
                "group mode": info.mode,
                "replica groups": groups,
                "reduction": self._bodies[body],
                "scatter dimension": info.dim,
                "layout constraint": info.constrain_layout,
            }
        return ""

    def _difference(self, a: _Chain, b: _Chain) -> str:
        """Why two reduce-scatters cannot be one; the empty string where they can."""
        mine, theirs = self._keys[a.scatter], self._keys[b.scatter]
        what = next((k for k in mine if mine[k] != theirs[k]), "")
        if not what and a.steps != b.steps:
            what = "what is done with the result"
        return what and f"it differs from %{b.scatter.name} in its {what}"

    # -- deciding ------------------------------------------------------------------------------------------------------
    def _why_not(self, row: _Row) -> str:
        if row.interleaves and not self._options.fuse_same_dim:
            return "it concatenates along the scattered dimension (fuse_same_dim=false)"
        return next((reason for s in row.chains[0].steps if s.opcode in _SCALES and (reason := _odd(s))), "")

    def _why_not_hoist(self, info: CollectiveInfo, scale: _Step) -> str:
        if info.reduce_op is not ReduceOp.ADD:
            return "only sums are divided afterwards"
        if reason := _odd(scale):
            return reason
        if scale.dtype not in _HOIST_OUT_OF_SUMS:
            return f"the sum of undivided values may overflow in {scale.dtype}"
        return "" if self._options.allow_reassociate else "it would be rounded otherwise (allow_reassociate=false)"

    def _fuse_rows(self, *, divides: bool) -> bool:
        changed = False
        while True:  # fusing one row changes what the others pass through, so they are found anew
            rows = [row for concat, chains in self._concats() for row in self._rows(concat, chains)]
            batch = _without_cycles([r for r in rows if r.divides == divides and not self._why_not(r)])
            for row in batch:
                self._fuse(row)
            if not batch:
                return changed
            changed = True

    # -- rewriting -----------------------------------------------------------------------------------------------------
    def _fuse(self, row: _Row) -> None:
        concat, chains = row.concat, row.chains
        scale = row.common_inner_scale
        if scale is not None:
            reason = self._why_not_hoist(chains[0].info, scale)
            if reason:
                self._say_not_hoisted(scale, reason)
                scale = None
            else:
                for c in chains:
                    if c.inner_scale is not None:
                        _bypass(c.inner_scale)
        interleaves = row.interleaves
        scatter, wide = _fuse_with_operands(row, [c.scatter.operands[0] for c in chains])
        for step in (*([scale] if scale else []), *chains[0].steps):
            wide = step.apply(wide)
        what = f"{len(chains)} reduce-scatters → %{scatter.name}, {scatter.shape.nbytes} bytes for each rank"
        what += ", the inputs interleaved" if interleaves else ""
        what += f", {_SCALES[scale.opcode]} afterwards" if scale else ""
        self._remarks.done(f"%{concat.name}", what, concat.where)
        if len(chains) == len(concat.operands):
            wide.set_shape(concat.shape)
            put(_behind_barrier(row, wide), concat)
        else:
            wide = _behind_barrier(row, wide)
            old = [c.end for c in chains]
            first = concat.operands.index(old[0])
            concat.set_operands([*concat.operands[:first], wide, *concat.operands[first + len(old) :]])
            self._computation.remove_dead(old)

    def _divide_after_single_ones(self) -> bool:
        changed = False
        for scatter in [i for i in self._computation.post_order() if i.opcode == "reduce-scatter"]:
            scale = None if scatter.shape.is_tuple or _held(scatter) else _inner_scale(scatter)
            if scale is None or not _divides_concat(scale):
                continue
            info = describe(scatter)
            assert info is not None
            reason = self._why_not_hoist(info, scale)
            if reason:
                self._say_not_hoisted(scale, reason)
                continue
            _bypass(scale)
            scatter.replace_all_uses_with(scale.apply(scatter))
            self._remarks.done(f"%{scatter.name}", f"{_SCALES[scale.opcode]} afterwards", scatter.where)
            changed = True
        return changed

    def _say_not_hoisted(self, scale: _Step, reason: str) -> None:
        what = f"it stays inside the reduction: {reason}"
        self._remarks.declined(f"%{scale.instruction.name}", what, scale.instruction.where)


def _odd(scale: _Step) -> str:
    """Why a division is left where it is in any case."""
    if scale.dtype.is_integer:
        return "integers are not divided elsewhere"
    value = scale.value.astype(np.float64)
    return "" if np.isfinite(value).all() and value.all() else "its constant is zero or not finite"


def _without_cycles(rows: Sequence[_Row]) -> list[_Row]:
    """Rows that can be fused together without anything coming to wait for itself."""
    batch: list[_Row] = []
    used: set[Instruction] = set()
    for row in rows:
        if used.isdisjoint(row.barriers):
            batch.append(row)
            used.update(row.barriers)
    owners = [n for n, row in enumerate(batch) for _ in row.parts()]
    bad = {owners[n] for n in cyclic([part for row in batch for part in row.parts()])}
    good = [row for n, row in enumerate(batch) if n not in bad]
    if good:
        return good
    for row in rows:  # each alone, or of one that depends on itself what does not
        for part in (row, *_pieces(row)):
            if not cyclic(part.parts()):
                return [part]
    return []


def _pieces(row: _Row) -> Iterator[_Row]:
    """The neighbours in a row that do not depend on one another."""
    level = levels([c.scatter for c in row.chains])
    for _, same in groupby(row.chains, key=lambda c: level[c.scatter]):
        chains = list(same)
        if len(chains) > 1:
            yield _Row(row.concat, chains)


def _bypass(scale: _Step) -> None:
    """Take a division out: its user gets what it divided."""
    scale.instruction.replace_all_uses_with(scale.operand)
    scale.instruction.computation.remove_dead([scale.instruction])


def _divides_concat(scale: _Step) -> bool:
    i = scale.operand
    while i.opcode in _MOVES and _alone(i):
        i = i.operands[0]
    return i.opcode == "concatenate"


def _fuse_with_operands(row: _Row, operands: Sequence[Instruction]) -> tuple[Instruction, Instruction]:
    """One reduce-scatter over the union of ``operands``; returns it, and the value that stands for the row."""
    base = min(row.chains, key=lambda c: c.order)
    axis, dim, width, concat = row.axis, base.dim, base.width, row.concat
    wide = list(base.end.shape.dims)
    wide[axis] = sum(c.end.shape.dims[axis] for c in row.chains)
    result_dims = wide
    if any(c.reshaped for c in row.chains):
        parts = [_by_rank(x, c) for x, c in zip(operands, row.chains, strict=True)]
        x = concatenate(parts, axis + 1, like=concat)
        dim, result_dims = 0, [1, *wide]
    elif axis == dim:  # each rank gets a piece of every input
        cut = [
            reshape(x, [*x.shape.dims[:dim], width, c.scatter.shape.dims[dim], *x.shape.dims[dim + 1 :]], like=concat)
            for x, c in zip(operands, row.chains, strict=True)
        ]
        whole = [*wide[:dim], width * wide[dim], *wide[dim + 1 :]]
        x = reshape(concatenate(cut, dim + 1, like=concat), whole, like=concat)
    else:
        x = concatenate(operands, axis, like=concat)
    scatter = moved(base.scatter, [x], x.shape.with_dims(result_dims))
    proto = scatter.edit()
    proto.dimensions[0] = dim
    proto.metadata.CopyFrom(concat.proto.metadata)
    return scatter, reshape(scatter, wide, like=concat)


def _by_rank(x: Instruction, c: _Chain) -> Instruction:
    """The input of a reduce-scatter as ``[group, *extents that the concatenate sees]``."""
    before = _before(c)
    if before != 1:
        x = reshape(x, [before, c.width, c.scatter.shape.count // before], like=c.scatter)
        x = transpose(x, [1, 0, 2], like=c.scatter)
    return reshape(x, [c.width, *c.end.shape.dims], like=c.scatter)


def _behind_barrier(row: _Row, wide: Instruction) -> Instruction:
    """The wide value behind one barrier, where its parts stood behind some; the other values there come along."""
    for made in (h for h in row.barriers if h.opcode == "tuple"):
        for user in list(made.users):
            n = int(user.proto.tuple_index)
            if n not in row.barriers[made]:
                user.replace_all_uses_with(made.operands[n])
                user.computation.remove(user)
    barriers = [h for h in row.barriers if h.opcode == "opt-barrier"]
    if not barriers:
        return wide
    values = [wide]
    place: dict[tuple[Instruction, int], int] = {}
    for b in row.mixed:
        for n, value in enumerate(b.operands[0].operands):
            if n not in row.barriers[b]:
                place[b, n] = len(values)
                values.append(value)
    bundle = tuple_of(wide.computation, values, like=barriers[0])
    new = moved(barriers[0], [bundle], bundle.shape)
    for b in row.mixed:
        for user in list(b.users):
            at = place.get((b, int(user.proto.tuple_index)))
            if at is not None:
                element(new, at, like=user).take_place_of(user)
    return element(new, 0, like=barriers[0])
