"""From HLO to the builder: each converted collective becomes a kernel of the instructions that stand for it.

Consumers dispatch on the whole target, so `BY_TARGET` has every name of the naming contract: which methods of the
builder it becomes, with which reduction. What HLO says and an instruction does not hold is staged:

* collectives work on tensors of the kernel's own, never on its inputs and outputs: copies lead in and out;
* their dimension is 0 or 1, so the copies permute: a collective along dimension d works on ``[extent of d, rest]``;
* several operands of one element type are one instruction where it takes lists (reductions and gathers), else one each;
  a tuple all-to-all is one tensor with a row for each member;
* who is no target of a permute or a receive gets zeros: the destination is cleared before;
* a ragged exchange is kind 6, with a metadata table for each entry that a peer has.

Reductions other than add, max and min, element types that NKI lacks, and the kinds that the source has no producer of
are extensions: the attribute `EXTENSION` of the kernel's module names them, and nothing else has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, StringAttr

from crossrank.collective.dtypes import S32, S64, U8, U32, DType
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.collectives import collectives
from crossrank.hlo.ffi.call import Call, call_of
from crossrank.hlo.module import Module
from crossrank.hlo.shape import Shape
from crossrank.hlo.targets import INFIXES, TARGETS, target_for
from crossrank.instr.builder import KernelBuilder
from crossrank.instr.instructions import InstCollectiveCompute
from crossrank.instr.kinds import AluOp, Space
from crossrank.instr.program import Kernel
from crossrank.instr.tensors import View

EXTENSION = "instr.extension"
"""The attribute that says what of a kernel goes beyond the source: a list of plain words."""
NKI_TYPES = frozenset(
    ["pred", "s8", "s16", "s32", "u8", "u16", "u32", "f16", "bf16", "f32", "f8e4m3", "f8e4m3fn", "f8e5m2"]
)
"""The element types that NKI has."""
_HBM = Space.PRIVATE_HBM


@dataclass(frozen=True)
class Instructions:
    """What a custom-call of one target becomes.

    Attributes:
        methods: of the builder, in the order of their calls.
        op: the reduction; None where there is none, or where the name does not say (``reduce=`` in the config does).
    """

    methods: tuple[str, ...]
    op: AluOp | None = None


_METHODS: dict[Kind, tuple[str, ...]] = {
    Kind.ALL_REDUCE: ("all_reduce_cc_raw",),
    Kind.REDUCE_SCATTER: ("reduce_scatter_cc_raw",),
    Kind.ALL_GATHER: ("all_gather_cc_raw",),
    Kind.ALL_TO_ALL: ("all_to_all_cc_raw",),
    Kind.RAGGED_ALL_TO_ALL: ("all_to_all_cc_raw", "all_to_all_v_cc_raw"),
    Kind.COLLECTIVE_PERMUTE: ("tiled_collective_permute_cc_raw",),
    Kind.COLLECTIVE_BROADCAST: ("broadcast_cc_raw",),
    Kind.SEND_RECV: ("send_cc_raw", "recv_cc_raw"),
    Kind.SEND: ("send_cc_raw",),
    Kind.RECV: ("recv_cc_raw",),
}
BY_TARGET = {
    name: Instructions(_METHODS[target.kind], None if target.reduce_op is None else AluOp.of(str(target.reduce_op)))
    for name, target in TARGETS.items()
}
"""Every target of the naming contract → its instructions."""


def target_of(call: Call) -> str:
    """The target of the custom-call that a collective is, or would be: of a send and a recv: of the two fused."""
    c = call.collective
    kind = Kind.SEND_RECV if c.kind.has_tokens else c.kind
    return target_for(kind, c.reduce_op, Shape.tuple_of(call.results))


def has_instructions(call: Call) -> bool:
    """Whether `kernel_of` has a kernel for a collective."""
    c, operands, results = call.collective, call.operands, call.results
    if c.kind is Kind.RAGGED_ALL_TO_ALL:
        entries, fits = operands[2].count, max(operands[0].count, results[0].count) < 1 << 31  # metadata has 32 bits
        alike = all(t.dtype in (S32, S64) and t.dims == (entries,) for t in operands[2:])
        return alike and fits and bool(results[0].count) and not any(entries % len(g) for g in c.groups)
    if len(operands) != len(results) or not operands:
        return False  # half of a send and a receive, or a permute within larger buffers
    return not _is_tuple_form(call) or len({s.without_layout() for s in operands}) == 1


def kernel_of(call: Call, group: int = 0, where: str = "") -> Kernel:
    """The kernel of a collective: what every rank of a group runs, operands in, results out.

    It serves all groups that are as large as this one; kinds with pairs have one kernel.

    Args:
        call: the collective.
        group: which of its groups.
        where: the author's source line, which all instructions get.

    Raises:
        InputError: there is none (`has_instructions`), or groups or pairs cannot be.
    """
    if not has_instructions(call):
        raise InputError(f"{call.label}: no instructions say this", "run it on the kernels or the oracle")
    return _Staged(call, group, where).kernel()


def kernels_of(module: Module) -> list[tuple[str, Kernel]]:
    """The collectives of all computations of a module as kernels, by the names of their instructions, to be read.

    Where groups differ in size it is the first one's. What has no instructions (asynchronous halves, sends and receives
    that are not fused, reductions that are no single op) is left out.
    """
    found = []
    for i, info in collectives(module):
        if (
            info.asynchronous
            or (info.kind.reduces and info.reduce_op is None)
            or (info.kind.has_tokens and not info.pairs)
        ):
            continue
        try:
            call = call_of(i, info, module.config)
            if has_instructions(call):
                found.append((i.name, kernel_of(call, where=i.where)))
        except ValueError as error:
            raise InputError(f"%{i.name}: {error}") from None
    return found


def extensions_of(kernel: Kernel) -> tuple[str, ...]:
    """What of a kernel goes beyond the source, in plain words."""
    found = kernel.module.attributes.get(EXTENSION)
    return tuple(word.data for word in found if isinstance(word, StringAttr)) if isinstance(found, ArrayAttr) else ()


def _finished(builders: Sequence[KernelBuilder], call: Call, where: str) -> Kernel:
    """The kernel of these cores, verified; what goes beyond the source is marked."""
    programs = [b.finish() for b in builders]
    instructions = [i for p in programs for i in p.instructions()]
    for inst in instructions:
        inst.where_attr = StringAttr(where) if where else None
    op, words = call.collective.reduce_op, []
    if op is not None and op not in INFIXES:
        words.append(f"reduces with {op}")
    types = dict.fromkeys(s.dtype.name for s in call.results)
    words += [f"elements of {name}" for name in types if name not in NKI_TYPES]
    kinds = dict.fromkeys(i.fields.kind for i in instructions if isinstance(i, InstCollectiveCompute))
    words += [f"kind {kind:d}, {kind.title}" for kind in kinds if kind.is_extension]
    kernel = Kernel.of(
        programs,
        name=target_of(call),
        world_size=builders[0].world_size,
        lnc=len(builders),
        has_collectives=any(b.has_collectives for b in builders),
    )
    if words:
        kernel.module.attributes[EXTENSION] = ArrayAttr([StringAttr(w) for w in words])
    kernel.verify()
    return kernel


class _Staged:
    """Builds the kernel of one collective."""

    def __init__(self, call: Call, group: int, where: str) -> None:
        self.call = call
        self.instructions = BY_TARGET[target_of(call)]
        self.where = where
        self.b = KernelBuilder(call.world)
        self.op = self.instructions.op
        c = call.collective
        if c.reduce_op is not None and self.op is None:
            self.op = AluOp.of(str(c.reduce_op))
        self.groups = [g for g in c.groups if len(g) == len(c.groups[group])] if c.groups else []
        self.inputs = [self.b.input(f"p{n}", s.dims, s.dtype, _HBM) for n, s in enumerate(call.operands)]
        self.outputs = [self.b.tensor(s.dims, s.dtype, _HBM, f"o{n}") for n, s in enumerate(call.results)]

    def kernel(self) -> Kernel:
        """The kernel, verified."""
        build: dict[Kind, Callable[[], None]] = {
            Kind.ALL_TO_ALL: self._tuple_all_to_all if _is_tuple_form(self.call) else self._one_by_one,
            Kind.RAGGED_ALL_TO_ALL: self._ragged,
            Kind.COLLECTIVE_PERMUTE: self._one_by_one,
            Kind.COLLECTIVE_BROADCAST: self._one_by_one,
        }
        kind = self.call.collective.kind
        build.get(kind, self._send_recv if kind.has_tokens else self._coalesced)()
        for view in self.outputs:
            self.b.output(view)
        return _finished([self.b], self.call, self.where)

    # Staging

    def _hbm(self, shape: Sequence[int], dtype: DType) -> View:
        return self.b.tensor(shape, dtype, _HBM)

    def _staged(self, n: int) -> tuple[View, View]:
        """The n-th operand in a tensor whose dimension 0 is the collective's, and one for its result."""
        source = self._leading(self.inputs[n])
        staged = self._hbm(_flattened(source), source.element)
        self.b.dma_copy(staged, source)
        return staged, self._hbm(_flattened(self._leading(self.outputs[n])), source.element)

    def _give(self, n: int, made: View) -> None:
        """The n-th result, out of the tensor that `_staged` made for it."""
        self.b.dma_copy(self._leading(self.outputs[n]), made)

    def _leading(self, view: View) -> View:
        """The collective's dimension first."""
        dim = self.call.collective.dim or 0
        return view.permute([dim, *(d for d in range(view.ndim) if d != dim)]) if view.ndim else view

    def _cleared(self, view: View) -> None:
        """Zeros, where some rank is no target: all bytes 0, read over and over by one copy."""
        if len({t for _, t in self.call.collective.pairs}) == self.call.world:
            return
        zero = self.b.tensor((1, 1), view.element, Space.SBUF)
        size = view.element.itemsize
        self.b.compute("memset", [zero.ap([[size, 1], [1, size]], dtype=U8)], value=0)
        self.b.dma_copy(view, zero.ap([[1, 1], [0, view.size]]))

    # Kinds

    def _coalesced(self) -> None:
        """All-reduce, all-gather, reduce-scatter: the operands of one type are one instruction."""
        by_type: dict[DType, list[int]] = {}
        for n, view in enumerate(self.inputs):
            by_type.setdefault(view.element, []).append(n)
        (name,), kind = self.instructions.methods, self.call.collective.kind
        for dtype, numbers in by_type.items():
            staged = [self._staged(n) for n in numbers]
            given = [] if self.op is None else [self.op]
            dim = [] if kind is Kind.ALL_REDUCE else [0]
            srcs, dsts = ([pair[side] for pair in staged] for side in (0, 1))
            getattr(self.b, name)(*given, srcs, dsts, self.groups, *dim, dtype=dtype)
            for n, made in zip(numbers, dsts, strict=True):
                self._give(n, made)

    def _one_by_one(self) -> None:
        """All-to-all, permute, broadcast: one instruction for each operand."""
        (name,), c = self.instructions.methods, self.call.collective
        further = [0, 0] if c.kind is Kind.ALL_TO_ALL else [()] if c.kind is Kind.COLLECTIVE_BROADCAST else []
        for n in range(len(self.inputs)):
            staged, made = self._staged(n)
            if c.kind.has_pairs:
                self._cleared(made)
            if not c.kind.has_pairs or c.pairs:
                getattr(self.b, name)([staged], [made], c.pairs or self.groups, *further, dtype=staged.element)
            self._give(n, made)

    def _tuple_all_to_all(self) -> None:
        """Operand i goes to member i: one tensor, a row for each."""
        shape = (len(self.inputs), self.inputs[0].size)
        staged, made = (self._hbm(shape, self.inputs[0].element) for _ in range(2))
        for n, view in enumerate(self.inputs):
            self.b.dma_copy(staged[n], view)
        self.b.all_to_all_cc_raw([staged], [made], self.groups, 0, 0)
        for n, view in enumerate(self.outputs):
            self.b.dma_copy(view, made[n])

    def _send_recv(self) -> None:
        """Every rank runs one program, and a send names one peer: for each pair a branch for either side."""
        pairs = self.call.collective.pairs
        staged = [self._staged(n) for n in range(len(self.inputs))]
        srcs, dsts = ([pair[side] for pair in staged] for side in (0, 1))
        for made in dsts:
            self._cleared(made)
        rank = self.b.rank_id()
        for source, target in pairs:  # a send waits for nobody
            with self.b.when(rank.eq(source)):
                self.b.send_cc_raw(srcs, target)
        for source, target in pairs:
            with self.b.when(rank.eq(target)):
                self.b.recv_cc_raw(dsts, source)
        for n, made in enumerate(dsts):
            self._give(n, made)

    def _ragged(self) -> None:
        """Rows to elements, and what senders know of places to the receivers; then an exchange for each entry."""
        data, output, *tables = self.inputs
        members = len(self.groups[0])
        entries, row = tables[0].size // members, output.size // output.shape[0]
        starts, sends, places, receives = (_words(t).reshape(members, entries) for t in tables)
        told, known = (self._hbm((members, entries), U32) for _ in range(2))
        self.b.dma_copy(told, places)
        self.b.all_to_all_cc_raw([told], [known], self.groups, 0, 0)
        staged, made = (self._hbm((v.size,), v.element) for v in (data, output))
        self.b.dma_copy(staged, data)
        self.b.dma_copy(made, output)
        factor = self.b.tensor((1, 4, members), U32, Space.SBUF)
        self.b.compute("memset", [factor], value=row)
        for e in range(entries):
            rows, metadata = (self.b.tensor((1, 4, members), U32, Space.SBUF) for _ in range(2))
            for n, table in enumerate((sends, starts, receives, known)):
                self.b.dma_copy(rows[0, n], table[:, e])
            self.b.compute("tensor_tensor", [metadata], [rows, factor], op="multiply")
            self.b.all_to_all_v_cc_raw(
                [staged], [made], self.groups, metadata, recv_counts_known=True, has_rdispls=True
            )
        self.b.dma_copy(self.outputs[0], made)


def _is_tuple_form(call: Call) -> bool:
    return call.collective.kind is Kind.ALL_TO_ALL and call.collective.dim is None


def _flattened(view: View) -> tuple[int, int]:
    """``[extent of dimension 0, rest]``."""
    return (view.shape[0] if view.ndim else 1, math.prod(view.shape[1:]))


def _words(table: View) -> View:
    """The low 32 bits of integers that are not negative."""
    return table.ap([[table.element.itemsize // U32.itemsize, table.size]], dtype=U32)


def core_kernel_of(call: Call, lnc: int, where: str = "") -> Kernel:
    """An all-reduce whose groups are the cores of one rank each, as exchanges of kind 1 (`SendRecvCCE`).

    The module's ranks are cores here: ``rank // lnc`` is the rank, ``rank % lnc`` the core. A core that exchanges
    with itself is refused, so it receives from each of the others on a pipe of its own, and then reduces what it has in
    group order, bit for bit as the collective does.

    Args:
        call: the collective, of one operand.
        lnc: how many cores a rank has.
        where: the author's source line, which all instructions get.

    Returns:
        A kernel that takes and gives ``[lnc, …]`` on each rank.

    Raises:
        InputError: it is no such all-reduce.
    """
    c, ranks = call.collective, call.world // lnc
    orders = {tuple(r % lnc for r in g) for g in c.groups}
    own = {frozenset(range(r * lnc, (r + 1) * lnc)) for r in range(ranks)}
    if c.kind is not Kind.ALL_REDUCE or len(call.operands) != 1 or lnc < 2 or call.world % lnc:
        raise InputError(f"{call.label}: only an all-reduce of one operand is an exchange among the cores of a rank")
    if {frozenset(g) for g in c.groups} != own or len(orders) != 1:
        raise InputError(
            f"{call.label}: its groups are not the {lnc} cores of each rank, in one order", "take them as ranks"
        )
    (order,), shape, op = orders, call.operands[0], AluOp.of(str(c.reduce_op))
    builders = []
    for core in range(lnc):
        b = KernelBuilder(ranks, lnc, core)
        x = b.input("p0", (lnc, *shape.dims), shape.dtype, Space.SHARED_HBM)
        y = b.tensor((lnc, *shape.dims), shape.dtype, Space.SHARED_HBM, "o0")
        parts = {n: b.tensor((1, shape.count), shape.dtype, Space.SBUF, f"of-core-{n}") for n in range(lnc)}
        b.dma_copy(parts[core], x[core])
        for step in range(1, lnc):
            source = (core - step) % lnc
            b.sendrecv_cce(parts[source], parts[core], (core + step) % lnc, [source], op, pipe_id=step)
        b.compute("group_reduce", [y[core]], [parts[n] for n in order], op=op.name.lower())
        b.output(y)
        builders.append(b)
    return _finished(builders, call, where)
