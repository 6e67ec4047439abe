import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.semantics import (
    Collective,
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_tuple,
    collective_broadcast,
    collective_permute,
    evaluate,
    evaluate_group,
    ragged_all_to_all,
    reduce_scatter,
    send_recv,
)

ADD = ReduceOp.ADD


def lists(arrays):
    return [a.tolist() for a in arrays]


def i32(*values):
    return np.array(values, np.int32)


def test_all_reduce():
    assert lists(all_reduce([i32(1, 2), i32(10, 20), i32(100, 200)], ADD)) == [[111, 222]] * 3


def test_reduce_scatter():
    assert lists(reduce_scatter([i32(1, 2), i32(10, 20)], ADD, 0)) == [[11], [22]]
    a = np.arange(8).reshape(2, 4)
    assert lists(reduce_scatter([a, a], ADD, 1)) == [[[0, 2], [8, 10]], [[4, 6], [12, 14]]]


def test_all_gather():
    assert lists(all_gather([i32(1), i32(2), i32(3)], 0)) == [[1, 2, 3]] * 3
    assert lists(all_gather([np.array([[1], [2]]), np.array([[3], [4]])], 1)) == [[[1, 3], [2, 4]]] * 2


def test_all_to_all():
    assert lists(all_to_all([i32(1, 2), i32(3, 4)], 0)) == [[1, 3], [2, 4]]
    a, b = np.array([[1, 2]]), np.array([[3, 4]])
    assert lists(all_to_all([a, b], 1)) == [[[1, 3]], [[2, 4]]]
    assert lists(all_to_all([a, b], 1, concat_dim=0)) == [[[1], [3]], [[2], [4]]]


def test_all_to_all_tuple():
    got = all_to_all_tuple([[i32(1), i32(2)], [i32(3), i32(4)]])
    assert [lists(member) for member in got] == [[[1], [3]], [[2], [4]]]


def test_collective_permute():
    arrays = [i32(1), i32(2), i32(3)]
    assert lists(collective_permute(arrays, [(0, 1), (1, 2)])) == [[0], [1], [2]]
    assert lists(collective_permute(arrays, [(2, 2), (0, 1), (1, 0)])) == [[2], [1], [3]]
    assert lists(send_recv(arrays, [(0, 2)])) == [[0], [0], [1]]


def test_collective_broadcast():
    assert lists(collective_broadcast([i32(7), i32(8)])) == [[7], [7]]


def test_ragged_all_to_all():
    """Member 0 sends one row to itself and two to member 1, which sends one row to member 0 and none to itself."""
    zero = (i32(1, 2, 3), i32(0, 0, 0), i32(0, 1), i32(1, 2), i32(0, 1), i32(1, 1))
    one = (i32(4, 5, 6), i32(9, 9, 9), i32(2, 0), i32(1, 0), i32(2, 0), i32(2, 0))
    assert lists(ragged_all_to_all([zero, one])) == [[1, 0, 6], [9, 2, 3]]


def test_ragged_all_to_all_with_several_updates_a_peer():
    zero = (i32(1, 2, 3), i32(0, 0, 0), i32(0, 2, 0, 1), i32(1, 1, 1, 0), i32(2, 0, 1, 0), i32(1, 1, 0, 0))
    one = (i32(4, 5, 6), i32(0, 0, 0), i32(0, 0, 0, 0), i32(0, 0, 0, 0), i32(0, 0, 0, 0), i32(1, 0, 0, 0))
    assert lists(ragged_all_to_all([zero, one])) == [[3, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({3: i32(1, 3)}, "member 0 sends 3 rows to member 1, which expects 2"),
        ({2: i32(0, 2)}, "member 0 sends rows 2..4 of 3"),
        ({4: i32(0, 2)}, "member 0 writes rows 2..4 of 3 on member 1"),
        ({4: i32(-1, 1)}, "member 0 writes rows -1..0 of 3 on member 0"),
    ],
)
def test_ragged_all_to_all_out_of_bounds(change, fault):
    zero = [i32(1, 2, 3), i32(0, 0, 0), i32(0, 1), i32(1, 2), i32(0, 1), i32(1, 1)]
    one = [i32(4, 5, 6), i32(9, 9, 9), i32(2, 0), i32(1, 0), i32(2, 0), i32(2, 0)]
    for k, value in change.items():
        zero[k] = value
    with pytest.raises(ValueError) as error:
        ragged_all_to_all([zero, one])
    assert str(error.value) == fault


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: all_reduce([], ADD), "a collective needs at least one member"),
        (lambda: all_reduce([i32(1), i32(1, 2)], ADD), "member 1 has s32[2], member 0 has s32[1]"),
        (lambda: all_reduce([i32(1), np.ones(1, np.float32)], ADD), "member 1 has f32[1], member 0 has s32[1]"),
        (lambda: all_reduce([np.ones(1)], ReduceOp.AND), "and is not defined on f64"),
        (lambda: reduce_scatter([i32(1, 2, 3)] * 2, ADD, 0), "dim 0 of s32[3] cannot be split among 2"),
        (lambda: reduce_scatter([i32(1, 2)] * 2, ADD, 1), "s32[2] has no dim 1"),
        (lambda: all_gather([np.array(1.0)] * 2, 0), "f64[] has no dim 0"),
        (lambda: all_gather([i32(1)] * 2, -1), "s32[1] has no dim -1"),
        (lambda: all_to_all([i32(1, 2)] * 2, 0, 1), "s32[2] has no dim 1"),
        (lambda: all_to_all_tuple([[i32(1)], [i32(1)]]), "an all-to-all of 2 members needs 2 operands on each"),
        (lambda: collective_permute([i32(1)] * 2, [(0, 2)]), "pair 0,2 is outside the 2 ranks"),
        (lambda: collective_permute([i32(1)] * 2, [(0, 1), (1, 1)]), "rank 1 is the target of two pairs"),
        (lambda: ragged_all_to_all([[i32(1)]]), "a ragged all-to-all has six operands, not 1"),
        (
            lambda: ragged_all_to_all([[i32(1)] * 6] * 2),
            "offsets and sizes of a ragged all-to-all among 2 need entries for each peer",
        ),
        (lambda: Collective(Kind.ALL_REDUCE), "all-reduce needs a reduce op"),
        (lambda: Collective(Kind.ALL_GATHER), "all-gather needs a dim"),
        (
            lambda: evaluate(Collective(Kind.ALL_REDUCE, ((0, 1), (1,)), ADD), [[i32(1)]] * 2),
            "groups must hold each of the 2 ranks at most once",
        ),
        (
            lambda: evaluate(Collective(Kind.ALL_REDUCE, ((0, 2),), ADD), [[i32(1)]] * 2),
            "groups must hold each of the 2 ranks at most once",
        ),
        (
            lambda: evaluate(Collective(Kind.ALL_REDUCE, (), ADD), [[i32(1)], []]),
            "the members have different numbers of operands",
        ),
    ],
)
def test_faults(call, fault):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == fault


def test_groups_are_taken_in_the_order_as_written():
    operands = [[i32(rank)] for rank in range(6)]
    gather = Collective(Kind.ALL_GATHER, ((5, 1, 3), (4, 0, 2)), dim=0)
    assert [r[0].tolist() for r in evaluate(gather, operands)] == [[4, 0, 2], [5, 1, 3]] * 3
    scatter = Collective(Kind.REDUCE_SCATTER, ((1, 0),), ADD, dim=0)
    assert [r[0].tolist() for r in evaluate(scatter, [[i32(1, 2)], [i32(10, 20)]])] == [[22], [11]]
    broadcast = Collective(Kind.COLLECTIVE_BROADCAST, ((4, 0), (5, 1)))
    assert [r[0].tolist() for r in evaluate(broadcast, operands)] == [[4], [5], [0], [0], [4], [5]]


def test_who_is_in_no_group_gets_zeros_of_the_shape_of_the_result():
    operands = [[i32(rank + 1), np.ones((1, 2))] for rank in range(4)]
    results = evaluate(Collective(Kind.ALL_GATHER, ((1, 2),), dim=0), operands)
    assert [[a.tolist() for a in r] for r in results] == [
        [[0, 0], [[0, 0], [0, 0]]],
        [[2, 3], [[1, 1], [1, 1]]],
        [[2, 3], [[1, 1], [1, 1]]],
        [[0, 0], [[0, 0], [0, 0]]],
    ]


def test_no_groups_are_everyone():
    operands = [[i32(1)], [i32(2)], [i32(4)]]
    assert [r[0].tolist() for r in evaluate(Collective(Kind.ALL_REDUCE, (), ADD), operands)] == [[7]] * 3


def test_groups_may_differ_in_size():
    operands = [[i32(1)], [i32(2)], [i32(4)]]
    results = evaluate(Collective(Kind.ALL_REDUCE, ((2, 0), (1,)), ADD), operands)
    assert [r[0].tolist() for r in results] == [[5], [2], [5]]


@st.composite
def worlds(draw):
    """Groups of one size over a shuffled world, and for each rank two operands whose first dim the group divides."""
    count, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    ranks = draw(st.permutations(range(count * size)))
    groups = tuple(tuple(ranks[g * size : (g + 1) * size]) for g in range(count))
    shapes = [(size * draw(st.integers(0, 3)), draw(st.integers(0, 3))), (size * draw(st.integers(0, 3)),)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtypes = [draw(st.sampled_from([np.int32, np.float32, np.float16, np.bool_, np.complex64])) for _ in shapes]
    operands = [[rng.normal(0, 9, s).astype(d) for s, d in zip(shapes, dtypes, strict=True)] for _ in ranks]
    return groups, operands


PER_GROUP = {
    Kind.ALL_REDUCE: lambda inputs: all_reduce(inputs, ADD),
    Kind.REDUCE_SCATTER: lambda inputs: reduce_scatter(inputs, ADD, 0),
    Kind.ALL_GATHER: lambda inputs: all_gather(inputs, 0),
    Kind.ALL_TO_ALL: lambda inputs: all_to_all(inputs, 0),
    Kind.COLLECTIVE_BROADCAST: collective_broadcast,
}


def same(a, b):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert a.tobytes() == b.tobytes()


@given(worlds(), st.sampled_from(list(PER_GROUP)))
def test_evaluate_is_each_group_and_each_operand_on_its_own(world, kind):
    groups, operands = world
    before = [[a.copy() for a in rank] for rank in operands]
    collective = Collective(kind, groups, ADD, 0)
    results = evaluate(collective, operands)
    for group in groups:
        together = evaluate_group(collective, [operands[rank] for rank in group])
        for k in range(2):
            alone = PER_GROUP[kind]([operands[rank][k] for rank in group])
            for i, rank in enumerate(group):
                same(results[rank][k], alone[i])
                same(together[i][k], alone[i])
    for rank, arrays in enumerate(operands):  # untouched, and nothing is shared with the results
        for k, array in enumerate(arrays):
            same(array, before[rank][k])
            assert not any(np.shares_memory(array, r[k]) for r in results)
    flat = [a for r in results for a in r]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(flat) for b in flat[:i])


@given(worlds())
def test_a_reduce_scatter_is_a_slice_of_the_all_reduce(world):
    groups, operands = world
    whole = evaluate(Collective(Kind.ALL_REDUCE, groups, ADD), operands)
    slices = evaluate(Collective(Kind.REDUCE_SCATTER, groups, ADD, 0), operands)
    for group in groups:
        for i, rank in enumerate(group):
            for k in range(2):
                rows = len(whole[rank][k]) // len(group)
                same(slices[rank][k], whole[rank][k][i * rows : (i + 1) * rows].copy())


@given(worlds())
def test_a_slice_of_the_all_gather_is_what_one_gave(world):
    groups, operands = world
    gathered = evaluate(Collective(Kind.ALL_GATHER, groups, dim=0), operands)
    for group in groups:
        for i, giver in enumerate(group):
            for k in range(2):
                rows = len(operands[giver][k])
                for getter in group:
                    same(gathered[getter][k][i * rows : (i + 1) * rows].copy(), operands[giver][k])


@given(worlds())
def test_all_to_all_twice_changes_nothing(world):
    groups, operands = world
    collective = Collective(Kind.ALL_TO_ALL, groups, dim=0)
    again = evaluate(collective, evaluate(collective, operands))
    for rank, arrays in enumerate(operands):
        for a, b in zip(arrays, again[rank], strict=True):
            same(a, b)


@given(worlds())
def test_the_two_forms_of_all_to_all_agree(world):
    groups, operands = world
    size = len(groups[0])
    arrays = evaluate(Collective(Kind.ALL_TO_ALL, groups, dim=0), [[rank[0]] for rank in operands])
    tuples = evaluate(Collective(Kind.ALL_TO_ALL, groups), [np.split(rank[0], size) for rank in operands])
    for a, parts in zip(arrays, tuples, strict=True):
        same(a[0], np.concatenate(parts))


@given(st.data())
def test_permutes_compose(data):
    world = data.draw(st.integers(1, 6))
    first, second = (data.draw(st.permutations(range(world))) for _ in range(2))
    arrays = [i32(rank + 1) for rank in range(world)]
    steps = collective_permute(collective_permute(arrays, enumerate(first)), enumerate(second))
    at_once = collective_permute(arrays, [(rank, second[first[rank]]) for rank in range(world)])
    assert lists(steps) == lists(at_once)
    back = collective_permute(collective_permute(arrays, enumerate(first)), [(t, s) for s, t in enumerate(first)])
    assert lists(back) == lists(arrays)


@given(st.data())
def test_evaluate_of_pairs(data):
    world = data.draw(st.integers(1, 6))
    targets = data.draw(st.permutations(range(world)))[: data.draw(st.integers(0, world))]
    pairs = tuple((data.draw(st.integers(0, world - 1)), target) for target in targets)
    operands = [[i32(rank + 1), np.full(2, rank + 10.0)] for rank in range(world)]
    want = [
        [collective_permute([o[k] for o in operands], pairs)[rank].tolist() for k in (0, 1)] for rank in range(world)
    ]
    for kind in (k for k in Kind if k.has_pairs):
        assert [lists(r) for r in evaluate(Collective(kind, pairs=pairs), operands)] == want


@given(st.data())
def test_ragged_is_a_naive_loop(data):
    size = data.draw(st.integers(1, 4))
    sends = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size**2, max_size=size**2))).reshape(size, size)
    slack = data.draw(st.integers(0, 2))
    rows_in, rows_out = sends.sum(1).max() + slack, sends.sum(0).max() + slack
    starts = np.cumsum(sends, axis=1) - sends
    places = np.cumsum(sends, axis=0) - sends
    width = data.draw(st.integers(0, 2))
    rng = np.random.default_rng(0)
    order = data.draw(st.permutations(range(size)))
    members = [
        (
            rng.normal(size=(rows_in, width)),
            rng.normal(size=(rows_out, width)),
            starts[i],
            sends[i],
            places[i],
            sends[:, i],
        )
        for i in range(size)
    ]
    want = [member[1].copy() for member in members]
    for i in range(size):
        for j in range(size):
            for row in range(sends[i, j]):
                want[j][places[i, j] + row] = members[i][0][starts[i, j] + row]
    for got, expected in zip(ragged_all_to_all(members), want, strict=True):
        same(got, expected)
    # In a shuffled world the group still says who is who.
    operands = [members[order.index(rank)] for rank in range(size)]
    results = evaluate(Collective(Kind.RAGGED_ALL_TO_ALL, (tuple(order),)), operands)
    for i, rank in enumerate(order):
        same(results[rank][0], want[i])
