"""What wrong calls of words are told: the texts that are the language's own, and where they stand."""

from __future__ import annotations

import pytest

from crossrank.errors import InputError
from crossrank.program.kinds import Level
from crossrank.program.language.op import CHIP, HOST, KERNEL
from crossrank.program.program import read_program
from tests.program.language.bench import line

T, U = "Tensor[[4, 64], FP32]", "Tile[[4, 64], FP32]"

# fmt: off
KERNELS = {
    # remote tiles
    "pld.tile.remote_load(t, 0, [0, 0], [1, 64])":
        f"pld.tile.remote_load expects a DistributedTensor target (window-bound); got {T}",
    "pld.tile.remote_load(win, 0, [0, 0])":
        "pld.tile.remote_load requires 4 or 5 positional arguments (target, peer, offsets, shape[, valid_shape]), "
        "but got 3",
    "pld.tile.remote_load(win, [0], [0, 0], [1, 64])":
        "pld.tile.remote_load peer must be a scalar (rank index), got list",
    "pld.tile.remote_load(win, 0, 0, [1, 64])":
        "pld.tile.remote_load offsets must be a tuple (MakeTuple of scalars), got int",
    "pld.tile.remote_load(win, 0, [0], [1, 64])":
        "pld.tile.remote_load offsets rank (1) must match target tensor rank (2)",
    "pld.tile.remote_load(win, 0, [0, 0], [64])":
        "pld.tile.remote_load shape rank (1) must match target tensor rank (2)",
    "pld.tile.remote_load(win, 0, [0, 0], [4, 64], [1])":
        "pld.tile.remote_load valid_shape rank (1) must match target tensor rank (2)",
    "pld.tile.remote_load(win, 0, [0, 0], [4, 64], [1, -1])":
        "pld.tile.remote_load valid_shape 1 is provably negative; a valid region cannot have a negative extent",
    "pld.tile.remote_load(win, 0, [1, 0], [4, 64])":
        "pld.tile.remote_load: elements 1 to 5 of dimension 0 are beyond its 4; pass a smaller valid_shape to describe "
        "a ragged remote-load tail",
    "pld.tile.remote_store(a, t, 0, [0, 0])":
        f"pld.tile.remote_store expects a DistributedTensor target (window-bound); got {T}",
    "pld.tile.remote_store(t, win, 0, [0, 0])":
        f"pld.tile.remote_store src_tile must be a TileType, got {T}. In a tensor-level kernel (@pl.jit) call "
        "pld.tensor.remote_store instead (pld.remote_store dispatches between the two).",
    "pld.tensor.remote_store(win2, win, 0, [0, 0])":
        "pld.tensor.remote_store expects a Tensor src (a tensor-level value); got DistributedTensor[[4, 64], FP32]. In "
        "a tile-level kernel use pld.tile.remote_store; to push one window buffer into another use pld.tensor.put.",
    "pld.tile.remote_store(i, win, 0, [0, 0])":
        "pld.tile.remote_store src dtype (INT32) must match target dtype (FP32)",
    "pld.tile.remote_store(pl.load(flat, [0], [64]), win, 0, [0, 0])":
        "pld.tile.remote_store src must be at least 2-D (it is pushed as a 2-D region), got rank 1",
    "pld.tile.remote_store(pl.tile.full([2, 1, 64], pl.FP32, 0), win, 0, [0, 0])":
        "pld.tile.remote_store src leading dimension 0 must be 1 (only the inner two dims are pushed, and larger "
        "leading dims fold into the row extent and overrun the target), got 2",
    "pld.tile.remote_store(a, line, 0, [0])":
        "pld.tile.remote_store target rank must be >= 2 to hold a 2-D push, got 1",
    "pld.tile.remote_store(pl.load(t, [0, 0], [4, 64]), win, 0, [1, 0])":
        "pld.tile.remote_store: elements 1 to 5 of dimension 0 are beyond its 4",
    "pld.tile.remote_store(pl.tile.full([1, 64], pl.INT64, 0), longs, 0, [0, 0], atomic=pld.AtomicType.Add)":
        "pld.tile.remote_store with atomic=AtomicType.Add requires an fp32/bf16/fp16/int32/int16/int8 tile (hardware "
        "atomic-add dtypes), but got INT64",
    # put and get
    "pld.tensor.put(win, 0)":
        "pld.tensor.put requires 3 positional arguments (dst, peer, src) or 6 (dst, peer, src, dst_offsets, "
        "src_offsets, shape), but got 2",
    "pld.tensor.put(t, 0, win)": f"pld.tensor.put expects a DistributedTensor dst (window-bound); got {T}",
    "pld.tensor.put(win, 0, a)": f"pld.tensor.put expects a Tensor or DistributedTensor src; got {U}",
    "pld.tensor.get(win, 0, t)": f"pld.tensor.get expects a DistributedTensor src (window-bound); got {T}",
    "pld.tensor.get(a, 0, win)": f"pld.tensor.get expects a Tensor or DistributedTensor dst; got {U}",
    "pld.tensor.put(win, t, t)": f"pld.tensor.put peer must be a scalar (rank index), got {T}",
    "pld.tensor.put(win, 0, half)":
        "pld.tensor.put dst and src must have the same element type, got dst FP32 vs src FP16",
    "pld.tensor.get(flat, 0, win)": "pld.tensor.get dst rank (1) must match src rank (2)",
    "pld.tensor.put(win, 0, row)":
        "pld.tensor.put dst and src must have the same static shape; dimension 0 differs (dst=4, src=1)",
    "pld.tensor.put(dynwin, 0, t, chunk_rows=1)":
        "pld.tensor.put full-slice dst and src must have the same shape; dimension 0 differs (dynamic dims must match "
        "structurally)",
    "pld.tensor.put(win, 0, t, [0, 0])":
        "pld.tensor.put dst_offsets, src_offsets, and shape must be provided together",
    "pld.tensor.get(t, 0, win, shape=[1, 64])":
        "pld.tensor.get dst_offsets, src_offsets, and shape must be provided together",
    "pld.tensor.put(win, 0, t, [0], [0, 0], [1, 64])": "pld.tensor.put dst_offsets rank must match dst rank",
    "pld.tensor.put(win, 0, t, [0, 0], [0], [1, 64])": "pld.tensor.put src_offsets rank must match src rank",
    "pld.tensor.put(win, 0, t, [0, 0], [0, 0], [64])": "pld.tensor.put shape rank must match tensor rank",
    "pld.tensor.put(win, 0, t, 0, [0, 0], [1, 64])":
        "pld.tensor.put dst_offsets must be a tuple (MakeTuple of scalars), got int",
    "pld.tensor.put(win, 0, t, [0, -1], [0, 0], [1, 64])":
        "pld.tensor.put dst_offsets dimension 1 must be non-negative, got -1",
    "pld.tensor.put(win, 0, t, [3, 0], [0, 0], [2, 64])":
        "pld.tensor.put dst subregion dimension 0 exceeds dst shape (offset=3, shape=2, dst_dim=4)",
    "pld.tensor.get(t, 0, win, [0, 0], [0, 1], [1, 64])":
        "pld.tensor.get src subregion dimension 1 exceeds src shape (offset=1, shape=64, src_dim=64)",
    "pld.tensor.put(win, 0, t, [0, 0], [0, 0], [0, 64])":
        "pld.tensor.put shape dimension 0 must be positive, got 0",
    "pld.tensor.put(win, 0, t, chunk_rows=-1)": "pld.tensor.put chunk_rows must be non-negative (0 = full), got -1",
    "pld.tensor.put(win, 0, t, chunk_rows=x)": "pld.tensor.put chunk_rows must be an int (static), got Scalar[INT32]",
    "pld.tensor.put(win, 0, t, chunk_rows=2, pipeline=True)":
        "pld.tensor.put pipeline=True requires both chunk_rows>0 and chunk_cols>0 (got chunk_rows=2, chunk_cols=0)",
    "pld.tensor.put(win, 0, t, [0, 0], [0, 0], [x, 64])":
        "pld.tensor.put: a dynamic leading transfer dim needs a static chunk_rows to bound the VEC staging tile",
    "pld.tensor.get(t, 0, win, [0, 0], [0, 0], [1, x])":
        "pld.tensor.get: a dynamic innermost transfer dim needs a static chunk_cols to bound the VEC staging tile",
    "pld.tensor.put(longs, 0, longs, atomic=pld.AtomicType.Add)":
        "pld.tensor.put with atomic=AtomicType.Add requires an fp32/bf16/fp16/int32/int16/int8 tensor (hardware "
        "atomic-add dtypes), but got INT64",
    "pld.tensor.get(t, 0, win, atomic=pld.AtomicType.Add)":
        "pld.tensor.get: got an unexpected keyword argument 'atomic'",
    # signals
    "pld.system.notify(sig, 0, [0, 0], op=pld.NotifyOp.Set)":
        "pld.system.notify requires exactly 4 positional arguments (target, peer, offsets, value), but got 3",
    "pld.system.notify(ids, 0, [0, 0], 1, op=pld.NotifyOp.Set)":
        "pld.system.notify target must be a DistributedTensor (window-bound), got Tensor[[4, 1], INT32]",
    "pld.system.notify(win, 0, [0, 0], 1, op=pld.NotifyOp.Set)":
        "pld.system.notify target dtype must be INT32, got FP32",
    "pld.system.notify(sig, a, [0, 0], 1, op=pld.NotifyOp.Set)":
        f"pld.system.notify peer must be a scalar (rank index), got {U}",
    "pld.system.notify(sig, 0, 0, 1, op=pld.NotifyOp.Set)":
        "pld.system.notify offsets must be a tuple (MakeTuple of scalars), got int",
    "pld.system.notify(sig, 0, [0], 1, op=pld.NotifyOp.Set)":
        "pld.system.notify offsets rank (1) must match target tensor rank (2)",
    "pld.system.notify(sig, 0, [4, 0], 1, op=pld.NotifyOp.Set)":
        "pld.system.notify: elements 4 to 5 of dimension 0 are beyond its 4",
    "pld.system.notify(sig, 0, [0, 0], a, op=pld.NotifyOp.Set)":
        f"pld.system.notify value must be a scalar, got {U}",
    "pld.system.notify(sig, 0, [0, 0], 1, op=7)":
        "pld.system.notify op must be NotifyOp.AtomicAdd or NotifyOp.Set (got int 7)",
    "pld.system.notify(sig, 0, [0, 0], 1, op=pld.WaitCmp.Ge)":
        "pld.system.notify op must be NotifyOp.AtomicAdd or NotifyOp.Set (got WaitCmp 1)",
    "pld.system.notify(sig, 0, [0, 0], y, op=pld.NotifyOp.Set)":
        "Scalar[FP32] does not become Scalar[INT32] by itself",
    "pld.system.wait(sig, [0, 0], cmp=pld.WaitCmp.Ge)":
        "pld.system.wait requires exactly 3 positional arguments (signal, offsets, expected), but got 2",
    "pld.system.wait(t, [0, 0], 1, cmp=pld.WaitCmp.Ge)":
        f"pld.system.wait signal must be a DistributedTensor (window-bound), got {T}",
    "pld.system.wait(sig, [0, 0], a, cmp=pld.WaitCmp.Ge)": f"pld.system.wait expected must be a scalar, got {U}",
    "pld.system.wait(sig, [0, 0], 1, cmp=2)": "pld.system.wait cmp must be WaitCmp.Eq or WaitCmp.Ge (got int 2)",
    "pld.system.defer_wait(sig, [0, 0], 1, cmp=pld.WaitCmp.Eq)":
        "pld.system.defer_wait only supports WaitCmp.Ge (got int 0)",
    "pld.system.defer_wait(sig, [0, 0], -1)":
        "pld.system.defer_wait constant expected must be in [0, INT32_MAX], got -1",
    "pld.system.defer_wait(win, [0, 0], 1)": "pld.system.defer_wait signal dtype must be INT32, got FP32",
    "pld.system.defer_wait(pl.slice(sig, [1, 1], [0, 0]), [0, 0], 1)":
        "pld.system.defer_wait signal must be a window parameter itself, not a view of one",
    # collectives
    "pld.tensor.allreduce()":
        "pld.tensor.allreduce requires 1 or 2 positional arguments (target[, signal]), but got 0",
    "pld.tensor.allreduce(t, sig)":
        f"pld.tensor.allreduce target must be a DistributedTensor (window-bound), got {T}",
    "pld.tensor.allreduce(win, ids)":
        "pld.tensor.allreduce signal must be a DistributedTensor (window-bound), got Tensor[[4, 1], INT32]",
    "pld.tensor.allreduce(win, win)":
        "pld.tensor.allreduce signal must have INT32 element type (the barrier slot is an int counter), got dtype FP32",
    "pld.tensor.allreduce(win, sig, op=9)":
        "pld.tensor.allreduce op must be ReduceOp.Sum, Max, Min, or Prod (got int 9)",
    "pld.tensor.allreduce(win, sig, mode='tree')":
        'pld.tensor.allreduce mode must be "mesh" or "ring", got "tree"',
    "pld.tensor.allreduce(win, sig, core_num=0)": "pld.tensor.allreduce core_num must be positive, got 0",
    "pld.tensor.allreduce(win, sig, core_num=2)": "pld.tensor.allreduce core_num must be 1 inside a kernel, got 2",
    "pld.tensor.allreduce(win, None)":
        "pld.tensor.allreduce signal cannot be None; omit the signal argument for host synthesis",
    "pld.tensor.allreduce(win, mode='ring')":
        'pld.tensor.allreduce mode="ring" requires an explicit signal; host signal synthesis only supports mesh mode. '
        'Pass a window-bound signal, e.g. pld.tensor.allreduce(target, signal, mode="ring").',
    "pld.tensor.allreduce(win)":
        "pld.tensor.allreduce without a signal stands in a HOST orchestrator, and this is a kernel",
    "pld.tensor.barrier()": "pld.tensor.barrier requires exactly 1 positional argument (signal), but got 0",
    "pld.tensor.barrier(ids)":
        "pld.tensor.barrier signal must be a DistributedTensor (window-bound), got Tensor[[4, 1], INT32]",
    "pld.tensor.barrier(win)":
        "pld.tensor.barrier signal must have INT32 element type (the barrier slot is an int counter), got dtype FP32",
    "pld.tensor.broadcast(win, root=0)":
        "pld.tensor.broadcast requires exactly 2 positional arguments (target, signal), but got 1",
    "pld.tensor.broadcast(win, win, root=0)":
        "pld.tensor.broadcast signal must have INT32 element type, got dtype FP32",
    "pld.tensor.broadcast(win, sig, root=-1)": "pld.tensor.broadcast root rank must be non-negative, got -1",
    "pld.tensor.broadcast(win, sig, root=x)":
        "pld.tensor.broadcast root must be an int (static), got Scalar[INT32]",
    "pld.tensor.allgather(win, sig)":
        "pld.tensor.allgather requires exactly 3 args (input, target, signal), but got 2",
    "pld.tensor.allgather(win, win, sig)":
        "pld.tensor.allgather input and target must be different buffers, but the same expression was passed for both",
    "pld.tensor.allgather(a, win, sig)":
        f"pld.tensor.allgather input must be a Tensor or DistributedTensor, got {U}",
    "pld.tensor.allgather(flat, win, sig)":
        "pld.tensor.allgather input must be 2D [1, SIZE] (this rank's single chunk), got 1 dims",
    "pld.tensor.allgather(t, win, sig)":
        "pld.tensor.allgather input must be [1, SIZE] (this rank's single chunk), got first dim 4",
    "pld.tensor.allgather(row, t, sig)":
        f"pld.tensor.allgather target must be a DistributedTensor (window-bound), got {T}",
    "pld.tensor.allgather(row, line, sig)": "pld.tensor.allgather target must be 2D [NR, SIZE], got 1 dims",
    "pld.tensor.allgather(row, halfwin, sig)":
        "pld.tensor.allgather target dtype FP16 must match input dtype FP32",
    "pld.tensor.allgather(pl.slice(row, [1, 32], [0, 0]), win, sig)":
        "pld.tensor.allgather target SIZE must equal input SIZE",
    "pld.tensor.allgather(row, win, win2)":
        "pld.tensor.allgather signal must have INT32 element type, got dtype FP32",
    "pld.tensor.allgather(row, win, wide)": "pld.tensor.allgather signal second dimension must be 1, got 8",
    "pld.tensor.allgather(row, win, three)":
        "pld.tensor.allgather signal first dimension (3) must equal target first dimension (4)",
    "pld.tensor.reduce_scatter(win)":
        "pld.tensor.reduce_scatter requires exactly 2 positional arguments (target, signal), but got 1",
    "pld.tensor.reduce_scatter(line, sig)": "pld.tensor.reduce_scatter target must be 2D [NR, SIZE], got 1 dims",
    "pld.tensor.reduce_scatter(win, sig, op=7)":
        "pld.tensor.reduce_scatter op must be ReduceOp.Sum, Max, Min, or Prod (got int 7)",
    "pld.tensor.all_to_all(win, sig)":
        "pld.tensor.all_to_all requires 3 args (input, target, signal) for InCore composite, but got 2",
    "pld.tensor.all_to_all(win, win, sig)":
        "pld.tensor.all_to_all input and target must be different windows, but the same expression was passed for both",
    "pld.tensor.all_to_all(flat, win, sig)": "pld.tensor.all_to_all input must be 2D [NR, SIZE], got 1 dims",
    "pld.tensor.all_to_all(row, win, sig)":
        "pld.tensor.all_to_all target first dimension (4) must equal input first dimension (1)",
    "pld.tensor.all_to_all(pl.slice(t, [4, 8], [0, 0]), win, sig)":
        "pld.tensor.all_to_all target shape must equal input shape",
    "pld.tensor.all_to_all(half, win, sig)": "pld.tensor.all_to_all target dtype FP32 must match input dtype FP16",
    "pld.tensor.all_to_all(t, win, three)":
        "pld.tensor.all_to_all signal first dimension (3) must equal input first dimension (4)",
    "pld.tensor.all_to_all_v(t, win, sig, ids)":
        "pld.tensor.all_to_all_v requires 5 args (input, target, signal, send_counts, recv_counts), but got 4",
    "pld.tensor.all_to_all_v(flat, win, sig, ids, recv)":
        "pld.tensor.all_to_all_v input must be 2D [NR*MAX_RECV, SIZE], got 1 dims",
    "pld.tensor.all_to_all_v(pl.slice(t, [4, 8], [0, 0]), win, sig, ids, recv)":
        "pld.tensor.all_to_all_v target SIZE must equal input SIZE",
    "pld.tensor.all_to_all_v(row, win, sig, ids, recv)":
        "pld.tensor.all_to_all_v target first dimension (4) must equal input first dimension (1)",
    "pld.tensor.all_to_all_v(half, win, sig, ids, recv)":
        "pld.tensor.all_to_all_v target dtype FP32 must match input dtype FP16",
    "pld.tensor.all_to_all_v(t, win, win2, ids, recv)":
        "pld.tensor.all_to_all_v signal must have INT32 element type, got dtype FP32",
    "pld.tensor.all_to_all_v(t, win, cells, ids, recv)":
        "pld.tensor.all_to_all_v signal must be 2D [NR, 1], got 1 dims",
    "pld.tensor.all_to_all_v(t, win, three, ids, recv)":
        "pld.tensor.all_to_all_v signal dim 0 (3) must divide target dim 0 (4)",
    "pld.tensor.all_to_all_v(t, dynwin, sig, ids, recv)":
        "pld.tensor.all_to_all_v target dim 0 (NR*MAX_RECV) must be a compile-time constant",
    "pld.tensor.all_to_all_v(t, win, dynsig, ids, recv)":
        "pld.tensor.all_to_all_v signal dim 0 (NR) must be a compile-time constant",
    "pld.tensor.all_to_all_v(t, win, sig, row, recv)":
        "pld.tensor.all_to_all_v send_counts must have INT32 element type, got dtype FP32",
    "pld.tensor.all_to_all_v(t, win, sig, three, recv)":
        "pld.tensor.all_to_all_v send_counts dim 0 (3) must equal signal dim 0 (NR = 4)",
    "pld.tensor.all_to_all_v(t, win, sig, ids, ids)":
        "pld.tensor.all_to_all_v recv_counts must be a DistributedTensor (window-bound), got Tensor[[4, 1], INT32]",
    "pld.tensor.all_to_all_v(t, win, sig, ids, three)":
        "pld.tensor.all_to_all_v recv_counts dim 0 (3) must equal signal dim 0 (NR = 4)",
    "pld.tensor.all_to_all_v(t, win, sig, ids, wide)":
        "pld.tensor.all_to_all_v recv_counts second dimension must be 1, got 8",
    # tiles and tensors
    "pl.load(a, [0, 0], [4, 64])":
        f"The operator tile.load requires first argument to be a TensorType or DistributedTensorType, but got {U}",
    "pl.load(t, [0], [4, 64])":
        "The operator tile.load requires offsets and shapes to have same number of dimensions, but got 1 offsets and "
        "2 shapes",
    "pl.load(t, [0, 0], [4, 64], [4])":
        "The operator tile.load requires valid_shape and shapes to have the same number of dimensions, but got 1 "
        "valid_shape and 2 shapes",
    "pl.load(t, [], [])":
        "The operator tile.load requires at least one dimension, but got empty shapes tuple",
    "pl.load(t, [0, 0], [x, 64])": "pl.load shapes 0 must be known before the program runs: a tile has fixed extents",
    "pl.load(t, [1, 0], [4, 64])":
        "pl.load: elements 1 to 5 of dimension 0 are beyond its 4; pass clamp=True -- pl.load(x, offsets, shapes, "
        "clamp=True) -- to narrow the read to the source edge instead",
    "pl.load(t, [0, 0], [4, 64], [5, 64])": "pl.load valid_shape 0 is 5, and the tile has 4",
    "pl.load(t, [0], [64])": f"pl.load: {T} has 2 dimensions, and 1 are taken of it",
    "pl.store(t, [0, 0], t)": f"The operator tile.store requires first argument to be a TileType, but got {T}",
    "pl.store(a, [0, 0], a)":
        f"The operator tile.store requires third argument to be a TensorType or DistributedTensorType, but got {U}",
    "pl.store(i, [0, 0], t)": "pl.store: the tile is of INT32, the tensor of FP32",
    "pl.store(a, [0], t)": "pl.store: offsets must have 2 entries, one a dimension, got 1",
    "pl.store(pl.load(t, [0, 0], [4, 64]), [0, 1], t)": "pl.store: elements 1 to 65 of dimension 1 are beyond its 64",
    "pl.store(a, [0, 0], win, atomic=pld.AtomicType.Add)": "pl.store adds to nothing that is there",
    "pl.add(a, i)": "pl.add: the operands are of FP32 and INT32: cast one",
    "pl.add(a, pl.load(row, [0, 0], [1, 32]))": "pl.add: the operands have shapes [4, 64] and [1, 32]",
    "pl.add(a, x)": "Scalar[INT32] does not become Scalar[FP32] by itself",
    "pl.add(a, dyn)": "pl.add: Tensor[[NR, 64], FP32] has extents that are known only when the program runs",
    "pl.add(a, [1])": "pl.add: a tile or a tensor is wanted, got list",
    "pl.add(a)": "pl.add: missing a required argument: 'rhs'",
    "pl.exp(x)": "pl.exp takes a tile or a tensor, got Scalar[INT32]",
    "pl.cast(a, pl.INT32, mode='odd')": "pl.cast: there is no mode 'odd'",
    "pl.cast(a, 'fp32')": "pl.cast takes an element type, got str",
    "pl.row_expand_add(a, row)": "pl.row_expand_add takes a vector of shape [rows, 1], got Tile[[1, 64], FP32]",
    "pl.matmul(a, a)": "pl.matmul: [4, 64] and [4, 64] have different inner extents",
    "pl.matmul(a, flat)": f"pl.matmul takes two tiles of 2 dimensions, got {U} and Tile[[64], FP32]",
    "pl.slice(t, [4, 64], [0, 0], valid_shape=[x, 64])":
        "pl.slice valid_shape 0 of a tensor must be known before the program runs",
    "pl.slice(t, [4, 64], [0, 0], valid_shape=[5, 64])": "pl.slice valid_shape 0 must be in [0, 4], got 5",
    "pl.slice(a, [4, 64], [0, 0], valid_shape=[1, 64])": "pl.slice of a tile has no valid_shape",
    "pl.reshape(pl.set_validshape(t, 1, 64), [64, 4])":
        "pl.reshape of Tensor[[4, 64], FP32, TensorView(valid_shape=[1, 64])], of which a part is not valid",
    "pl.slice(pl.set_validshape(t, 1, 64), [1, 64], [x, 0])":
        "a slice of Tensor[[4, 64], FP32, TensorView(valid_shape=[1, 64])] needs offsets and extents that are known "
        "before the program runs",
    "pld.tensor.all_to_all_v(t, win, pl.set_validshape(sig, 3, 1), ids, recv)":
        "pld.tensor.all_to_all_v signal must be a full, packed view; dim 0 has valid_shape 3 < shape 4, so the payload "
        "is not contiguous",
    "pl.slice(t, [5, 64], [0, 0])": "slice: elements 0 to 5 of dimension 0 are beyond its 4",
    "pl.slice(t, [2, 64], [0, 0], drop_dims=[0])": "slice: dimension 0 is dropped, and is not of 1",
    "pl.reshape(t, [3, -1])": "pl.reshape: no extent fits in [3, -1]",
    "pl.reshape(t, [3, 64])": f"reshape: {T} has not as many elements as Tensor[[3, 64], FP32]",
    "pl.read(t, [0])": "pl.read: indices must have 2 entries, one a dimension, got 1",
    "pl.write(ids, [0, 0], 1.5)": "1.5 is no whole number, and Scalar[INT32] is wanted",
    "pl.dim(t, 2)": f"pl.dim: {T} has no dimension 2",
    "pld.world_size()": "pld.world_size stands in a HOST orchestrator, and this is a kernel",
    "pld.rank(win)": "pld.rank takes a CommCtx, got DistributedTensor[[4, 64], FP32]",
}
CHIPS = {
    "pl.add(t, u)": "pl.add of tensors stands in a kernel, and this is a CHIP orchestration",
    "pl.create_tensor([4], pl.FP32, layout=pl.TensorLayout.DN)":
        "pl.create_tensor: layout DN; here tensors are row-major (ND)",
    "pl.load(t, [0, 0], [1, 64])": "pl.load stands in a kernel, and this is a CHIP orchestration",
    "pld.alloc_window_buffer(4, name='w')":
        "pld.tensor.alloc_window_buffer stands in a HOST orchestrator, and this is a CHIP orchestration",
    "pld.tensor.allreduce(win)":
        "pld.tensor.allreduce without a signal stands in a HOST orchestrator, and this is a CHIP orchestration",
}
HOSTS = {
    "pld.alloc_window_buffer(4)":
        "pld.tensor.alloc_window_buffer must appear as the RHS of a simple assignment (its result must be bound to a "
        "named variable)",
    "pld.alloc_window_buffer([4, 1], name='w')":
        "pld.tensor.alloc_window_buffer size must be a scalar (int / Expr in bytes), not a list/tuple",
    "pld.alloc_window_buffer(name='w')":
        "pld.tensor.alloc_window_buffer requires exactly 1 positional argument (size: ScalarType expression in bytes), "
        "but got 0",
    "pld.window(7, [4], dtype=pl.FP32)": "pld.tensor.window first argument must be an IR expression, got int",
    "pld.window(t, [4], dtype=pl.FP32)":
        f"pld.tensor.window 'buf' must have type Ptr (output of pld.tensor.alloc_window_buffer), got {T}",
    "pld.window(pld.alloc_window_buffer(4, name='w'), 4, dtype=pl.FP32)":
        "pld.tensor.window second argument must be a shape tuple (MakeTuple of ints / Exprs), got int",
    "pld.window(pld.alloc_window_buffer(4, name='w'), dtype=pl.FP32)":
        "pld.tensor.window requires 2 positional args (buf, shape), but got 1",
    "pld.window(pld.alloc_window_buffer(252, name='w'), [1, 64], dtype=pl.FP32)":
        "pld.tensor.window: DistributedTensor[[1, 64], FP32] takes 256 bytes, and the buffer has 252",
    "pld.rank(ctx)": "pld.rank stands in a CHIP orchestration or a kernel, and this is a HOST orchestrator",
    "pld.system.notify(sig, 0, [0, 0], 1, op=0)":
        "pld.system.notify stands in a kernel, and this is a HOST orchestrator",
    "pl.create_tensor([4], pl.FP32, init_value=1)": "pl.create_tensor makes zeros, and init_value is 1",
}
# fmt: on


@pytest.mark.parametrize(
    ("level", "text", "wanted"),
    [
        (level, text, wanted)
        for level, table in ((KERNEL, KERNELS), (CHIP, CHIPS), (HOST, HOSTS))
        for text, wanted in table.items()
    ],
)
def test_what_wrong_calls_are_told(level: Level, text: str, wanted: str) -> None:
    with pytest.raises(InputError) as error:
        line(text, level)
    assert error.value.what == f"a.py:7:3: {wanted}"


def test_a_task_registers_no_more_conditions_than_it_may() -> None:
    body = """
    func.func @f(%s : !program.dist_tensor<[4, 1], s32>) attributes {{"program.type" = "InCore"}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant {turns} : index
      %one = arith.constant 1 : i32
      scf.for %k = %c0 to %n step %c1 {{
        program.defer_wait %s[%c0, %c0], %one cmp "Ge" : !program.dist_tensor<[4, 1], s32>
        program.defer_wait %s[%c1, %c0], %one cmp "Ge" : !program.dist_tensor<[4, 1], s32>
      }}
      func.return
    }}"""
    read_program(body.format(turns=32)).verify()
    with pytest.raises(InputError, match="a task may register 64 completion conditions, and this one has 66"):
        read_program(body.format(turns=33)).verify()


def test_what_only_needs_types_is_checked_in_text_too() -> None:
    text = """
    func.func @f(%a : !program.dist_tensor<[4, 64], f32>, %b : !program.dist_tensor<[4, 32], f32>, %peer : index) {
      %0 = program.put %a at %peer from %b [] [] [] atomic "None_" chunks 0 0 :
        !program.dist_tensor<[4, 64], f32>, !program.dist_tensor<[4, 32], f32> loc("a.py":7:3)
      func.return
    }"""
    with pytest.raises(InputError) as error:
        read_program(text).verify()
    assert error.value.what == (
        "a.py:7:3: pld.tensor.put dst and src must have the same static shape; dimension 1 differs (dst=64, src=32)"
    )
