"""What is asked of a collective in a host orchestrator before it is dispatched. Texts are those of the language."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects import scf

from crossrank.errors import InputError
from crossrank.program.builtins import (
    DISPATCH,
    MOST_CORES,
    RING,
    SOURCE_RANKS,
    Variant,
    builtin_of,
    operands_of,
    ring_rows,
    role,
)
from crossrank.program.dialect.around import around
from crossrank.program.dialect.calls import CommDomainScopeOp
from crossrank.program.dialect.collectives import (
    AllReduceOp,
    AllToAllVOp,
    BarrierOp,
    BroadcastOp,
    CollectiveOp,
    IndexedAllToAllVOp,
    ReduceScatterOp,
)
from crossrank.program.dialect.tensors import known, shaped
from crossrank.program.kinds import ReduceOp
from crossrank.program.program import where
from crossrank.program.types import Dim, DistTensorType, spelled


class Operands:
    """The operands of a collective of the host, and the domain that they are in.

    Attributes:
        ranks: the extent of the signal that counts ranks; of a ring's, rounds.
        lanes: its other extent; None where it has but one.
        devices: the numbers of the domain's devices; None: all that there are.

    Raises:
        InputError: an operand is no view of a window, or no domain has all of them.
    """

    def __init__(self, op: CollectiveOp) -> None:
        self.op = op
        self.builtin = builtin_of(op)
        self.tensors = operands_of(op)
        self.ranks, self.lanes = self._signal()
        self.devices = self._domain(self._windows())

    def ask(self, holds: object, what: str, remedy: str = "") -> None:
        """Raise an InputError that begins with the author's place, where something does not hold."""
        if not holds:
            raise InputError(f"{where(self.op)}{what}", remedy)

    def _signal(self) -> tuple[Dim, Dim | None]:
        """The extents of the signal; one of a single dimension has a cell for each rank, and no lanes."""
        signal = self.tensors["signal"]
        title = self.op.title
        self.ask(signal is not None, f"{title} has no signal", "run synthesize-allreduce-signals before it")
        assert signal is not None
        shape = shaped(signal).shape
        self.ask(
            len(shape) in (1, 2),
            f"{title}: collective signal must be rank-1 [world_size] or rank-2 [world_size, signal_stride]",
        )
        return shape[0], shape[1] if len(shape) == 2 else None

    def _windows(self) -> set[str]:
        """The windows that the operands are views of."""
        found = {n: v.type.window if isinstance(v.type, DistTensorType) else "" for n, v in self.tensors.items()}
        for name, window in found.items():
            self.ask(
                window,
                f"{self.op.title} {role(self.op, name)} must be a window-bound DistributedTensor (a view of an "
                "alloc_window_buffer) when called from a HOST orchestrator; a plain Tensor or an unbound "
                "DistributedTensor parameter is only supported on the InCore composite path",
            )
        return set(found.values())

    def _domain(self, windows: set[str]) -> Sequence[int] | None:
        """The devices of the innermost domain around it that has all its windows."""
        for scope in around(self.op):
            if isinstance(scope, CommDomainScopeOp) and windows <= {w.data for w in scope.windows}:
                return scope.device_list
        raise InputError(
            f"{where(self.op)}{self.op.title} window buffers must resolve to the same comm-domain scope",
            f"dispatch to the same devices what is given {' and '.join(sorted(windows))}",
        )

    def check(self, aiv_cores: int) -> None:
        """Raise an InputError where the signal, the root or the cores cannot be.

        Args:
            aiv_cores: as many cores as a device has; 0: nobody says.
        """
        if self.builtin is RING:
            self._check_ring()
        else:
            self._check_signal(aiv_cores)
        if isinstance(self.op, BroadcastOp) and self.devices is not None:
            root, count = self.op.root.value.data, len(self.devices)
            self.ask(
                root < count,
                f"{self.op.title} root ({root}) must be a valid rank in [0, {count}) for this explicit device subset",
            )

    def _check_signal(self, aiv_cores: int) -> None:
        title, devices = self.op.title, 0 if self.devices is None else len(self.devices)
        self.ask(
            not isinstance(self.ranks, int) or self.ranks >= devices,
            f"{title}: collective signal shape[0] ({self.ranks}) must be at least the participating device count "
            f"({devices})",
        )
        value = getattr(self.op, "core_num", None)
        count = 1 if value is None else known(value)
        if count is None:
            return  # the dispatch asks
        self.ask(1 <= count <= MOST_CORES, f"core_num must be in [1, {MOST_CORES}], got {count}")
        if self.builtin.folds:
            return  # how many it is launched in depends on the ranks: the dispatch asks
        self.ask(
            not aiv_cores or count <= aiv_cores,
            f"{title} core_num ({count}) exceeds the backend AIV core count ({aiv_cores})",
        )
        self.ask(
            count == 1 or self.lanes is not None,
            f"{title}: rank-1 signal is valid only when one signal lane is required",
            f"view it as [world_size, {count}]",
        )
        self.ask(
            not isinstance(self.lanes, int) or self.lanes >= count,
            f"{title}: collective rank-2 signal shape[1] ({self.lanes}) must be at least the required lane count "
            f"({count})",
        )

    def _check_ring(self) -> None:
        """A row of cells for each barrier of a ring, which has one in each of its rounds, and one more."""
        assert isinstance(self.op, AllReduceOp)
        core_num, rows, columns = self.op.core_num, self.ranks, self.lanes
        count = 1 if core_num is None else known(core_num)
        self.ask(
            count == 1,
            'HOST pld.tensor.allreduce mode="ring" does not support core_num > 1, got core_num='
            f'{"<known at run time only>" if count is None else count}; use mode="mesh" for a multi-core AllReduce',
        )
        title = f"{self.op.title}: ring allreduce"
        self.ask(columns is not None, f"{title} signal must be rank-2 [2*(NR-1) + 1, NR], got rank 1")
        ranks = columns if self.devices is None else len(self.devices)
        if not isinstance(ranks, int):
            return  # the dispatch asks
        least = ring_rows(ranks)
        if isinstance(rows, int):
            said = f"{title} signal shape[0] ({rows}) must"
            self.ask(rows >= least, f"{said} be at least 2*(NR-1) + 1 = {least} for NR = {ranks}")
            self.ask(rows == least, f"{said} equal 2*(NR-1) + 1 = {least} for NR = {ranks}")
        self.ask(
            not isinstance(columns, int) or columns == ranks,
            f"{title} signal shape[1] ({columns}) must equal the participating device count ({ranks})",
        )

    def check_as_source(self, variant: Variant) -> None:
        """Raise an InputError where the source's kernels do not go."""
        op, element, name = self.op, spelled(variant.element), f"{DISPATCH}{self.builtin.name}"
        self.ask(not isinstance(op, IndexedAllToAllVOp), f"{op.title} {IndexedAllToAllVOp.SOURCE_RAIL}")
        if isinstance(op, AllReduceOp) and self.builtin is not RING:
            self.ask(element in ("FP16", "FP32"), f"{name} currently supports only FP16 or FP32, got {element}")
        elif isinstance(op, AllToAllVOp):
            self.ask(element in ("FP32", "INT8"), f"{name} currently supports only FP32 or INT8, got {element}")
            self.ask(
                not any(isinstance(o, scf.ForOp) for o in around(op)),
                f"{op.title} is not supported inside a for/while loop in a HOST orchestrator.",
            )
        elif variant.op is None:
            self.ask(element == "FP32", f"{name} currently supports only dtype=FP32; got {element}")
        else:
            said = f"(op=ReduceOp.{variant.op.name}, dtype={element})"
            self.ask(
                variant.op is ReduceOp.Sum and element == "FP32",
                f"{name} currently supports only (op=ReduceOp.Sum, dtype=FP32); got {said}",
            )
        if self.builtin is RING:
            self._check_ring_as_source()
            return
        ranks = 0 if self.devices is None else len(self.devices)
        self.ask(ranks <= SOURCE_RANKS, f"{name} requires {SOURCE_RANKS} or fewer participating devices, got {ranks}")
        if isinstance(op, (BarrierOp, BroadcastOp, ReduceScatterOp)):
            self.ask(self.lanes is None, f"{name} signal must be a rank-1 DistributedTensor, got rank 2")
        constant = self.lanes is None or isinstance(self.lanes, int)
        self.ask(constant, f"{op.title}: collective rank-2 signal shape[1] must be constant")

    def _check_ring_as_source(self) -> None:
        """So many ranks, each of which has as large a part of the data as any other."""
        ranks = self.lanes if self.devices is None else len(self.devices)
        title = f"{self.op.title}: ring allreduce requires"
        if not isinstance(ranks, int):
            return
        self.ask(ranks <= SOURCE_RANKS, f"{title} {SOURCE_RANKS} or fewer participating devices, got {ranks}")
        data = shaped(self.op.returned)
        self.ask(
            data.is_static,
            f"{title} a statically-known src shape (dynamic host-ring extents are not supported; the ring schedule "
            "partitions src into NR compile-time chunks)",
        )
        size = math.prod(data.extents)
        self.ask(
            size % ranks == 0,
            f"{title} the per-rank data size (product of src shape = {size}) to be an exact multiple of the rank count "
            f"({ranks}); got a remainder of {size % ranks}",
        )
