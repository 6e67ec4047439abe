"""``pld``: what ranks share and say to each other. ``import crossrank.program.language.distributed as pld``."""

from __future__ import annotations

from typing import Any

from crossrank.program.kinds import AtomicType as AtomicType
from crossrank.program.kinds import NotifyOp as NotifyOp
from crossrank.program.kinds import ReduceOp as ReduceOp
from crossrank.program.kinds import WaitCmp as WaitCmp
from crossrank.program.language.annotations import DistributedTensor as DistributedTensor
from crossrank.program.language.builder import Builder
from crossrank.program.language.distributed import system as system
from crossrank.program.language.distributed import tensor as tensor
from crossrank.program.language.distributed import tile as tile
from crossrank.program.language.distributed.tile import remote_load as remote_load
from crossrank.program.language.distributed.windows import alloc_window_buffer as alloc_window_buffer
from crossrank.program.language.distributed.windows import get_comm_ctx as get_comm_ctx
from crossrank.program.language.distributed.windows import nranks as nranks
from crossrank.program.language.distributed.windows import rank as rank
from crossrank.program.language.distributed.windows import window as window
from crossrank.program.language.distributed.windows import world_size as world_size
from crossrank.program.language.op import KERNEL, op
from crossrank.program.language.operands import is_tile


@op("pld.remote_store", KERNEL, takes="4 positional arguments (src, target, peer, offsets)")
def remote_store(b: Builder, src: Any, target: Any, peer: Any, offsets: Any, *, atomic: Any = AtomicType.None_) -> Any:
    """`pld.tile.remote_store` of a tile, `pld.tensor.remote_store` of a tensor."""
    word = tile.remote_store if is_tile(src) else tensor.remote_store
    return word.emit(b, [src, target, peer, offsets], {"atomic": atomic})
