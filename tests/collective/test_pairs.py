import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.groups import GroupMode, group_mode
from crossrank.collective.pairs import SourceTargetPairs, parse_pairs


@pytest.mark.parametrize("text", ["{}", "{{0,1}}", "{{0,1},{1,2},{7,7}}"])
def test_read_and_print(text):
    assert str(parse_pairs(text)) == text
    assert parse_pairs(f" {text.replace(',', ' , ')} ") == parse_pairs(text)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_print_and_read(pairs):
    made = SourceTargetPairs(tuple(pairs))
    assert SourceTargetPairs.parse(str(made)) == made
    assert list(made) == pairs
    assert len(made) == len(pairs)


@pytest.mark.parametrize("text", ["", "{0,1}", "{{0,1}", "{{0,1,2}}", "{{0,1},}", "{{a,b}}"])
def test_what_is_no_pairs(text):
    with pytest.raises(ValueError) as error:
        parse_pairs(text)
    assert str(error.value) == f"cannot read the source-target pairs {text!r}"


def test_source_of():
    pairs = parse_pairs("{{0,1},{1,2},{3,3}}")
    assert [pairs.source_of(target) for target in range(5)] == [None, 0, 1, 3, None]


@pytest.mark.parametrize(
    ("text", "components"),
    [
        ("{}", ()),
        ("{{3,3}}", ((3,),)),
        ("{{0,1},{1,2},{5,4},{7,7}}", ((0, 1, 2), (4, 5), (7,))),
        ("{{5,0},{3,2},{2,5},{1,6}}", ((0, 2, 3, 5), (1, 6))),
        ("{{0,1},{1,2},{2,0}}", ((0, 1, 2),)),
    ],
)
def test_components(text, components):
    assert parse_pairs(text).components() == components


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_components_are_closed_and_connected(pairs):
    made = SourceTargetPairs(tuple(pairs))
    place = {i: n for n, group in enumerate(made.components()) for i in group}
    assert set(place) == {i for pair in pairs for i in pair}
    assert all(place[s] == place[t] for s, t in pairs)
    # a set of k ids that k - 1 pairs or fewer do not hold together would not be one component
    for group in made.components():
        reached = {group[0]}
        for _ in group:
            reached |= {i for pair in pairs if reached.intersection(pair) for i in pair}
        assert reached == set(group)


def test_within():
    pairs = parse_pairs("{{0,1},{1,2},{5,4},{7,7}}")
    assert str(pairs.within((0, 1, 2))) == "{{0,1},{1,2}}"
    assert str(pairs.within((4, 5))) == "{{1,0}}"
    assert str(pairs.within((2, 7, 1))) == "{{2,0},{1,1}}"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("{}", []),
        ("{{0,1},{1,0},{3,3}}", []),
        ("{{0,4},{-1,1}}", ["ranks -1, 4 are outside 0..3"]),
        ("{{0,1},{2,1}}", ["rank 1 is the target of 2 pairs"]),
        ("{{0,1},{0,2},{0,3}}", ["rank 0 is the source of 3 pairs"]),
    ],
)
def test_problems(text, problems):
    assert parse_pairs(text).check(4) == problems


@pytest.mark.parametrize(
    ("has_channel_id", "want"),
    [
        (False, "{{0,3},{1,4},{2,5},{3,0},{4,1},{5,2}}"),
        (True, "{{0,1},{1,0},{3,4},{4,3}}"),
    ],
)
def test_pairs_of_ranks(has_channel_id, want):
    mode = group_mode(has_channel_id, None)
    assert str(parse_pairs("{{0,1},{1,0}}").expand(mode, replica_count=2, num_partitions=3)) == want


@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (1, 4), (4, 1), (3, 2), (2, 4)])
@pytest.mark.parametrize("mode", [GroupMode.CROSS_REPLICA, GroupMode.CROSS_PARTITION], ids=str)
def test_pairs_of_ranks_are_the_ones_of_brute_force(mode, replicas, partitions):
    count = replicas if mode is GroupMode.CROSS_REPLICA else partitions
    ring = SourceTargetPairs(tuple((i, (i + 1) % count) for i in range(count)))
    want = set()
    for s in range(replicas * partitions):
        for t in range(replicas * partitions):
            (sr, sp), (tr, tp) = divmod(s, partitions), divmod(t, partitions)
            if mode is GroupMode.CROSS_REPLICA:
                talks = sp == tp and (sr + 1) % replicas == tr
            else:
                talks = sr == tr and (sp + 1) % partitions == tp
            if talks:
                want.add((s, t))
    got = ring.expand(mode, replicas, partitions)
    assert set(got) == want
    assert len(got) == len(want)
    assert got.check(replicas * partitions) == []


def test_modes_and_ids_that_pairs_do_not_have():
    pairs = parse_pairs("{{0,1}}")
    with pytest.raises(ValueError, match=r"^source-target pairs have no flattened mode$"):
        pairs.expand(GroupMode.FLATTENED, 2, 2)
    with pytest.raises(ValueError, match=r"^pair 0,1 is outside the 1 ids of cross-replica pairs$"):
        pairs.expand(GroupMode.CROSS_REPLICA, 1, 2)
