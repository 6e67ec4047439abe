"""`KernelBuilder`: what a kernel calls while it is traced, one builder for each core's program.

Two ways lead into the program. Collectives that only say who talks to whom go by `insert_raw_cc`, which marks the
kernel as one that has collectives; what weaves a barrier or a register into a core's own stream goes by `insert`.
The builder picks the class of the op and fills its routing; the class implies the kind (see `op_classes`).

Methods ending in ``_cc_raw`` take their groups from the caller; those ending in ``_cc`` ask `parallel_state` and call
the raw one. All of them raise InputError where what they are given cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crossrank.collective.groups import ReplicaGroups
from crossrank.errors import InputError, ask, counted
from crossrank.instr import parallel_state
from crossrank.instr.fields import Pairs
from crossrank.instr.grid import ProgramAxis, program_ids
from crossrank.instr.instructions import Instruction
from crossrank.instr.kinds import AluOp, Space
from crossrank.instr.op_classes import (
    AllGatherOp,
    AllReduceOp,
    AlltoAllOp,
    AlltoAllVOp,
    BroadcastOp,
    CollectivePermuteOp,
    CollectivePermuteReduceOp,
    CoreBarrierOp,
    GetCurProcessingRankID,
    GetGlobalRankId,
    Op,
    RecvOp,
    ReduceScatterOp,
    SendOp,
    SendRecvCCEOp,
    SendRecvOp,
    TiledAllReduceOp,
    TiledCollectivePermuteOp,
    TiledCollectivePermuteReduceOp,
)
from crossrank.instr.stream import InstructionStream, integer_lists
from crossrank.instr.tensors import Register, View, element_type
from crossrank.instr.verify import check_arch, check_groups, check_members, check_pairs

Routes = Sequence[Sequence[int]]
Groups = Routes | ReplicaGroups
"""Lists of ranks, or one of HLO's forms of them: explicit, iota, axes of a mesh."""


class KernelBuilder(InstructionStream):
    """Builds the program of one core.

    Args:
        world_size: how many ranks there are.
        lnc: how many cores a rank has.
        core: which of them this program is for.
        grid: the launch grid; a program of it is a core. None: the kernel has no grid.
        arch: the architecture level: 20, 30, 40.

    Attributes:
        has_collectives: whether a collective was inserted by `insert_raw_cc`.
    """

    def __init__(
        self, world_size: int = 1, lnc: int = 1, core: int = 0, grid: Sequence[int] | None = None, arch: int = 40
    ) -> None:
        for name, number in (("world_size", world_size), ("lnc", lnc), ("core", core)):
            if not isinstance(number, int):
                raise InputError(f"{name} is {number!r}, not a whole number")
        if min(world_size, lnc) < 1 or not 0 <= core < lnc:
            raise InputError(f"there is no core {core} of {lnc} on {counted(world_size, 'rank')}")
        super().__init__(core)
        self.world_size = world_size
        self.lnc = lnc
        self.arch = arch
        self.has_collectives = False
        self.program_axes: tuple[ProgramAxis, ...] = ()
        self.program_barriers: list[str] = []
        self.post_process_spmd_grid(grid)

    # The two ways into the program

    def insert_raw_cc(self, inst: Op) -> Instruction:
        """Insert a collective that only says who talks to whom: marks the kernel, and is `insert_raw` otherwise."""
        self.has_collectives = True
        return self.insert_raw(inst)

    def insert(self, inst: Op) -> Instruction:
        """Insert an op that works on tiles of this core's own stream."""
        return self.insert_raw(inst)

    # Checks and operand mapping

    def _map_to_nd_access(self, views: Sequence[View]) -> list[View]:
        """Operands of group collectives: any elements of a tensor, as an access pattern."""
        return _tensors(views)

    def _map_to_hbm_tensors(self, views: Sequence[View]) -> list[View]:
        """Operands of permutes: whole tensors in HBM."""
        found = _tensors(views)
        for view in found:
            if not view.buffer.is_hbm:
                raise InputError(f"a permute takes tensors in HBM, and {view} lies in {view.buffer}", "use a tiled one")
            if not view.is_whole:
                raise InputError("Cannot legalize strided load/store!", f"{view} is a part of one; use a tiled permute")
        return found

    def combine_tiles(self, views: Sequence[View]) -> list[View]:
        """Operands of tiled ops: tiles of any tensor, each as one access pattern."""
        return _tensors(views)

    def _groups(self, groups: Groups, is_local: bool = False) -> Pairs:
        if isinstance(groups, ReplicaGroups):
            groups = groups.expand()
        found = integer_lists(groups, "replica groups")
        check_groups(found, ask)
        check_members([m for g in found for m in g], self.lnc if is_local else self.world_size, is_local, ask)
        return found

    def _pairs(self, pairs: Routes, is_local: bool = False) -> Pairs:
        found = integer_lists(pairs, "source-target pairs")
        check_pairs(found, ask)
        check_members([m for p in found for m in p], self.lnc if is_local else self.world_size, is_local, ask)
        return found

    def _typed(self, srcs: Sequence[View], dsts: Sequence[View], dtype: Any) -> dict[str, Any]:
        """The operands; ``dtype``, where it is given, is their type."""
        wanted = None if dtype is None else element_type(dtype)
        for view in (*srcs, *dsts):
            if wanted not in (None, view.element):
                raise InputError(f"dtype is {wanted}, and {view} has elements of {view.element}", "copy it first")
        return {"srcs": srcs, "dsts": dsts}

    def _prepared(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        dtype: Any,
        dma_qos: int | None,
        mapped: Callable[[Sequence[View]], list[View]] | None = None,
    ) -> dict[str, Any]:
        """What all raw collectives do with their operands; ``mapped``: how, if not as those of group collectives."""
        self.validate_dma_qos(dma_qos)
        mapped = mapped or self._map_to_nd_access
        return self._typed(mapped(srcs), mapped(dsts), dtype) | {"dma_qos": dma_qos}

    def _grouped(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        dtype: Any,
        dma_qos: int | None,
        is_local: bool,
        name: str | None,
        mapped: Callable[[Sequence[View]], list[View]] | None = None,
    ) -> dict[str, Any]:
        """What the raw collectives with groups have in common."""
        groups = self._groups(replica_groups, is_local)
        prepared = self._prepared(srcs, dsts, dtype, dma_qos, mapped)
        return prepared | {"replica_groups": groups, "is_local": is_local, "name": name}

    # Group collectives

    def all_reduce_cc_raw(
        self,
        op: Any,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        dtype: Any = None,
        tiled: bool = False,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """All-reduce. ``is_local``: among the cores of each rank; groups are then of cores."""
        cls = TiledAllReduceOp if tiled else AllReduceOp
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name)
        return self.insert_raw_cc(cls(**common, op=reduction(op)))

    def all_reduce_cc(
        self,
        op: Any,
        srcs: Sequence[View],
        dsts: Sequence[View],
        dtype: Any = None,
        tiled: bool = False,
        dma_qos: int | None = None,
    ) -> Instruction:
        """All-reduce over all ranks."""
        groups = parallel_state.gen_all_worker_group(self.world_size)
        return self.all_reduce_cc_raw(op, srcs, dsts, groups, dtype, tiled, dma_qos)

    def all_gather_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        all_gather_dim: int,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """All-gather along dimension 0 (partition) or 1 (free)."""
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name)
        return self.insert_raw_cc(AllGatherOp(**common, all_gather_dim=all_gather_dim))

    def all_gather_cc(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        all_gather_dim: int,
        dtype: Any = None,
        dma_qos: int | None = None,
    ) -> Instruction:
        """All-gather over all ranks."""
        groups = parallel_state.gen_all_worker_group(self.world_size)
        return self.all_gather_cc_raw(srcs, dsts, groups, all_gather_dim, dtype, dma_qos)

    def reduce_scatter_cc_raw(
        self,
        op: Any,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        reduce_scatter_dim: int,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Reduce-scatter along dimension 0 (partition) or 1 (free)."""
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name)
        return self.insert_raw_cc(ReduceScatterOp(**common, op=reduction(op), reduce_scatter_dim=reduce_scatter_dim))

    def reduce_scatter_cc(
        self,
        op: Any,
        srcs: Sequence[View],
        dsts: Sequence[View],
        reduce_scatter_dim: int,
        dtype: Any = None,
        dma_qos: int | None = None,
    ) -> Instruction:
        """Reduce-scatter over all ranks."""
        groups = parallel_state.gen_all_worker_group(self.world_size)
        return self.reduce_scatter_cc_raw(op, srcs, dsts, groups, reduce_scatter_dim, dtype, dma_qos)

    def all_to_all_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        split_dimension: int | None,
        concat_dimension: int | None,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """All-to-all: splits one dimension, joins another (or the same)."""
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name)
        return self.insert_raw_cc(
            AlltoAllOp(**common, split_dimension=split_dimension, concat_dimension=concat_dimension)
        )

    def all_to_all_cc(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        split_dimension: int | None,
        concat_dimension: int | None,
        dtype: Any = None,
        dma_qos: int | None = None,
    ) -> Instruction:
        """All-to-all over all ranks."""
        groups = parallel_state.gen_all_worker_group(self.world_size)
        return self.all_to_all_cc_raw(srcs, dsts, groups, split_dimension, concat_dimension, dtype, dma_qos)

    def all_to_all_v_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        metadata: View,
        recv_counts_known: bool = False,
        has_rdispls: bool = False,
        phase: str = "",
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        uniform_send: bool = False,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Variable all-to-all, or its halves ``prepare`` and ``trigger``; ``uniform_send``: a variable all-gather.

        ``metadata`` is uint32, ``[rows, group]`` or ``[1, rows, group]``: counts and displacements to send, counts to
        receive (written unless ``recv_counts_known``), and with ``has_rdispls`` displacements at the receiver.
        """
        if phase not in ("", "prepare", "trigger"):
            raise InputError(f"the phase is 'prepare', 'trigger' or empty, not {phase!r}")
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name)
        (metadata,) = _tensors([metadata])
        rows, members = 3 + has_rdispls, len(common["replica_groups"][0])
        if metadata.shape not in ((rows, members), (1, rows, members)) or metadata.element.name != "u32":
            raise InputError(
                f"the metadata is uint32 of shape {[rows, members]}, and {metadata} has elements of {metadata.element}"
            )
        return self.insert_raw_cc(
            AlltoAllVOp(
                **common,
                metadata=metadata,
                recv_counts_known=recv_counts_known,
                has_rdispls=has_rdispls,
                uniform_send=uniform_send,
                phase=phase,
            )
        )

    def broadcast_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        broadcast_sizes: Sequence[int],
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Broadcast from the first of each group. ``broadcast_sizes``: the extents that are sent; empty: all."""
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name)
        return self.insert_raw_cc(BroadcastOp(**common, broadcast_sizes=integer_lists([broadcast_sizes], "extents")[0]))

    def broadcast_cc(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        broadcast_sizes: Sequence[int],
        dtype: Any = None,
        dma_qos: int | None = None,
    ) -> Instruction:
        """Broadcast from rank 0 to all."""
        groups = parallel_state.gen_all_worker_group(self.world_size)
        return self.broadcast_cc_raw(srcs, dsts, groups, broadcast_sizes, dtype, dma_qos)

    # Permutes

    def collective_permute_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Send whole tensors to the next in each group."""
        mapped = self._map_to_hbm_tensors
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name, mapped)
        return self.insert_raw_cc(CollectivePermuteOp(**common))

    def collective_permute_cc(
        self, srcs: Sequence[View], dsts: Sequence[View], dtype: Any = None, dma_qos: int | None = None
    ) -> Instruction:
        """Send whole tensors to the next rank."""
        groups = parallel_state.gen_all_collective_permute_config(self.world_size)
        return self.collective_permute_cc_raw(srcs, dsts, groups, dtype, dma_qos)

    def collective_permute_reduce_cc_raw(
        self,
        op: Any,
        srcs: Sequence[View],
        dsts: Sequence[View],
        src_tgt_pairs: Routes,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        extension: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Send the reduction of two tensors along pairs: refused by the source, made with ``extension=True``."""
        prepared = self._prepared(srcs, dsts, dtype, dma_qos)
        return self.insert_raw_cc(
            CollectivePermuteReduceOp(
                **prepared, op=reduction(op), src_tgt_pairs=self._pairs(src_tgt_pairs), extension=extension, name=name
            )
        )

    def tiled_collective_permute_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        src_tgt_pairs: Routes,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Send tiles along pairs; a rank that is no target keeps what it has."""
        prepared = self._prepared(srcs, dsts, dtype, dma_qos, self.combine_tiles)
        pairs = self._pairs(src_tgt_pairs, is_local)
        return self.insert_raw_cc(
            TiledCollectivePermuteOp(**prepared, src_tgt_pairs=pairs, is_local=is_local, name=name)
        )

    def tiled_collective_permute_implicit_cc_raw(
        self,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        channel_id: int,
        num_channels: int,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Send tiles to the next in each group, on one of 1, 2 or 4 channels; odd channels go round the other way."""
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name, self.combine_tiles)
        return self.insert_raw_cc(TiledCollectivePermuteOp(**common, **self._channel(channel_id, num_channels)))

    def tiled_collective_permute_reduce_implicit_cc_raw(
        self,
        op: Any,
        srcs: Sequence[View],
        dsts: Sequence[View],
        replica_groups: Groups,
        channel_id: int,
        num_channels: int,
        dtype: Any = None,
        dma_qos: int | None = None,
        *,
        is_local: bool = False,
        name: str | None = None,
    ) -> Instruction:
        """Send the reduction of two tiles to the next in each group, on one of several channels."""
        common = self._grouped(srcs, dsts, replica_groups, dtype, dma_qos, is_local, name, self.combine_tiles)
        channel = self._channel(channel_id, num_channels)
        alu = reduction(op, "err_instruction_unsupported_op")
        return self.insert_raw_cc(TiledCollectivePermuteReduceOp(**common, **channel, op=alu))

    def _channel(self, channel_id: int, num_channels: int) -> dict[str, Any]:
        if num_channels not in (1, 2, 4):
            raise InputError(f"num_channels is 1, 2 or 4, not {num_channels}")
        if channel_id not in range(num_channels):
            raise InputError(f"channel_id {channel_id} is none of the {num_channels} channels")
        return {"channel_id": channel_id, "num_channels": num_channels}

    # Point to point

    def send_cc_raw(self, srcs: Sequence[View], peer_id: int, dma_qos: int | None = None) -> Instruction:
        """Send to a rank; does not wait for it."""
        self._peer(peer_id)
        self.validate_dma_qos(dma_qos)
        return self.insert_raw_cc(SendOp(srcs=self._map_to_nd_access(srcs), peer_id=peer_id, dma_qos=dma_qos))

    def recv_cc_raw(self, dsts: Sequence[View], peer_id: int, dma_qos: int | None = None) -> Instruction:
        """Receive what a rank sends."""
        self._peer(peer_id)
        self.validate_dma_qos(dma_qos)
        return self.insert_raw_cc(RecvOp(dsts=self._map_to_nd_access(dsts), peer_id=peer_id, dma_qos=dma_qos))

    def _peer(self, peer_id: int) -> None:
        if peer_id not in range(self.world_size):
            raise InputError(f"peer {peer_id} is none of the {counted(self.world_size, 'rank')}")

    def sendrecv(
        self,
        dst: View,
        src: View,
        send_to_rank: int,
        recv_from_rank: int,
        pipe_id: int,
        use_gpsimd_dma: bool = False,
        dma_qos: int | None = None,
        mask: bool | None = None,
        deps: Sequence[str] | None = None,
        name: str | None = None,
    ) -> Instruction | None:
        """Exchange tiles with other cores of the rank. With ``mask=False`` nothing is inserted."""
        self.validate_dma_qos(dma_qos)
        if not scalar_mask(mask, "sendrecv can only support scalar mask"):
            return None
        dst, src = self.combine_tiles([dst, src])
        return self.insert(
            SendRecvOp(
                srcs=[src],
                dsts=[dst],
                send_to_rank=self._core_id(send_to_rank, "The sendToRank must be a integer"),
                recv_from_rank=self._core_id(recv_from_rank, "The recvFromRank must be a integer"),
                pipe_id=_integer(pipe_id, "The pipeId must be a integer"),
                use_gpsimd_dma=bool(use_gpsimd_dma),
                dma_qos=dma_qos,
                deps=tuple(deps or ()),
                name=name,
            )
        )

    def sendrecv_cce(
        self,
        dst: View,
        src: View,
        send_to_rank: int,
        recv_from_ranks: Sequence[int],
        op: Any,
        pipe_id: int,
        dma_qos: int | None = None,
        mask: bool | None = None,
        deps: Sequence[str] | None = None,
        name: str | None = None,
    ) -> Instruction | None:
        """Send to a core of the rank, and get the reduction of what several cores send."""
        self.validate_dma_qos(dma_qos)
        if not scalar_mask(mask, "sendrecv_cce can only support scalar mask"):
            return None
        dst, src = self.combine_tiles([dst, src])
        return self.insert(
            SendRecvCCEOp(
                srcs=[src],
                dsts=[dst],
                op=reduction(op),
                send_to_rank=self._core_id(send_to_rank, "The sendToRank must be a integer"),
                recv_from_ranks=tuple(self._core_id(r, "The recvFromRank must be a integer") for r in recv_from_ranks),
                pipe_id=_integer(pipe_id, "The pipeId must be a integer"),
                dma_qos=dma_qos,
                deps=tuple(deps or ()),
                name=name,
            )
        )

    def _core_id(self, core: Any, text: str) -> int:
        found = _integer(core, text)
        if not 0 <= found < self.lnc:
            raise InputError(f"core {found} is none of the {counted(self.lnc, 'core')} of a rank")
        return found

    # Cores, ranks, the grid

    def core_barrier(
        self, wait_target: View, cores: Sequence[int], engine: str = "gpsimd", name: str | None = None
    ) -> Instruction:
        """Wait until ``cores`` have come here, so that what they wrote to ``wait_target`` is there."""
        (wait_target,) = _tensors([wait_target])
        if not wait_target.buffer.is_hbm:
            raise InputError("core_barrier can only wait for HBM Tensor.")
        if not wait_target.is_whole:
            raise InputError("core_barrier can only wait for full HBM Tensor, but tile of HBM Tensor is passed in.")
        return self._barrier(cores, engine, name)

    def _barrier(self, cores: Sequence[int], engine: str = "gpsimd", name: str | None = None) -> Instruction:
        check_arch(self.arch, "core_barrier", ask)
        (found,) = integer_lists([cores], "cores")
        check_members(found, self.lnc, True, ask)
        semaphore = self.tensor((1, 1), "u32", Space.SBUF, f"semaphore-{self._count('semaphore')}")
        (data,) = self.combine_tiles([semaphore])
        inst = self.insert(CoreBarrierOp(data=data, cores=found, engine=engine, name=name))
        self.program_barriers.append(inst.label)
        return inst

    def rank_id(
        self, dst: View | None = None, world_size: int | None = None, mask: Any = None, name: str | None = None
    ) -> Register:
        """The number of this rank, in a register; in ``dst`` too, where that is given. A mask of 0 gives 0."""
        masked = scalar_mask(mask, "rank_id can only support scalar mask")
        inst = self.insert(GetGlobalRankId(world_size=world_size or self.world_size, name=name))
        assert inst.result is not None
        register = Register(self, inst.result)
        if isinstance(masked, Register):
            register = register * masked.ne(0)
        elif not masked:
            register = register * 0
        if dst is not None:
            self.register_store(dst, register)
        return register

    def cur_processing_rank_id(
        self,
        iteration_id: int,
        replica_groups: Groups,
        channel_id: int = 0,
        num_channels: int = 1,
        name: str | None = None,
    ) -> Register:
        """The rank whose data this rank holds after ``iteration_id`` steps of an implicit permute, in a register."""
        groups = self._groups(replica_groups)
        op = GetCurProcessingRankID(
            iteration_id=int(iteration_id),
            replica_groups=groups,
            channel_id=channel_id,
            num_channels=num_channels,
            name=name,
        )
        inst = self.insert(op)
        assert inst.result is not None
        return Register(self, inst.result)

    def sync_program(self, axes: Sequence[int] | None = None) -> list[Instruction]:
        """Make the programs that differ along ``axes`` of the grid (all of them if None) meet; returns the barriers."""
        wanted = {int(a) for a in (range(len(self.program_axes)) if axes is None else axes)}
        if not wanted <= set(range(len(self.program_axes))):
            raise InputError(f"the grid {[a.extent for a in self.program_axes]} has no axis {max(wanted)}")
        cores = [
            core
            for core, ids in enumerate(program_ids(self.program_axes))
            if all(ids[a.axis] == int(a) for a in self.program_axes if a.axis not in wanted)
        ]
        return [self._barrier(cores)] if len(cores) > 1 else []

    def post_process_spmd_grid(self, grid: Sequence[int] | None) -> tuple[int, ...]:
        """Lay the launch grid over the cores, row by row; returns this core's program ids.

        Each program of the grid is a core of the rank, so there may not be more of them than cores.
        """
        extents = tuple(int(n) for n in grid or ())
        ids = program_ids([ProgramAxis(0, a, n) for a, n in enumerate(extents)])
        if any(n < 1 for n in extents) or len(ids) > self.lnc:
            raise InputError(
                f"a grid of {list(extents)} has {counted(len(ids), 'program')}, "
                f"and a rank has {counted(self.lnc, 'core')}",
                f"say lnc={len(ids)}: each program of the grid is a core",
            )
        mine = ids[self.core] if self.core < len(ids) else (0,) * len(extents)
        self.program_axes = tuple(ProgramAxis(i, a, n) for a, (i, n) in enumerate(zip(mine, extents, strict=True)))
        return mine

    def post_process_allreduce_result(
        self,
        program_axes: Sequence[Any] = (),
        reduce_axes: Sequence[Any] = (),
        parallel_axes: Sequence[Any] = (),
        is_async: bool = False,
    ) -> list[Instruction]:
        """Make the result of an all-reduce over program axes seen by its consumers; returns the barriers.

        Args:
            program_axes: axes of the grid that were reduced over.
            reduce_axes: loop axes that were reduced over; loops are unrolled, so that these ask for nothing.
            parallel_axes: what runs beside it: axes of the grid among them meet too.
            is_async: the result is waited for elsewhere: no barrier.
        """
        if any(not isinstance(a, ProgramAxis) for a in program_axes):
            raise InputError(
                "program_axes of all_reduce must be program_id! Consider use loop_reduce or reduce instead."
            )
        if any(isinstance(a, ProgramAxis) for a in reduce_axes):
            raise InputError("reduce_axes of all_reduce cannot be program_id!")
        axes = {a.axis for a in (*program_axes, *parallel_axes) if isinstance(a, ProgramAxis)}
        return [] if is_async or not axes else self.sync_program(sorted(axes))

    def program_id(self, axis: int = 0) -> ProgramAxis:
        """This program's number along an axis of the grid."""
        if axis not in range(len(self.program_axes)):
            raise InputError(f"the launch grid has {len(self.program_axes)} axes, and so no axis {axis}")
        return self.program_axes[axis]


def reduction(op: Any, text: str = "") -> AluOp:
    """The reduction that ``op`` says; ``text`` is the error where there is none."""
    try:
        return AluOp.of(op)
    except ValueError as error:
        raise InputError(text or str(error), "reductions are add, multiply, maximum, minimum, average") from None


def scalar_mask(mask: Any, text: str) -> Any:
    """The mask, True where there is none; ``text`` is the error where it is no scalar."""
    if mask is None or isinstance(mask, Register):
        return True if mask is None else mask
    if getattr(mask, "shape", ()) != () or (not isinstance(mask, (bool, int)) and not hasattr(mask, "item")):
        raise InputError(text)
    return bool(mask)


def _tensors(given: Any) -> list[View]:
    """The operands of an instruction."""
    if isinstance(given, View) or not isinstance(given, Iterable):
        raise InputError(f"operands are lists of tensors, not {given}", "put it into a list")
    views = list(given)
    for view in views:
        if not isinstance(view, View):
            raise InputError(f"an operand is a tensor of the kernel, not {type(view).__name__}")
    return views


def _integer(value: Any, text: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, Register):
        raise InputError(text)
    return int(value)
