"""Random groups in each written form."""

import math

from hypothesis import strategies as st

from crossrank.collective.groups import AxisRef, ExplicitGroups, IotaGroups, IotaIds, MeshGroups


@st.composite
def explicit_groups(draw):
    """A random cut of a random order of 0..n-1: every id once, groups not sorted and of any size but zero."""
    ids = draw(st.permutations(range(draw(st.integers(1, 12)))))
    cuts = sorted(draw(st.sets(st.integers(1, len(ids) - 1)))) if len(ids) > 1 else []
    return ExplicitGroups(tuple(tuple(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)))


def dims(most=4):
    return st.lists(st.integers(1, 4), min_size=1, max_size=most)


@st.composite
def iota_groups(draw):
    shape = draw(dims())
    total = math.prod(shape)
    size = draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    return IotaGroups(total // size, size, tuple(shape), tuple(draw(st.permutations(range(len(shape))))))


@st.composite
def mesh_groups(draw):
    """Axes made of factors, some of which are referred to, in any order."""
    factors = draw(st.lists(st.lists(st.integers(2, 3), min_size=1, max_size=3), min_size=1, max_size=3))
    axes = [(f"axis {i}", math.prod(parts)) for i, parts in enumerate(factors)]
    refs = []
    for i, parts in enumerate(factors):
        if draw(st.booleans()):
            refs.append(AxisRef(i))
        elif len(parts) > 1:
            chosen = draw(st.integers(0, len(parts) - 1))
            refs.append(AxisRef(i, math.prod(parts[:chosen]), parts[chosen]))
            if len(parts) == 3 and chosen != 1 and draw(st.booleans()):
                other = 2 - chosen
                refs.append(AxisRef(i, math.prod(parts[:other]), parts[other]))
    refs = draw(st.permutations(refs or [AxisRef(0)]))
    total = math.prod(size for _, size in axes)
    ids = draw(
        st.one_of(
            st.none(),
            st.permutations(range(total)).map(tuple),
            st.permutations(range(len(axes))).map(lambda perm: IotaIds(tuple(n for _, n in axes), tuple(perm))),
        )
    )
    return MeshGroups(tuple(axes), ids, tuple(refs))


def any_groups():
    return st.one_of(explicit_groups(), iota_groups(), mesh_groups())
