"""The fabric of threads: everything that comm.h offers, used by kernels that are written here."""

from __future__ import annotations

import time

import numpy as np
import pytest

from crossrank.errors import RunError
from crossrank.kernels.compile import Unit, build
from crossrank.runtime.threads import entry, run_entry

SOURCE = """
#include "crossrank/comm.h"
using namespace crossrank;

// Slots: own data (s32), inbox (s32, one row a peer), signal (s32, a cell a peer).
extern "C" int32_t put_notify_wait(const Slot* args) {
  CommContext* ctx = args[3].context;
  const uint64_t bytes = 4 * uint64_t(args[0].tensor->shape[0]);
  for (uint32_t peer = 0; peer < size(ctx); ++peer) {
    if (put(ctx, 1, peer, {rank(ctx) * bytes, bytes}, args[0].tensor->data)) return kBadCall;
    if (fence(ctx)) return kBadCall;
    if (notify(ctx, 2, peer, rank(ctx), 1, Notify::kAdd)) return kBadCall;
  }
  for (uint32_t peer = 0; peer < size(ctx); ++peer)
    if (const Status s = wait(ctx, 2, peer, 1, Compare::kAtLeast)) return s;
  return kOk;
}

// A token goes round: rank r waits for r, and hands on r + 1.
extern "C" int32_t ring(const Slot* args) {
  CommContext* ctx = args[1].context;
  const int32_t rounds = 50;
  for (int32_t i = 0; i < rounds; ++i) {
    if (const Status s = wait(ctx, 0, 0, int32_t(i * size(ctx) + rank(ctx)), Compare::kEqual)) return s;
    const uint32_t next = (rank(ctx) + 1) % size(ctx);
    const int32_t value = int32_t(i * size(ctx) + rank(ctx)) + 1;
    if (next == 0 && i == rounds - 1) return kOk;
    if (const Status s = notify(ctx, 0, next, 0, value, Notify::kSet)) return s;
  }
  return kOk;
}

// Slots: a row of its own, a result: what the next rank has after each of many barriers.
extern "C" int32_t barrier_get(const Slot* args) {
  CommContext* ctx = args[2].context;
  int32_t* mine = static_cast<int32_t*>(args[0].tensor->data);
  int32_t* seen = static_cast<int32_t*>(args[1].tensor->data);
  for (int32_t i = 0; i < 200; ++i) {
    *mine = i;
    if (const Status s = barrier(ctx)) return s;
    if (const Status s = get(ctx, 0, (rank(ctx) + 1) % size(ctx), {0, 4}, seen + i)) return s;
    if (const Status s = barrier(ctx)) return s;
  }
  return kOk;
}

extern "C" int32_t claims(const Slot* args) {
  CommContext* ctx = args[1].context;
  for (int32_t round = 0; round < 3; ++round) {
    if (const Status s = barrier(ctx)) return s;
    uint64_t mine = 0;
    for (uint64_t k; (k = claim(ctx, mine)) < 100;) {
      int32_t* owner = static_cast<int32_t*>(args[0].tensor->data) + k;
      ++*owner;
    }
    if (const Status s = barrier(ctx)) return s;
  }
  return kOk;
}

extern "C" int32_t one_is_missing(const Slot* args) {
  CommContext* ctx = args[1].context;
  return rank(ctx) == 1 ? kOk : barrier(ctx);
}
extern "C" int32_t nobody_notifies(const Slot* args) { return wait(args[1].context, 0, 0, 1, Compare::kEqual); }
extern "C" int32_t out_of_range(const Slot* args) {
  char room[64];
  return read(args[1].context, 0, 0, {1 << 20, 64}, room) ? kOk : kBadCall;
}
extern "C" int32_t never_ends(const Slot* args) {
  CommContext* ctx = args[1].context;
  volatile int32_t* stop = static_cast<int32_t*>(args[0].tensor->data);
  while (rank(ctx) == 2 && !*stop) {}
  return kOk;
}
"""


@pytest.fixture(scope="module")
def library():
    return build(Unit("test-comm", SOURCE, flags=("-O1",)))


def cells(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 5, 16])
def test_put_notify_wait(library, ranks: int, staged: bool) -> None:
    arguments = [[np.full(100, 7 * r, np.int32), cells(100 * ranks), cells(ranks)] for r in range(ranks)]
    run_entry(entry(library, "put_notify_wait"), arguments, limit=20, staged=staged)
    for _, inbox, signal in arguments:
        assert np.array_equal(inbox.reshape(ranks, 100), np.repeat(7 * np.arange(ranks)[:, None], 100, 1))
        assert (signal == 1).all()


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_token_goes_round(library, ranks: int) -> None:
    run_entry(entry(library, "ring"), [[cells(1)] for _ in range(ranks)], limit=20)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 8, 32])
def test_barriers_order_gets(library, ranks: int, staged: bool) -> None:
    arguments = [[cells(1), cells(200)] for _ in range(ranks)]
    run_entry(entry(library, "barrier_get"), arguments, limit=30, staged=staged)
    assert all(np.array_equal(seen, np.arange(200)) for _, seen in arguments)


def test_every_piece_is_claimed_once(library) -> None:
    arguments = [[cells(100)] for _ in range(4)]
    run_entry(entry(library, "claims"), arguments, limit=20)
    assert (sum(a[0] for a in arguments) == 3).all()


@pytest.mark.parametrize(
    ("symbol", "message"),
    [
        ("one_is_missing", r"ranks 0,2 of 3 failed: waited 0.2 s for a peer"),
        ("nobody_notifies", r"ranks 0,1,2 of 3 failed: waited 0.2 s for a peer"),
    ],
)
def test_nobody_waits_for_ever(library, symbol: str, message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(RunError, match=message):
        run_entry(entry(library, symbol), [[cells(1)] for _ in range(3)], limit=0.2)
    assert time.perf_counter() - start < 5


def test_accesses_are_checked_where_they_are_staged(library) -> None:
    with pytest.raises(RunError, match="the kernel returned 2"):
        run_entry(entry(library, "out_of_range"), [[cells(1)]], limit=5, staged=True)


def test_a_kernel_that_never_ends_is_left_behind(library) -> None:
    arguments = [[cells(1)] for _ in range(3)]
    with pytest.raises(RunError, match=r"rank 2 did not return within 0.1 s"):
        run_entry(entry(library, "never_ends"), arguments, limit=0.1)
    arguments[2][0][0] = 1


def test_ranks_must_agree_on_their_slots(library) -> None:
    with pytest.raises(ValueError, match="different numbers of arguments"):
        run_entry(entry(library, "ring"), [[cells(1)], []])
