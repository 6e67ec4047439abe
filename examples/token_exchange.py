"""Tokens go to experts and come back: a variable all-to-all each way.

Each rank is an expert. It sends every other one as many tokens as were routed there, scales what it receives by a gain
of its own, and sends each token back to where it was. The counts that the first exchange writes are those that the
second one sends.

    crossrank run examples/token_exchange.py --ranks 4
"""

import numpy as np

from crossrank import nki
from crossrank.nki import collectives as ncc
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl

TOKENS, FEATURES = 12, 8


@nki.jit
def kernel(tokens, routes, gain, ranks):
    """``tokens`` [TOKENS, FEATURES] sorted by expert; ``routes`` [2, ranks]: elements for each, and where."""
    everyone = ncc.ReplicaGroup([list(range(ranks))])
    room = tokens.size  # of each sender at each expert

    outbox = nl.ndarray((tokens.size,), tokens.dtype, buffer=nl.hbm, name="outbox")
    nisa.dma_copy(outbox, tokens.reshape((tokens.size,)))
    inbox = nl.zeros((ranks * room,), tokens.dtype, buffer=nl.hbm, name="inbox")
    sent = nl.ndarray((3, ranks), nl.uint32, buffer=nl.hbm, name="sent")
    nisa.dma_copy(sent[0:2], routes)
    ncc.all_to_all_v([outbox], [inbox], everyone, sent)

    received = nl.load(inbox.reshape((ranks, room)))
    nisa.tensor_scalar(received, received, nl.multiply, nl.load(gain))
    answers = nl.ndarray((ranks * room,), tokens.dtype, buffer=nl.hbm, name="answers")
    nisa.dma_copy(answers.reshape((ranks, room)), received)

    starts = nl.ndarray((1, ranks), nl.uint32)
    nisa.iota(starts, [[room, ranks]])
    returned = nl.ndarray((4, ranks), nl.uint32, buffer=nl.hbm, name="returned")
    nisa.dma_copy(returned[0], sent[2])  # as many as came
    nisa.dma_copy(returned[1:2], starts)
    nisa.dma_copy(returned[2], sent[0])
    nisa.dma_copy(returned[3], sent[1])  # to where they were
    back = nl.ndarray((tokens.size,), tokens.dtype, buffer=nl.hbm, name="back")
    ncc.all_to_all_v([answers], [back], everyone, returned, recv_counts_known=True, has_rdispls=True)

    result = nl.ndarray(tokens.shape, tokens.dtype, buffer=nl.shared_hbm, name="result")
    nisa.dma_copy(result.reshape((tokens.size,)), back)
    return result


def inputs(ranks, seed):
    rng = np.random.default_rng(seed)
    arguments = []
    for rank in range(ranks):
        counts = np.bincount(rng.integers(0, ranks, TOKENS), minlength=ranks) * FEATURES
        routes = np.stack([counts, np.cumsum(counts) - counts]).astype(np.uint32)
        gain = np.full((ranks, 1), rank + 1, np.float32)
        arguments.append((rng.standard_normal((TOKENS, FEATURES), np.float32), routes, gain, ranks))
    return arguments


def expected(ranks, inputs):
    gains = np.array([gain[0, 0] for _, _, gain, _ in inputs])
    return [(tokens * np.repeat(gains, routes[0] // FEATURES)[:, None],) for tokens, routes, _, _ in inputs]
