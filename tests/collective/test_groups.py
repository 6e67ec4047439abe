import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.collective.groups import (
    AxisRef,
    ExplicitGroups,
    GroupMode,
    IotaGroups,
    IotaIds,
    MeshGroups,
    check_groups,
    group_mode,
    parse_groups,
    rank_groups,
)
from tests.support import lines_run

from .strategies import any_groups, dims, explicit_groups, mesh_groups

MESH_2_4 = (("a", 2), ("b", 4))


@pytest.mark.parametrize(
    ("has_channel_id", "use_global_device_ids", "mode"),
    [
        (False, None, "cross-replica"),
        (False, False, "cross-replica"),
        (True, None, "cross-partition"),
        (True, False, "cross-replica-and-partition"),
        (True, True, "flattened"),
    ],
)
def test_mode(has_channel_id, use_global_device_ids, mode):
    assert str(group_mode(has_channel_id, use_global_device_ids)) == mode


def test_mode_that_is_none():
    with pytest.raises(ValueError, match=r"^Invalid combination of has_channel_id and use_global_device_ids$"):
        group_mode(False, True)


@pytest.mark.parametrize(
    ("text", "groups", "expanded"),
    [
        ("{}", ExplicitGroups(()), []),
        ("{{}}", ExplicitGroups(((),)), [[]]),
        ("{{0,1},{2,3}}", ExplicitGroups(((0, 1), (2, 3))), [[0, 1], [2, 3]]),
        ("{{5,1,3},{4,0,2}}", ExplicitGroups(((5, 1, 3), (4, 0, 2))), [[5, 1, 3], [4, 0, 2]]),
        ("{{0},{2,1}}", ExplicitGroups(((0,), (2, 1))), [[0], [2, 1]]),
        ("{{-1,0}}", ExplicitGroups(((-1, 0),)), [[-1, 0]]),
        ("[2,4]<=[8]", IotaGroups(2, 4, (8,)), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", IotaGroups(4, 2, (2, 4), (1, 0)), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("[2,4]<=[4,2]T(1,0)", IotaGroups(2, 4, (4, 2), (1, 0)), [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("[4,2]<=[2,2,2]T(0,2,1)", IotaGroups(4, 2, (2, 2, 2), (0, 2, 1)), [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("[4,2]<=[2,2,2]T(2,1,0)", IotaGroups(4, 2, (2, 2, 2), (2, 1, 0)), [[0, 4], [2, 6], [1, 5], [3, 7]]),
        ("[1,1]<=[1]", IotaGroups(1, 1, (1,)), [[0]]),
        ("mesh['a'=2,'b'=4] {'b'}", MeshGroups(MESH_2_4, None, (AxisRef(1),)), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=2,'b'=4] {'a'}", MeshGroups(MESH_2_4, None, (AxisRef(0),)), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (
            "mesh['a'=2,'b'=4] {'b','a'}",
            MeshGroups(MESH_2_4, None, (AxisRef(1), AxisRef(0))),
            [[0, 4, 1, 5, 2, 6, 3, 7]],
        ),
        (
            "mesh['a'=2,'b'=4] {'b':(2)2}",
            MeshGroups(MESH_2_4, None, (AxisRef(1, 2, 2),)),
            [[0, 1], [2, 3], [4, 5], [6, 7]],
        ),
        (
            "mesh['a'=2,'b'=4] {'b':(1)2}",
            MeshGroups(MESH_2_4, None, (AxisRef(1, 1, 2),)),
            [[0, 2], [1, 3], [4, 6], [5, 7]],
        ),
        (
            "mesh['a'=2,'b'=4] {'b':(2)2,'a','b':(1)2}",
            MeshGroups(MESH_2_4, None, (AxisRef(1, 2, 2), AxisRef(0), AxisRef(1, 1, 2))),
            [[0, 2, 4, 6, 1, 3, 5, 7]],
        ),
        (
            "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}",
            MeshGroups((("a", 4), ("b", 2)), IotaIds((2, 4), (1, 0)), (AxisRef(0),)),
            [[0, 1, 2, 3], [4, 5, 6, 7]],
        ),
        (
            "mesh['a'=2,'b'=2], device_ids=(3,1,0,2) {'a'}",
            MeshGroups((("a", 2), ("b", 2)), (3, 1, 0, 2), (AxisRef(0),)),
            [[3, 0], [1, 2]],
        ),
        (
            "mesh['a'=4,'one'=1] {'a','one'}",
            MeshGroups((("a", 4), ("one", 1)), None, (AxisRef(0), AxisRef(1))),
            [[0, 1, 2, 3]],
        ),
    ],
)
def test_read_printed_and_expanded(text, groups, expanded):
    assert parse_groups(text) == groups
    assert hash(parse_groups(text)) == hash(groups)
    assert str(groups) == text
    assert [list(group) for group in groups.expand()] == expanded
    assert groups.expand() is groups.expand()
    assert groups.num_groups == len(expanded)
    sizes = {len(group) for group in expanded}
    assert groups.group_size == (sizes.pop() if len(sizes) == 1 else None)
    assert groups.is_empty == (text == "{}")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (" { {0, 1}, { 2,3 } } ", "{{0,1},{2,3}}"),
        ("{ }", "{}"),
        ("[2,4]<=[2,4]T(0,1)", "[2,4]<=[8]"),
        ("[4,2]<=[2,2,2]T(1,2,0)", "[4,2]<=[2,4]T(1,0)"),
        ("[2,4]<=[4,1,2]T(1,0,2)", "[2,4]<=[8]"),
        ("[2,2]<=[1,1,4]T(2,0,1)", "[2,2]<=[4]"),
        ("[1,1]<=[1,1]T(1,0)", "[1,1]<=[1]"),
        ("mesh['a'=2,'b'=4]{'b'}", "mesh['a'=2,'b'=4] {'b'}"),
        ('mesh["a"=2] {"a"}', "mesh['a'=2] {'a'}"),
        ("mesh['a'=4,'b'=2], device_ids=([8]) {'a'}", "mesh['a'=4,'b'=2] {'a'}"),
        (
            "mesh['a'=4,'b'=2] , device_ids=( [2,2,2]T(1,2,0) ) {'a'}",
            "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}",
        ),
        ("mesh['a'=2,'b'=2], device_ids=(0,1,2,3) {'a'}", "mesh['a'=2,'b'=2] {'a'}"),
    ],
)
def test_other_spellings_print_as_the_shortest(text, printed):
    assert str(parse_groups(text)) == printed


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", ""),
        ("{{0,1}", ""),
        ("{{0,1},}", ""),
        ("{0,1}", ""),
        ("[8]<=[8]", ""),
        ("[2,4]<=[9]", "2 groups of 4 cannot be cut from [9]"),
        ("[0,0]<=[0]", "an iota needs positive dims, not [0]"),
        ("[2,4]<=[2,4]T(0,0)", "T(0,0) is no permutation of 2 dims"),
        ("[2,4]<=[2,4]T(1,0,2)", "T(1,0,2) is no permutation of 2 dims"),
        ("mesh['a'=2] {}", ""),
        ("mesh['a'=2] {'q'}", "the mesh has no axis 'q'"),
        ("mesh['a'=1] {'a'}", "a group of a mesh needs more than one device"),
        ("mesh['a'=2,'a'=2] {'a'}", "two axes of the mesh have the same name"),
        ("mesh['a'=0] {'a'}", "an axis of the mesh has no devices"),
        ("mesh['a'=2,'b'=1] {'b','a','b'}", "an axis is named twice"),
        ("mesh['a'=8] {'a':(1)8}", "axis 'a' of 8 has no part (1)8"),
        ("mesh['a'=8] {'a':(2)3}", "axis 'a' of 8 has no part (2)3"),
        ("mesh['a'=8] {'a':(0)2}", "axis 'a' of 8 has no part (0)2"),
        ("mesh['a'=8] {'a':(2)1}", "axis 'a' of 8 has no part (2)1"),
        ("mesh['a'=8] {'a','a':(2)2}", "two parts of axis 'a' overlap"),
        ("mesh['a'=30] {'a':(6)5,'a':(10)3}", "two parts of axis 'a' overlap"),
        ("mesh['a'=8] {'a':(1)2,'a':(2)2}", "two neighbouring parts of axis 'a' must be written as one"),
        ("mesh['a'=2,'b'=2], device_ids=(0,1) {'a'}", "device_ids are no permutation of 0..3"),
        ("mesh['a'=2,'b'=2], device_ids=([8]) {'a'}", "device_ids do not have 4 devices"),
        ("mesh['a'=2,'b'=2], device_ids=(x) {'a'}", "device_ids are neither a list nor an iota"),
    ],
)
def test_what_is_no_groups(text, fault):
    with pytest.raises(ValueError) as error:
        parse_groups(text)
    assert str(error.value) == f"cannot read the replica groups {text!r}" + (f": {fault}" if fault else "")


def test_references_that_only_code_can_make():
    with pytest.raises(ValueError, match="there is no axis 2"):
        MeshGroups(MESH_2_4, None, (AxisRef(2),))
    with pytest.raises(ValueError, match="needs both its pre-size and its size"):
        MeshGroups(MESH_2_4, None, (AxisRef(1, 2),))


@given(any_groups())
def test_print_and_read(groups):
    again = parse_groups(str(groups))
    assert again == groups
    assert str(again) == str(groups)
    assert (again.num_groups, again.group_size) == (groups.num_groups, groups.group_size)


@given(any_groups())
def test_expansion_holds_each_id_once(groups):
    expanded = groups.expand()
    ids = [i for group in expanded for i in group]
    assert sorted(ids) == list(range(len(ids)))
    assert groups.num_groups == len(expanded)
    assert all(groups.group_size in (None, len(group)) for group in expanded)
    assert check_groups(expanded, len(ids)) == []


@given(st.data())
def test_the_shortest_iota_is_the_same_iota(data):
    shape = data.draw(dims(5))
    perm = data.draw(st.permutations(range(len(shape))))
    total = int(np.prod(shape))
    want = np.arange(total).reshape(shape).transpose(perm).ravel().tolist()
    assert list(IotaGroups(1, total, tuple(shape), tuple(perm)).expand()[0]) == want


@given(mesh_groups())
def test_a_mesh_group_is_the_devices_that_agree_elsewhere(groups):
    """By brute force: walk the mesh coordinate by coordinate, digit by digit."""
    sizes = [size for _, size in groups.axes]
    ids = groups.device_ids
    if isinstance(ids, IotaIds):
        ids = np.arange(np.prod(sizes)).reshape(ids.reshape_dims).transpose(ids.transpose_perm).ravel().tolist()
    found = {}
    for position, coordinate in enumerate(itertools.product(*map(range, sizes))):
        inner, rest = [], list(coordinate)
        for ref in groups.refs:
            after = sizes[ref.axis] // (ref.pre_size * ref.size) if ref.size else 1
            digit = coordinate[ref.axis] // after % (ref.size or sizes[ref.axis])
            inner.append(digit)
            rest[ref.axis] -= digit * after
        found.setdefault(tuple(rest), []).append((inner, position if ids is None else ids[position]))
    want = [tuple(device for _, device in sorted(members)) for _, members in sorted(found.items())]
    assert list(groups.expand()) == want


def test_a_large_iota_expands_in_few_steps():
    groups = IotaGroups(256, 256, (4, 4, 16, 256), (3, 1, 0, 2))
    assert lines_run(groups.expand) < 2 * 256 * 256
    assert len(groups.expand()) == 256


def brute_force(groups, mode, replicas, partitions):
    """Groups of ranks by asking of every pair of (replica, partition) who would be in its group."""
    ranks = {(r, p): r * partitions + p for r in range(replicas) for p in range(partitions)}
    ids = {
        GroupMode.CROSS_REPLICA: lambda r, p: r,
        GroupMode.CROSS_PARTITION: lambda r, p: p,
        GroupMode.CROSS_REPLICA_AND_PARTITION: lambda r, p: r,
        GroupMode.FLATTENED: lambda r, p: ranks[r, p],
    }[mode]
    together = {
        GroupMode.CROSS_REPLICA: lambda a, b: a[1] == b[1],
        GroupMode.CROSS_PARTITION: lambda a, b: a[0] == b[0],
        GroupMode.CROSS_REPLICA_AND_PARTITION: lambda a, b: True,
        GroupMode.FLATTENED: lambda a, b: True,
    }[mode]
    groups = groups or [sorted({ids(*x) for x in ranks})]
    found = set()
    for group in groups:
        for me in ranks:
            if ids(*me) in group:
                members = [x for x in ranks if ids(*x) in group and together(me, x)]
                found.add(tuple(ranks[x] for x in sorted(members, key=lambda x: (group.index(ids(*x)), x))))
    return found


@pytest.mark.parametrize("mode", GroupMode, ids=str)
@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (4, 1), (1, 4), (2, 3), (3, 2), (4, 2)])
def test_groups_of_ranks_are_the_ones_of_brute_force(mode, replicas, partitions):
    count = {GroupMode.CROSS_PARTITION: partitions, GroupMode.FLATTENED: replicas * partitions}.get(mode, replicas)
    ids = list(range(count))
    written = [(), (tuple(ids),), (tuple(reversed(ids)),), tuple((i,) for i in ids)]
    if count > 1:
        written.append((tuple(ids[1:]), (ids[0],)))
    for groups in written:
        got = rank_groups(groups, mode, replicas, partitions)
        assert set(got) == brute_force(groups, mode, replicas, partitions)
        assert sorted(r for group in got for r in group) == list(range(replicas * partitions))
        assert rank_groups(ExplicitGroups(groups), mode, replicas, partitions) == got


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        (GroupMode.CROSS_REPLICA, ((3, 0), (4, 1), (5, 2))),
        (GroupMode.CROSS_PARTITION, ((1, 0), (4, 3))),
        (GroupMode.CROSS_REPLICA_AND_PARTITION, ((3, 4, 5, 0, 1, 2),)),
        (GroupMode.FLATTENED, ((1, 0),)),
    ],
)
def test_groups_of_ranks_by_hand(mode, want):
    assert rank_groups(((1, 0),), mode, replica_count=2, num_partitions=3) == want


@given(explicit_groups())
def test_flattened_groups_stay_as_written(groups):
    ranks = sum(map(len, groups.groups))
    assert rank_groups(groups, GroupMode.FLATTENED, 1, ranks) == groups.groups


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        (GroupMode.CROSS_REPLICA, "2 replicas"),
        (GroupMode.CROSS_PARTITION, "3 partitions"),
        (GroupMode.CROSS_REPLICA_AND_PARTITION, "2 replicas"),
        (GroupMode.FLATTENED, "6 ranks"),
    ],
    ids=str,
)
def test_ids_outside_the_mode(mode, what):
    with pytest.raises(ValueError, match=f"^id 6 is outside the {what} of {mode} groups$"):
        rank_groups(((0, 6),), mode, 2, 3)


@pytest.mark.parametrize(
    ("groups", "world", "problems"),
    [
        ((), 4, []),
        (((0, 1), (2, 3)), 4, []),
        (((2,), (0, 3, 1)), 4, []),
        (((0, 1), (2, 4)), 4, ["id 4 is outside 0..3", "id 3 is in no group"]),
        (((0, 1), (1, 2, 3)), 4, ["id 1 is in groups 0 and 1"]),
        (((0, 0, 1),), 2, ["id 0 is 2 times in group 0"]),
        (((), (0, 1)), 2, ["group 0 is empty"]),
        (((-1, 0),), 1, ["id -1 is outside 0..0"]),
        (((0,),), 64, ["ids 1, 2, 3, 4, 5, 6, 7, 8 and 55 more are in no group"]),
    ],
)
def test_problems_of_groups(groups, world, problems):
    assert check_groups(groups, world) == problems
