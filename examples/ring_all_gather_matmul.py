"""An all-gather around a ring, fused with a matmul: the product of all ranks' rows with this rank's columns.

Each rank has ``M`` rows of the left matrix and ``N`` columns of the right one. In every step a rank sends on the rows
that it holds and multiplies them meanwhile; the next ones arrive in a second buffer. Half of the rows go round on one
channel, half on another. Whose rows those are says a register, for a channel may go round either way.

    crossrank run examples/ring_all_gather_matmul.py --ranks 8
"""

import numpy as np

from crossrank import nki
from crossrank.nki import collectives as ncc
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

M, K, N = 64, 256, 128
CHANNELS = 2
P = nl.tile_size.pmax


@nki.jit
def kernel(lhs, rhs, ranks):
    """``lhs`` [M, K] and ``rhs`` [K, N] of each rank; gives [ranks, CHANNELS, M / CHANNELS, N]."""
    rows, tiles = lhs.shape[0] // CHANNELS, lhs.shape[1] // P
    columns, width = rhs.shape[1], rows * tiles
    ring = ncc.ReplicaGroup([list(range(ranks))])
    result = nl.ndarray((ranks, CHANNELS, rows, columns), nl.float32, buffer=nl.shared_hbm, name="result")

    weights = nl.ndarray((P, tiles, columns), rhs.dtype)
    nisa.dma_copy(weights, rhs.reshape((tiles, P, columns)).permute((1, 0, 2)))
    buffers = [nl.ndarray((P, CHANNELS * width), lhs.dtype) for _ in range(2)]

    def rows_of(buffer, channel):
        return buffer[:, channel * width : (channel + 1) * width]

    for channel in range(CHANNELS):  # K runs along the partitions, where the tensor engine contracts
        for tile in range(tiles):
            nisa.dma_transpose(
                dst=rows_of(buffers[0], channel)[:, tile * rows : (tile + 1) * rows],
                src=lhs[channel * rows : (channel + 1) * rows, tile * P : (tile + 1) * P],
            )

    for step in nl.sequential_range(ranks):
        held, coming = buffers[step % 2], buffers[(step + 1) % 2]
        if step < ranks - 1:
            ncc.collective_permute_implicit(
                srcs_by_channel=[[rows_of(held, channel)] for channel in range(CHANNELS)],
                dsts_by_channel=[[rows_of(coming, channel)] for channel in range(CHANNELS)],
                replica_group=ring,
                channel_ids=list(range(CHANNELS)),
            )
        for channel in range(CHANNELS):
            product = nl.ndarray((rows, columns), nl.float32, buffer=nl.psum)
            for tile in range(tiles):
                stationary = rows_of(held, channel)[:, tile * rows : (tile + 1) * rows]
                nisa.nc_matmul(product, stationary, weights[:, tile, :])  # the first overwrites, the next accumulate
            finished = nl.ndarray((rows, columns), nl.float32)
            nisa.tensor_copy(finished, product)
            owner = ncc.collective_permute_implicit_current_processing_rank_id(
                iteration_id=step, replica_group=ring, channel_id=channel
            )
            place = result.ap(
                [[columns, rows], [1, columns]], offset=channel * rows * columns, scalar_offset=owner, indirect_dim=0
            )
            nisa.dma_copy(place, finished)
    return result


def inputs(ranks, seed):
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32), ranks) for _ in range(ranks)
    ]


def expected(ranks, inputs):
    rows = np.concatenate([lhs for lhs, _, _ in inputs]).astype(np.float64)
    shape = (ranks, CHANNELS, M // CHANNELS, N)
    return [((rows @ rhs).astype(np.float32).reshape(shape),) for _, rhs, _ in inputs]
