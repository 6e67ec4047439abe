"""Values of each collective on several ranks, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from crossrank import nki
from crossrank.errors import InputError, RunError
from crossrank.nki import collectives as ncc
from crossrank.nki import isa as nisa
from crossrank.nki import language as nl
from crossrank.nki.collectives import ReplicaGroup, rg_partition_op

RANKS = (2, 4, 8)


def everyone(ranks):
    return ReplicaGroup([list(range(ranks))])


def drawn(ranks, *shape, dtype=np.float32):
    rng = np.random.default_rng(ranks)
    return [rng.standard_normal(shape).astype(dtype) for _ in range(ranks)]


def through(collective, x, shape, space=nl.hbm):
    """A kernel's body: a copy of ``x``, the collective, a copy of what it wrote."""
    source = nl.ndarray(x.shape, x.dtype, buffer=space)
    target = nl.ndarray(shape, x.dtype, buffer=space)
    result = nl.ndarray(shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(source, x)
    collective(source, target)
    nisa.dma_copy(result, target)
    return result


def run(ranks, collective, shape, xs, space=nl.hbm, **options):
    @nki.jit
    def kernel(x):
        return through(collective, x, shape, space)

    return nki.simulate(kernel, ranks=ranks, **options)([(x,) for x in xs])


class TestValues:
    @pytest.mark.parametrize("ranks", RANKS)
    @pytest.mark.parametrize("space", [nl.hbm, nl.shared_hbm, nl.sbuf])
    @pytest.mark.parametrize(("op", "meaning"), [(nl.add, np.sum), (nl.maximum, np.max), (nl.minimum, np.min)])
    def test_all_reduce(self, ranks, space, op, meaning):
        xs = drawn(ranks, 16, 8)
        found = run(ranks, lambda s, d: ncc.all_reduce([s], [d], everyone(ranks), op), (16, 8), xs, space)
        for own in found:
            np.testing.assert_allclose(own, meaning(np.stack(xs), axis=0), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("ranks", RANKS)
    @pytest.mark.parametrize(("space", "dim"), [(nl.hbm, 0), (nl.sbuf, 0), (nl.sbuf, 1)])
    def test_all_gather(self, ranks, space, dim):
        xs = drawn(ranks, 8, 4)
        whole = np.concatenate(xs, axis=dim)
        for own in run(ranks, lambda s, d: ncc.all_gather([s], [d], everyone(ranks), dim), whole.shape, xs, space):
            np.testing.assert_array_equal(own, whole)

    @pytest.mark.parametrize("ranks", RANKS)
    @pytest.mark.parametrize("space", [nl.hbm, nl.sbuf])
    def test_reduce_scatter(self, ranks, space):
        xs = drawn(ranks, 16, 4)
        group = everyone(ranks)
        found = run(ranks, lambda s, d: ncc.reduce_scatter([s], [d], group, 0, nl.add), (16 // ranks, 4), xs, space)
        np.testing.assert_allclose(np.concatenate(found), np.sum(xs, axis=0), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("ranks", RANKS)
    def test_all_to_all(self, ranks):
        xs = drawn(ranks, 16, 4)
        found = run(ranks, lambda s, d: ncc.all_to_all([s], [d], everyone(ranks), 0), (16, 4), xs)
        parts = [np.split(x, ranks) for x in xs]
        for rank, own in enumerate(found):
            np.testing.assert_array_equal(own, np.concatenate([p[rank] for p in parts]))

    def test_several_tensors_in_hbm(self):
        @nki.jit
        def kernel(x, y):
            outs = [nl.ndarray(t.shape, t.dtype, buffer=nl.shared_hbm) for t in (x, y)]
            ncc.all_reduce([x, y], outs, everyone(2), nl.add, priority=2, name="both")
            return tuple(outs)

        found = nki.simulate(kernel, ranks=2)([(np.float32([r]), np.int32([[10 * r]])) for r in (1, 2)])
        assert [[a.tolist() for a in own] for own in found] == [[[3.0], [[30]]]] * 2

    def test_groups_work_apart(self):
        xs = drawn(8, 4)
        group = ReplicaGroup.from_partition_op(8, rg_partition_op.mod, 4)
        found = run(8, lambda s, d: ncc.all_reduce([s], [d], group, nl.add), (4,), xs)
        for rank, own in enumerate(found):
            np.testing.assert_array_equal(own, xs[rank % 4] + xs[rank % 4 + 4])

    @pytest.mark.parametrize("ranks", RANKS)
    def test_collective_permute(self, ranks):
        xs = drawn(ranks, 4)
        pairs = [(r, (r + 1) % ranks) for r in range(ranks)]
        found = run(ranks, lambda s, d: ncc.collective_permute([s], [d], pairs), (4,), xs)
        np.testing.assert_array_equal(found, np.roll(xs, 1, axis=0))

    @pytest.mark.parametrize("ranks", RANKS)
    @pytest.mark.parametrize("space", [nl.hbm, nl.sbuf])
    def test_ring_and_the_ranks_that_it_names(self, ranks, space):
        """Whatever way a channel goes, the register says whose data has come."""
        xs = drawn(ranks, 4, 6)

        @nki.jit
        def kernel(x):
            result = nl.ndarray((ranks, 4, 6), x.dtype, buffer=nl.shared_hbm)
            held = nl.ndarray((4, 6), x.dtype, buffer=space)
            nisa.dma_copy(held, x)
            for step in range(ranks):
                for channel, half in enumerate((slice(0, 3), slice(3, 6))):
                    owner = ncc.collective_permute_implicit_current_processing_rank_id(
                        iteration_id=step, channel_id=channel, replica_group=everyone(ranks)
                    )
                    nisa.dma_copy(result[owner, :, half], held[:, half])
                coming = nl.ndarray((4, 6), x.dtype, buffer=space)
                ncc.collective_permute_implicit(
                    srcs_by_channel=[[held[:, 0:3]], [held[:, 3:6]]],
                    dsts_by_channel=[[coming[:, 0:3]], [coming[:, 3:6]]],
                    replica_group=everyone(ranks),
                    channel_ids=[0, 1],
                )
                held = coming
            return result

        for own in nki.simulate(kernel, ranks=ranks)([(x,) for x in xs]):
            np.testing.assert_array_equal(own, xs)

    @pytest.mark.parametrize("ranks", RANKS)
    def test_collective_permute_implicit_reduce(self, ranks):
        """One channel of several may be named alone, in tuples too."""
        xs = drawn(ranks, 4)

        def permute(source, target):
            ncc.collective_permute_implicit_reduce(
                ((source,),), ((source,),), ((target,),), everyone(ranks), nl.add, channel_ids=(1,)
            )

        np.testing.assert_array_equal(run(ranks, permute, (4,), xs), np.roll(xs, -1, axis=0) * 2)

    @pytest.mark.parametrize("lnc", [1, 2])
    def test_rank_id(self, lnc):
        @nki.jit
        def kernel():
            result = nl.ndarray((1,), nl.uint32, buffer=nl.shared_hbm, name="result")
            nisa.register_store(result, ncc.rank_id() * 2 + 1)
            return result

        assert [r.tolist() for r in nki.simulate(kernel[lnc], ranks=3)([()] * 3)] == [[1], [3], [5]]


class TestCores:
    """Ranks of two cores: what both do on shared HBM is one operation, what each does on its SBUF is its own."""

    @pytest.mark.parametrize("ranks", RANKS)
    def test_shared_hbm(self, ranks):
        """Neither core waits for the other before the permutes."""
        xs = drawn(ranks, 2, 3, 4)

        @nki.jit
        def kernel(x):
            core = nl.program_id(0)
            buffers = [nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=f"buffer{n}") for n in range(2)]
            result = nl.ndarray((ranks, *x.shape), x.dtype, buffer=nl.shared_hbm, name="result")
            nisa.dma_copy(buffers[0][core], x[core])
            for step in range(ranks):
                held, coming = buffers[step % 2], buffers[(step + 1) % 2]
                owner = ncc.collective_permute_implicit_current_processing_rank_id(step, everyone(ranks))
                nisa.dma_copy(result[owner, core], held[core])
                ncc.collective_permute_implicit([[held]], [[coming]], everyone(ranks))
            return result

        for own in nki.simulate(kernel[2], ranks=ranks)([(x,) for x in xs]):
            np.testing.assert_array_equal(own, xs)

    def test_sbuf(self):
        xs = drawn(4, 2, 3, 4)

        @nki.jit
        def kernel(x):
            core = nl.program_id(0)
            source, target = nl.load(x[core]), nl.ndarray((3, 8), x.dtype)
            group = ReplicaGroup([[0, 2], [1, 3]] if core else [[0, 1], [2, 3]])
            ncc.all_gather([source], [target], group, 1)
            result = nl.ndarray((2, 3, 8), x.dtype, buffer=nl.shared_hbm, name="result")
            nisa.dma_copy(result[core], target)
            return result

        found = nki.simulate(kernel[2], ranks=4)([(x,) for x in xs])
        np.testing.assert_array_equal(found[0][0], np.concatenate([xs[0][0], xs[1][0]], axis=1))
        np.testing.assert_array_equal(found[3][1], np.concatenate([xs[1][1], xs[3][1]], axis=1))


def metadata_of(ranks, rng, room, rows):
    """Send counts and displacements of each rank."""
    counts = rng.integers(0, room + 1, (ranks, ranks)).astype(np.uint32)
    return [np.stack([c, np.cumsum(c) - c, *[c * 0 + 99] * (rows - 2)]).astype(np.uint32) for c in counts]


class TestVariableExchange:
    @pytest.mark.parametrize("ranks", RANKS)
    @pytest.mark.parametrize("halves", [False, True])
    @pytest.mark.parametrize("in_sbuf", [False, True])
    @pytest.mark.parametrize("rows", [3, 4])
    def test_all_to_all_v(self, ranks, halves, in_sbuf, rows):
        """Kernels of older versions have four rows of metadata, of which the last counts for nothing."""
        room = 5
        tables = metadata_of(ranks, np.random.default_rng(ranks), room, rows)
        xs = drawn(ranks, room * ranks)

        @nki.jit
        def kernel(x, table):
            result = nl.zeros((room * ranks,), x.dtype, buffer=nl.shared_hbm)
            shape, space = ((1, rows, ranks), nl.sbuf) if in_sbuf else ((rows, ranks), nl.hbm)
            metadata = nl.ndarray(shape, nl.uint32, buffer=space)
            nisa.dma_copy(metadata, table)
            if halves:
                prepared = ncc.all_to_all_v_prepare([x], [result], everyone(ranks), metadata)
                ncc.all_to_all_v_trigger(prepared)
            else:
                ncc.all_to_all_v([x], [result], everyone(ranks), metadata)
            counts = nl.ndarray((rows, ranks), nl.uint32, buffer=nl.shared_hbm)
            nisa.dma_copy(counts, metadata)
            return result, counts

        found = nki.simulate(kernel, ranks=ranks)(list(zip(xs, tables, strict=True)))
        for rank, (own, counts) in enumerate(found):
            np.testing.assert_array_equal(counts[2], [t[0, rank] for t in tables])
            for sender, part in enumerate(np.split(own, ranks)):
                size, start = tables[sender][:2, rank]
                np.testing.assert_array_equal(part[:size], xs[sender][start : start + size])
                assert not part[size:].any()

    def test_all_to_all_v_with_places_at_the_receiver(self):
        @nki.jit
        def kernel(x, table):
            result = nl.zeros((4,), x.dtype, buffer=nl.shared_hbm)
            ncc.all_to_all_v([x], [result], everyone(2), table, recv_counts_known=True, has_rdispls=True)
            return result

        table = np.uint32([[1, 2], [0, 1], [9, 9], [2, 0]])
        found = nki.simulate(kernel, ranks=2)([(np.float32([1, 2, 3]), table), (np.float32([4, 5, 6]), table)])
        # rank 0 gets one element from each, rank 1 two; from rank 0 they go to element 2, from rank 1 to element 0
        assert [r.tolist() for r in found] == [[4, 0, 1, 0], [5, 6, 2, 3]]
        assert table[2].tolist() == [9, 9]

    @pytest.mark.parametrize("ranks", RANKS)
    @pytest.mark.parametrize("halves", [False, True])
    def test_all_gather_v(self, ranks, halves):
        """One chunk to all; only the first column counts."""
        xs = drawn(ranks, 6)
        tables = [np.zeros((3, ranks), np.uint32) for _ in range(ranks)]
        for rank, table in enumerate(tables):
            table[:2, 0], table[:2, 1:] = (rank % 4, 2), 99

        @nki.jit
        def kernel(x, table):
            result = nl.zeros((4 * ranks,), x.dtype, buffer=nl.shared_hbm)
            if halves:
                ncc.all_gather_v_trigger(ncc.all_gather_v_prepare([x], [result], everyone(ranks), table))
            else:
                ncc.all_gather_v([x], [result], everyone(ranks), table)
            return result

        wanted = [np.concatenate([x[2 : 2 + r % 4], np.zeros(4 - r % 4, np.float32)]) for r, x in enumerate(xs)]
        for own in nki.simulate(kernel, ranks=ranks)(list(zip(xs, tables, strict=True))):
            np.testing.assert_array_equal(own, np.concatenate(wanted))

    def test_more_than_there_is_room_for(self):
        @nki.jit
        def kernel(x, table):
            result = nl.zeros((4,), x.dtype, buffer=nl.shared_hbm)
            ncc.all_to_all_v([x], [result], everyone(2), table)
            return result

        table = np.uint32([[3, 0], [0, 0], [0, 0]])
        with pytest.raises(RunError, match="rank 0 sends 3 elements from 0 on of 4 to rank 0, which has room for 2"):
            nki.simulate(kernel, ranks=2)([(np.zeros(4, np.float32), table)] * 2)


class TestReplicaGroup:
    def test_forms(self):
        group = ReplicaGroup(((0, 1), (2, 3)))
        assert group == ReplicaGroup([[0, 1], [2, 3]])
        assert repr(group) == "ReplicaGroup([[0, 1], [2, 3]])"
        assert group._value == [[0, 1], [2, 3]]
        assert len({group, ReplicaGroup([[0, 1], [2, 3]])}) == 1

    @pytest.mark.parametrize(
        ("op", "operand", "lists"),
        [
            (rg_partition_op.bitwise_and, 0, "[[0, 1, 2, 3, 4, 5, 6, 7]]"),
            (rg_partition_op.div, 4, "[[0, 1, 2, 3], [4, 5, 6, 7]]"),
            (rg_partition_op.mod, 4, "[[0, 4], [1, 5], [2, 6], [3, 7]]"),
        ],
    )
    def test_from_partition_op(self, op, operand, lists):
        assert repr(ReplicaGroup.from_partition_op(8, op, operand)) == f"ReplicaGroup({lists})"

    @pytest.mark.parametrize(
        ("lists", "text"),
        [
            ([[0, 1], [1, 2]], "rank 1 is in two lists"),
            ([[0], []], "a replica group without ranks"),
            ([0, 1], "a list of lists of ranks, not \\[0, 1\\]"),
        ],
    )
    def test_refused(self, lists, text):
        with pytest.raises(InputError, match=text):
            ReplicaGroup(lists)

    def test_no_division_by_zero(self):
        with pytest.raises(InputError, match="mod by 0"):
            ReplicaGroup.from_partition_op(8, rg_partition_op.mod, 0)


TWO = ReplicaGroup([[0, 1]])


def made(space=nl.hbm, shape=(8, 4), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=space)


def counts(space=nl.hbm, shape=(3, 2), dtype=nl.uint32):
    return nl.ndarray(shape, dtype, buffer=space)


def prepared():
    return ncc.all_to_all_v_prepare([made()], [made()], TWO, counts())


def twice(trigger):
    trigger(handle := prepared())
    trigger(handle)


REFUSED = [
    (lambda: ncc.all_reduce(made(), [made()], TWO, nl.add), "all_reduce srcs must be a list of tensors"),
    (lambda: ncc.all_reduce([], [], TWO, nl.add), "all_reduce srcs must be a list of tensors"),
    (lambda: ncc.all_reduce([made()], [made(nl.sbuf)], TWO, nl.add), "all in HBM or all in SBUF, not in private_hbm"),
    (lambda: ncc.all_reduce([made(nl.psum)], [made(nl.psum)], TWO, nl.add), "all in HBM or all in SBUF, not in psum"),
    (
        lambda: ncc.all_reduce([made(), made(nl.shared_hbm)], [made(), made()], TWO, nl.add),
        "all_reduce srcs must lie all in private_hbm or all in shared_hbm",
    ),
    (
        lambda: ncc.all_reduce([made(), made()], [made(), made(nl.shared_hbm)], TWO, nl.add),
        "all_reduce dsts must lie all in private_hbm or all in shared_hbm",
    ),
    (
        lambda: ncc.all_reduce([made(nl.sbuf)] * 2, [made(nl.sbuf)] * 2, TWO, nl.add),
        "several tensors in HBM only, and one in SBUF",
    ),
    (
        lambda: ncc.all_reduce([made(nl.sbuf, (8, 2, 2))], [made(nl.sbuf, (8, 2, 2))], TWO, nl.add),
        r"2 dimensions in SBUF, and sbuf-0\[8, 2, 2\] has 3",
    ),
    (lambda: ncc.all_reduce([made()], [made()], TWO, "xor_sum"), "no reduction is called 'xor_sum'"),
    (lambda: ncc.all_reduce([made()], [made()], [[0, 1]], nl.add), r"must be a ReplicaGroup, not \[\[0, 1\]\]"),
    (lambda: ncc.all_reduce([made()], [made()], TWO, nl.add, priority=4), "priority is 0, 1, 2 or 3, not 4"),
    (lambda: ncc.all_reduce([made()], [made()], ReplicaGroup([[0, 2]]), nl.add), "rank 2 is none of the 2 ranks"),
    (lambda: ncc.all_gather([made()], [made(shape=(8, 8))], TWO, 1), "collective_dim in HBM is 0, not 1"),
    (
        lambda: ncc.all_gather([made(nl.sbuf)], [made(nl.sbuf, (8, 8))], TWO, 2),
        "collective_dim in SBUF is 0 or 1, not 2",
    ),
    (lambda: ncc.all_gather([made()], [made()], TWO, 0), r"the destination gets \[16, 4\], and has \[8, 4\]"),
    (
        lambda: ncc.reduce_scatter([made(nl.sbuf)], [made(nl.sbuf, (8, 2))], TWO, 1, nl.add),
        "reduce_scatter collective_dim in SBUF is 0, not 1",
    ),
    (lambda: ncc.all_to_all([made(nl.sbuf)], [made(nl.sbuf)], TWO, 0), "all_to_all takes tensors in HBM only"),
    (lambda: ncc.collective_permute([made(nl.sbuf)], [made(nl.sbuf)], [(0, 1)]), "takes tensors in HBM only"),
    (lambda: ncc.collective_permute([made()] * 2, [made()] * 2, [(0, 1)]), "exactly one tensor in srcs, not 2"),
    (lambda: ncc.collective_permute([made()], [made()], [(0, 1), (0, 0)]), "a rank is the source of two pairs"),
    (
        lambda: ncc.collective_permute_implicit([[made()] * 2], [[made()]], TWO),
        "exactly one tensor in srcs of channel 0, not 2",
    ),
    (
        lambda: ncc.collective_permute_implicit([[made()]], [[made()]], TWO, channel_ids=[0, 1]),
        "2 channel_ids, and tensors for 1 channels in srcs_by_channel",
    ),
    (
        lambda: ncc.collective_permute_implicit([[made()]] * 2, [[made()]] * 2, TWO, channel_ids=[1, 2]),
        r"consecutive integers from 0 on, not \[1, 2\]",
    ),
    (
        lambda: ncc.collective_permute_implicit([[made()]] * 5, [[made()]] * 5, TWO, channel_ids=range(5)),
        "at most 4 channels here, and channel 4 is asked",
    ),
    (
        lambda: ncc.all_to_all_v([made(nl.sbuf)], [made(nl.sbuf)], TWO, counts()),
        "all_to_all_v takes tensors in HBM only",
    ),
    (
        lambda: ncc.all_to_all_v([made()], [made()], TWO, counts(shape=(3, 4))),
        r"metadata_tensor in private_hbm has the shape \(3, 2\), not \(3, 4\)",
    ),
    (
        lambda: ncc.all_to_all_v([made()], [made()], TWO, counts(), has_rdispls=True),
        r"metadata_tensor in private_hbm has the shape \(4, 2\), not \(3, 2\)",
    ),
    (
        lambda: ncc.all_to_all_v([made()], [made()], TWO, counts(nl.sbuf)),
        r"metadata_tensor in sbuf has the shape \(1, 3, 2\), not \(3, 2\)",
    ),
    (
        lambda: ncc.all_to_all_v([made()], [made()], TWO, counts(dtype=nl.int32)),
        "metadata_tensor is of uint32, not s32",
    ),
    (lambda: (prepared(), prepared()), "is prepared and not triggered yet"),
    (lambda: twice(ncc.all_to_all_v_trigger), "AllToAllV-0 was triggered before"),
    (lambda: ncc.all_gather_v_trigger(prepared()), "all_gather_v_trigger takes what all_gather_v_prepare returned"),
    (prepared, "AllToAllV-0 is prepared and never triggered"),
]
DOCUMENTED = [
    (
        lambda: ncc.all_reduce([made()], [made()], TWO, nl.multiply),
        "all_reduce op is nl.add, nl.minimum or nl.maximum, not multiply",
    ),
    (lambda: ncc.rank_id() + 1, "a rank's number can be an offset only"),
    (
        lambda: ncc.all_reduce([made(nl.shared_hbm)], [made()], TWO, nl.add),
        "srcs must lie in private_hbm on ranks of one core",
    ),
    (
        lambda: ncc.collective_permute_implicit([[made()]], [[made()]], TWO, channel_ids=(1,)),
        r"consecutive integers from 0 on, not \[1\]",
    ),
    (
        lambda: ncc.collective_permute_implicit(
            [[made()]] * 3, [[made()]] * 3, ReplicaGroup([[0], [1]]), channel_ids=[0, 1, 2]
        ),
        "at most 2 channels here, and channel 2 is asked",
    ),
    (lambda: ncc.all_gather_v([made()], [made()], TWO, counts()), "all_gather_v needs ranks of 2 cores, not 1"),
    (
        lambda: ncc.all_reduce([made()], [made()], TWO, nl.add, priority=1),
        "priority from architecture level 40 on, and this is 30",
    ),
]


def traced(body, **options):
    def kernel():
        body()

    return nki.simulate(kernel, ranks=2, **options).trace([(), ()])


@pytest.mark.parametrize(("body", "text"), REFUSED)
def test_refused(body, text):
    """In a line that begins with the author's."""
    with pytest.raises(InputError, match=rf"^test_collectives.py:\d+: .*{text}"):
        traced(body)


@pytest.mark.parametrize(("body", "text"), DOCUMENTED)
def test_refused_as_documented(body, text):
    traced(body, arch=30)
    with pytest.raises(InputError, match=rf"^test_collectives.py:\d+: .*{text}"):
        traced(body, arch=30, as_documented=True)


@pytest.mark.parametrize("what", ["input", "output"])
def test_operands_of_the_kernel_as_documented(what):
    @nki.jit
    def kernel(x):
        own = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        result = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(own, x)
        ncc.all_reduce([x if what == "input" else own], [result if what == "output" else own], TWO, nl.add)
        if what == "input":
            nisa.dma_copy(result, own)
        return result

    arguments = [(np.float32([1]),), (np.float32([2]),)]
    assert [r.tolist() for r in nki.simulate(kernel, ranks=2)(arguments)] == [[3], [3]]
    with pytest.raises(InputError, match=r"AllReduce-0 works on .*, which is an input or output of the kernel"):
        nki.simulate(kernel, ranks=2, as_documented=True)(arguments)


def test_handles():
    seen = []

    @nki.jit
    def kernel():
        seen.append(ncc.all_reduce([made()], [made()], TWO, nl.add, name="sum"))
        tensors = [[made()], [made()]]
        seen.append(ncc.collective_permute_implicit(tensors, tensors, TWO, [0, 1], name="ring"))

    nki.simulate(kernel, ranks=2).trace([(), ()])
    assert [(h.name, [i.label for i in h.instructions]) for h in seen] == [
        ("sum", ["sum"]),
        ("ring.0", ["ring.0", "ring.1"]),
    ]
    assert seen[1].instruction.fields.num_channels == 2


def test_all_to_all_of_elements_where_dimension_0_has_no_slices():
    def kernel(x, ranks):
        sent, received = (nl.ndarray(x.shape, x.dtype, buffer=nl.hbm) for _ in range(2))
        nisa.dma_copy(sent, x)
        ncc.all_to_all([sent], [received], ncc.ReplicaGroup([list(range(ranks))]), 0)
        return received

    given = [np.arange(12, dtype=np.float32).reshape(1, 12) + 100 * rank for rank in range(4)]
    found = nki.simulate(kernel, ranks=4)([(x, 4) for x in given])
    for rank, own in enumerate(found):
        np.testing.assert_array_equal(own, np.concatenate([x[:, 3 * rank : 3 * rank + 3] for x in given], axis=1))
