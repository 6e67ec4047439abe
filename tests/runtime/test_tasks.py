"""Tasks of many ranks: who starts when, what is over, and what is said where nobody can go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from crossrank.kernels.compile import Unit, build
from crossrank.runtime.tasks import Context, Engine, Fault, GivenUp, Hang, Stuck, Wait
from crossrank.runtime.threads import Tensor, entry

SOURCE = """
#include <cstdio>
#include <ctime>

#include "crossrank/comm.h"
using namespace crossrank;

namespace {
int32_t* cells(const Slot& slot) { return static_cast<int32_t*>(slot.tensor->data); }
}

// Most take one tensor (s32 cells), its context, two integers, and the launch.
#define KERNEL(name) extern "C" int32_t name(const Slot* args)
#define NAMES \\
  int32_t* const own = cells(args[0]); CommContext* const ctx = args[1].context; \\
  const int64_t a = args[2].integer, b = args[3].integer; Launch& launch = *args[4].launch; \\
  (void)own, (void)ctx, (void)a, (void)b, (void)launch;

// `a` times round: each waits for its turn and hands it on.
KERNEL(ring) {
  NAMES
  for (int64_t i = 0; i < a; ++i) {
    launch.line = uint32_t(10 + i);
    if (rank(ctx) || i)
      if (const Status s = wait(ctx, 0, 0, int32_t(i + (rank(ctx) != 0)), Compare::kAtLeast)) return s;
    if (const Status s = notify(ctx, 0, (rank(ctx) + 1) % size(ctx), 0, 1, Notify::kAdd)) return s;
  }
  return kOk;
}

KERNEL(wait_equal) { NAMES launch.line = 21; return wait(ctx, 0, a, b, Compare::kEqual); }
KERNEL(wait_at_least) { NAMES launch.line = 22; return wait(ctx, 0, a, b, Compare::kAtLeast); }
KERNEL(tell) { NAMES return notify(ctx, 0, a, 0, b, Notify::kAdd); }
KERNEL(store) { NAMES own[a] = b; return kOk; }  // as a put on a signal window does
KERNEL(deferring) { NAMES launch.line = 23; return defer(ctx, 0, a, b); }
KERNEL(defer_many) {
  NAMES
  for (int64_t i = 0; i < a; ++i)
    if (const Status s = defer(ctx, 0, 0, 1)) return s;
  return kOk;
}
KERNEL(meet) { NAMES launch.line = 24; return rank(ctx) == a ? kOk : barrier(ctx); }
KERNEL(meet_often) {
  NAMES
  for (int64_t i = 1; i <= a; ++i) {
    own[launch.block] = i;
    if (const Status s = barrier(ctx)) return s;
    int32_t seen;
    if (const Status s = get(ctx, 0, (rank(ctx) + 1) % size(ctx), {4ull * launch.block, 4}, &seen)) return s;
    if (seen != i) return kBadCall;
    if (const Status s = barrier(ctx)) return s;
  }
  return kOk;
}
KERNEL(block_of) { NAMES own[launch.block] = launch.block * 100 + launch.blocks; return kOk; }
KERNEL(fails) {
  NAMES
  launch.line = 25, launch.column = 7;
  std::snprintf(launch.fault, sizeof launch.fault, "%lld is no row", (long long)a);
  return kBadCall;
}
KERNEL(fails_for) { NAMES return rank(ctx) == a ? kBadRows : kPeerFailed; }
KERNEL(spins) { NAMES launch.line = 26; volatile int32_t* stop = own; while (!*stop) {} return kOk; }
KERNEL(polls) { NAMES volatile int32_t* at = own; while (*at < a) {} own[0] = *at + 1; return kOk; }
KERNEL(naps_and_tells) {  // `a` times, something else each time if `b`
  NAMES
  for (int64_t i = 0; i < a; ++i) {
    const timespec t{0, 50'000'000};
    nanosleep(&t, nullptr);
    if (const Status s = notify(ctx, 0, 0, 0, b ? int32_t(i + 1) : 7, Notify::kSet)) return s;
  }
  return kOk;
}
KERNEL(naps) { NAMES timespec t{0, 1000000 * a}; nanosleep(&t, nullptr); own[b] = 1; return kOk; }

// A task of a graph: all tasks that it depends on have left their numbers.
extern "C" int32_t after(const Slot* args) {
  int32_t* const done = cells(args[0]);
  const int64_t me = args[2].integer;
  for (int64_t i = 0; i < args[1].tensor->shape[0]; ++i)
    if (done[cells(args[1])[i]] != 1) return kBadCall;
  done[me] = 1;
  return kOk;
}

// (f64 out [2]) and scalars: an integer, a float, a predicate.
extern "C" int32_t scalars(const Slot* args) {
  double* const out = static_cast<double*>(args[0].tensor->data);
  out[0] = double(args[1].integer) + args[2].real + double(args[3].integer);
  out[args[0].tensor->strides[0]] = args[0].tensor->shape[0] + 10 * args[0].tensor->strides[0];
  return args[4].launch->blocks == 1 ? kOk : kBadCall;
}
"""


@pytest.fixture(scope="module")
def library() -> Path:
    return build(Unit("test-tasks", SOURCE, flags=("-O1",)))


class World:
    """Ranks with one window of s32 cells each, and an engine."""

    def __init__(self, library: Path, engine: Engine, ranks: int, cells: int = 8) -> None:
        self.library, self.engine, self.ranks = library, engine, ranks
        self.windows = np.zeros((ranks, cells), np.int32)
        self.addresses = [window.ctypes.data for window in self.windows]
        engine.keep(self.windows)

    def launch(
        self,
        kernel: str,
        rank: int,
        a: int = 0,
        b: int = 0,
        deps: Sequence[int] = (),
        blocks: int = 1,
        pool: bool = False,
    ) -> int:
        context = Context.of(7, rank, self.ranks, [self.addresses])
        tensor = Tensor.of(self.windows[rank])
        address = entry(self.library, kernel)
        return self.engine.submit(address, kernel, rank, [tensor], [context], [a, b], deps, blocks, pool)

    def stuck(self) -> Stuck:
        with pytest.raises(Hang) as caught:
            self.engine.finish()
        return caught.value.stuck


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 3), (2, 100), (64, 20)])
def test_a_turn_goes_round(library: Path, ranks: int, rounds: int) -> None:
    with Engine(20) as engine:
        world = World(library, engine, ranks)
        with engine.orchestrator():
            for rank in range(ranks):
                world.launch("ring", rank, rounds)
        engine.finish()
    assert (world.windows[:, 0] == rounds).all()


def test_each_block_knows_its_number_and_all_meet(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 16)
        with engine.orchestrator():
            for rank in range(16):
                first = world.launch("meet_often", rank, 10, blocks=8)
                world.launch("block_of", rank, deps=[first], blocks=8)
            engine.finish()
    assert (world.windows == np.arange(8) * 100 + 8).all()


def test_scalars_and_shapes(library: Path) -> None:
    out = np.zeros(4)[::2]
    with Engine(20) as engine, engine.orchestrator():
        engine.submit(entry(library, "scalars"), "scalars", 0, [Tensor.of(out)], [], [-(2**40), 0.5, True])
        engine.finish()
    assert out.tolist() == [-(2.0**40) + 1.5, 22]


@pytest.mark.parametrize("seed", [0, 1])
def test_no_task_starts_before_what_it_depends_on(library: Path, seed: int) -> None:
    draw, count = np.random.default_rng(seed), 2000
    done, address = np.zeros(count, np.int32), entry(library, "after")
    with Engine(20) as engine:
        with engine.orchestrator():
            for number in range(count):
                deps = draw.integers(0, number, 3).astype(np.int32) if number else np.zeros(0, np.int32)
                engine.keep(deps, done)
                tensors = [Tensor.of(done), Tensor.of(deps)]
                pool = bool(draw.integers(2))
                needs = (deps + 1).tolist()  # task 0 is the orchestrator
                engine.submit(address, "after", number % 64, tensors, [], [number], needs, 1, pool)
        engine.finish()
        trace = engine.trace()
    assert (done == 1).all()
    assert (trace["begin"] > 0).all()
    assert (trace["begin"] <= trace["end"]).all()
    assert trace["orchestrator"].tolist() == [1] + [0] * count


def test_many_orchestrators_wait_for_their_own_tasks(library: Path) -> None:
    """Chips whose orchestrators read what their kernels left, under a host that waits for the chips."""
    ranks, errors = 8, list[BaseException]()
    with Engine(20) as engine:
        world = World(library, engine, ranks)

        def chip(rank: int, task: int) -> None:
            try:
                with engine.doing(task):
                    for turn in range(5):
                        world.launch("tell", rank, (rank + 1) % ranks, 1)
                        engine.wait([world.launch("wait_at_least", rank, 0, turn + 1)])
                        assert world.windows[rank, 0] > turn
            except BaseException as error:
                errors.append(error)

        with engine.orchestrator("host"):
            chips = [engine.open("chip", rank) for rank in range(ranks)]
            for rank, task in enumerate(chips):
                threading.Thread(target=chip, args=(rank, task)).start()
            engine.wait(chips)
    assert not errors
    assert (world.windows[:, 0] == 5).all()


def test_a_deferred_task_is_over_when_it_was_notified(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 2)
        with engine.orchestrator():
            held = [world.launch("deferring", 0, 0, 2, blocks=2), world.launch("deferring", 0, 1, 1)]
            then = world.launch("block_of", 0, deps=held)
            engine.wait([world.launch("tell", 1, 0, 1)])
            time.sleep(0.05)
            assert (engine.trace()["end"][[*held, then]] == 0).all()
            world.launch("tell", 1, 0, 1)
            world.launch("store", 0, 1, 1)
            engine.finish()
    assert world.windows[0, 0] == 1


def test_names_and_what_is_not_over(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 2)
        with engine.orchestrator("host") as host:
            waits, stores = world.launch("wait_equal", 1, 0, 1), world.launch("store", 0, 1, 4)
            joined = engine.submit(0, "join", 0, [], [], [], [waits, stores])
            engine.wait([stores])
            assert engine.unfinished([joined, stores, host, waits]) == [joined, host, waits]
            world.launch("store", 1, 0, 1)
            engine.wait([joined])
            assert engine.unfinished([joined, stores, host, waits]) == [host]
        engine.finish()
        trace, names = engine.trace(), engine.names()
        assert names == ["host", "wait_equal", "store", "join"]
        assert [names[n] for n in trace["name"]] == ["host", "wait_equal", "store", "join", "store"]
        assert trace["blocks"].tolist() == [0, 1, 1, 0, 1]
        assert [engine.name(task) for task in (host, joined)] == ["host", "join"]


def test_plain_stores_are_seen(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 1)
        with engine.orchestrator():
            waits = world.launch("wait_equal", 0, 3, 9)
            time.sleep(0.05)  # it sleeps by now
            world.launch("store", 0, 3, 9)
            engine.wait([waits])


def test_kernels_that_poll_do_not_keep_others_from_starting(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 1)
        with engine.orchestrator():
            for turn in reversed(range(24)):  # the last one lets the first go on
                world.launch("polls", 0, turn)
        engine.finish()
    assert world.windows[0, 0] == 24


Case = tuple[str, list[tuple[str, int, int, int]], dict[int, tuple[str, list[Wait]]]]
CELL = {"context": 0, "slot": 0, "missing": ()}
HANGS: list[Case] = [
    (
        "nobody notifies rank 1",
        [("wait_equal", 0, 0, 0), ("wait_equal", 1, 5, 1), ("tell", 0, 2, 1)],
        {2: ("waiting", [Wait("cell", 0, 21, cell=5, compare="==", expected=1, present=0, **CELL)])},
    ),
    (
        "a wrong count",
        [("wait_at_least", 1, 0, 3), ("tell", 0, 1, 1), ("tell", 1, 1, 1)],
        {1: ("waiting", [Wait("cell", 0, 22, cell=0, compare=">=", expected=3, present=2, **CELL)])},
    ),
    (
        "a value that was passed",
        [("wait_equal", 1, 0, 1), ("tell", 0, 1, 2)],
        {1: ("waiting", [Wait("cell", 0, 21, cell=0, compare="==", expected=1, present=2, **CELL)])},
    ),
    (
        "one rank misses the barrier",
        [("meet", 0, 1, 0), ("meet", 1, 1, 0), ("meet", 2, 1, 0)],
        {task: ("waiting", [Wait("barrier", 0, 24, 0, 0, 0, "==", 3, 2, (1,))]) for task in (1, 3)},
    ),
    (
        "one comes once more",
        [("meet_often", 0, 2, 0), ("meet_often", 1, 1, 0), ("meet_often", 2, 1, 0)],
        {1: ("waiting", [Wait("barrier", 0, 0, 0, 0, 0, "==", 3, 1, (1, 2))])},
    ),
    (
        "a deferred condition",
        [("deferring", 2, 4, 1), ("tell", 0, 2, 5)],
        {1: ("deferred", [Wait("deferred", 0, 23, cell=4, compare=">=", expected=1, present=0, **CELL)])},
    ),
]


@pytest.mark.parametrize(("launches", "expected"), [case[1:] for case in HANGS], ids=[case[0] for case in HANGS])
def test_a_hang_is_told_at_once(library: Path, launches: list, expected: dict) -> None:
    start = time.monotonic()
    with Engine(30) as engine:
        world = World(library, engine, 3)
        with engine.orchestrator():
            for kernel, rank, a, b in launches:
                world.launch(kernel, rank, a, b)
        stuck = world.stuck()
    assert time.monotonic() - start < 15
    assert stuck.reason == "hang"
    assert {task.task: (task.state, list(task.waits)) for task in stuck.tasks} == expected
    by_rank = [rank for _, rank, _, _ in launches]
    assert stuck.submitted == {rank: by_rank.count(rank) for rank in sorted(set(by_rank))}
    assert sum(stuck.submitted.values()) - sum(stuck.over.values()) == len(expected)


def test_who_depends_on_a_hang_is_told_too(library: Path) -> None:
    with Engine(30) as engine:
        world = World(library, engine, 1)
        with engine.orchestrator("host") as host:
            stuck_one = world.launch("wait_equal", 0, 2, 1, blocks=2)
            then = world.launch("block_of", 0, deps=[stuck_one])
            with pytest.raises(Hang, match="nothing can go on: 3 tasks left, of ranks -1,0") as caught:
                engine.wait([then])
    tasks = {task.name: task for task in caught.value.stuck.tasks}
    assert [wait.block for wait in tasks["wait_equal"].waits] == [0, 1]
    assert (tasks["block_of"].state, tasks["block_of"].pending) == ("pending", (stuck_one,))
    assert (tasks["host"].task, tasks["host"].state, tasks["host"].pending) == (host, "pending", (then,))


def test_the_limit_tells_who_runs(library: Path) -> None:
    start = time.monotonic()
    with Engine(0.2) as engine:
        world = World(library, engine, 2)
        with engine.orchestrator():
            both = [world.launch("spins", 0), world.launch("wait_equal", 1, 0, 1)]
            while (engine.trace()["begin"][both] == 0).any():
                time.sleep(0.01)
                engine.restart_clock()
            time.sleep(0.1)  # one of them sleeps by now
            engine.restart_clock()
        with pytest.raises(Hang, match=r"nothing was done for 0\.2 s: 2 tasks left, of ranks 0,1") as caught:
            engine.finish()
    assert time.monotonic() - start < 5
    world.windows[0, 0] = 1  # lets it come back after all
    running, waiting = caught.value.stuck.tasks
    assert caught.value.stuck.reason == "limit"
    assert (running.state, running.waits[0].what, running.waits[0].line) == ("running", "running", 26)
    assert (waiting.state, waiting.waits[0].line) == ("waiting", 21)


def test_who_looks_for_signals_between_two_waits_is_not_at_work(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread waits in slices; a limit that passes in between finds it as one that waits."""
    with Engine(0.2) as engine:
        world = World(library, engine, 1)
        wait = engine._long["wait"]

        def away_in_between(*arguments: float) -> int:
            waited = int(wait(*arguments[:-1], 0.0))
            time.sleep(0.5)
            return waited

        monkeypatch.setitem(engine._long, "wait", away_in_between)
        with engine.orchestrator("host") as host:
            spins = world.launch("spins", 0)
            with pytest.raises(Hang) as caught:
                engine.wait([spins])
        world.windows[0, 0] = 1  # lets it come back after all
    states = {task.task: (task.name, task.state, task.pending) for task in caught.value.stuck.tasks}
    assert states == {host: ("host", "pending", (spins,)), spins: ("spins", "running", ())}


def test_the_limit_counts_from_what_was_done_last(library: Path) -> None:
    with Engine(0.6) as engine:
        world = World(library, engine, 1)
        with engine.orchestrator():
            naps = [world.launch("naps", 0, 50)]
            for _ in range(14):
                naps.append(world.launch("naps", 0, 50, deps=naps[-1:]))
            engine.wait(naps)
            engine.wait([world.launch("naps_and_tells", 0, 15, 1)])
            assert world.windows[0, 0] == 15
            with pytest.raises(Hang, match=r"nothing was done for 0\.6 s"):  # what is told changes nothing
                engine.wait([world.launch("naps_and_tells", 0, 1000, 0)])


FAULTS = [
    ("fails", 0, 3, {}, (25, 7, 2, "3 is no row")),
    ("tell", 0, 9, {}, (0, 0, 2, "there is no rank 9 among 3")),
    ("defer_many", 0, 65, {}, (0, 0, 2, "a task can have no more than 64 deferred conditions")),
    ("wait_equal", 0, 0, {"pool": True}, (21, 0, 2, "a kernel that was said never to wait waits")),
]


@pytest.mark.parametrize(("kernel", "rank", "a", "how", "expected"), FAULTS)
def test_the_first_fault_ends_all(library: Path, kernel: str, rank: int, a: int, how: dict, expected: tuple) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 3)
        with engine.orchestrator():
            waits = world.launch("wait_equal", 1, 1, 1)
            faulty = world.launch(kernel, rank, a, 1, [world.launch("naps", 1, 50)], **how)
            never = world.launch("block_of", 2, deps=[faulty])
            with pytest.raises(Fault) as caught:
                engine.wait([waits])
            with pytest.raises(Fault):
                world.launch("block_of", 2)
        assert engine.trace()["begin"][never] == 0
    fault = caught.value
    assert (fault.task, fault.block, fault.rank, fault.name) == (faulty, 0, rank, kernel)
    assert (fault.line, fault.column, fault.status, fault.text) == expected
    assert str(fault) == f"{kernel} on rank {rank} failed: {expected[-1]}"
    assert (world.windows[2] == 0).all()


def test_a_window_of_another_domain_is_refused(library: Path) -> None:
    with Engine(20) as engine, engine.orchestrator():
        window = np.zeros(4, np.int32)
        engine.submit(entry(library, "tell"), "tell", 0, [Tensor.of(window)], [Context.of(0, 0, 1, [None])], [0, 1])
        with pytest.raises(Fault, match="argument 0 is no window of this domain"):
            engine.finish()


def test_the_rank_whose_fault_it_is_is_named(library: Path) -> None:
    """Whoever fails for another's sake comes first here, and is named only where the other says nothing."""
    for culprit, expected in ((2, {(2, 3)}), (9, {(0, 4), (1, 4), (2, 4)})):
        with Engine(20) as engine:
            world = World(library, engine, 3)
            with engine.orchestrator():
                for rank in range(3):
                    world.launch("fails_for", rank, culprit)
            with pytest.raises(Fault) as caught:
                engine.finish()
        assert (caught.value.rank, caught.value.status) in expected


def test_as_many_tasks_are_deferred_as_a_rank_can_have(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 2)
        with engine.orchestrator():
            for _ in range(64):
                world.launch("deferring", 0, 0, 1)
                world.launch("deferring", 1, 0, 1)
            time.sleep(0.02)
            world.launch("deferring", 0, 0, 1)
            with pytest.raises(Fault, match="more than 64 tasks of this rank wait for deferred conditions"):
                engine.finish()


def test_an_orchestrator_that_raises_gives_all_up(library: Path) -> None:
    with Engine(20) as engine:
        world = World(library, engine, 1)

        def orchestrate() -> None:
            with engine.orchestrator():
                world.launch("wait_equal", 0, 0, 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            orchestrate()
        with pytest.raises(GivenUp):
            engine.finish()


def test_the_clock_can_be_restarted_and_tasks_that_do_nothing(library: Path) -> None:
    with Engine(0.5) as engine:
        world = World(library, engine, 1)
        with engine.orchestrator():
            for turn in range(4):
                engine.restart_clock()
                nap = world.launch("naps", 0, 200, turn)
                nothing = [engine.submit(0, "nothing", 0, [], [], [], [nap])]
                for _ in range(1000):
                    nothing.append(engine.submit(0, "nothing", 0, [], [], [], nothing[-1:]))
                engine.wait(nothing[-1:])
                assert world.windows[0, turn] == 1


def test_misuse(library: Path) -> None:
    with Engine(20) as engine, engine.orchestrator():
        with pytest.raises(ValueError, match="depends on one that was not submitted"):
            engine.submit(0, "nothing", 0, [], [], [], [99])
        with pytest.raises(ValueError, match="that was not submitted is waited for"):
            engine.wait([99])
        with pytest.raises(ValueError, match="cannot be launched in 0 blocks"):
            engine.submit(0, "nothing", 0, [], [], [], blocks=0)
