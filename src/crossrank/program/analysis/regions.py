"""Which elements of which memory a value stands for, where that is known before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from xdsl.ir import SSAValue

from crossrank.program.analysis.domains import constant
from crossrank.program.analysis.lineage import Lineage
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.tensors import ReshapeOp, SliceOp, TransposeOp, shaped
from crossrank.program.program import Function
from crossrank.program.types import ShapedType


@dataclass(frozen=True)
class Box:
    """Elements from ``low`` to before ``high`` in each dimension of a root.

    Attributes:
        root: where the memory begins.
        low: by dimension of the root.
        high: likewise; infinite where an extent is not known.
        axes: the dimensions of the root that the view has, in its order; None: it has others (a reshape).
    """

    root: SSAValue
    low: tuple[float, ...]
    high: tuple[float, ...]
    axes: tuple[int, ...] | None

    def overlaps(self, other: Box) -> bool:
        """Whether they have an element in common; those of different roots have none."""
        return self.root is other.root and all(
            a < d and c < b for a, b, c, d in zip(self.low, self.high, other.low, other.high, strict=True)
        )


def box_of(value: SSAValue, lineage: Lineage) -> Box | None:
    """The box of a tensor; None where a loop, a branch, or a number that is computed decides about it."""
    try:
        return _box(value, lineage, frozenset())
    except _Unknown:
        return None


def may_meet(one: SSAValue, other: SSAValue, lineage: Lineage) -> bool:
    """Whether two tensors may have an element in common; those of different roots have none."""
    if set(lineage.roots(one)).isdisjoint(lineage.roots(other)):
        return False
    boxes = box_of(one, lineage), box_of(other, lineage)
    return boxes[0] is None or boxes[1] is None or boxes[0].overlaps(boxes[1])


def given_twice(function: Function, lineage: Lineage) -> Iterator[tuple[CallOp, int, int]]:
    """The calls of a function that may give it one memory as two parameters, of which it writes one; and which."""
    params = function.params
    for caller in lineage.functions.values():
        for call in caller.op.walk():
            if isinstance(call, CallOp) and call.function == function.name:
                for (a, one), (b, other) in combinations(enumerate(call.arguments), 2):
                    if (params[a].direction.writes or params[b].direction.writes) and may_meet(one, other, lineage):
                        yield call, a, b


_View = SliceOp | ReshapeOp | TransposeOp
_VIEWS = (SliceOp, ReshapeOp, TransposeOp)


class _Unknown(Exception):
    """It cannot be said."""


def _box(value: SSAValue, lineage: Lineage, asked: frozenset[SSAValue]) -> Box:
    """The box of a value; ``asked`` are those that it is being found for, which views of themselves have not."""
    views, viewed = _unviewed(value)
    if viewed in asked:  # another view in each turn
        raise _Unknown
    boxes, seen, todo = set[Box](), {viewed}, [viewed]
    while todo:
        current = todo.pop()
        origins = lineage.origins(current)
        if isinstance(current.owner, _VIEWS):
            boxes.add(_box(current, lineage, asked | {viewed}))
        elif origins:
            todo += [o for o in origins if o not in seen]
            seen.update(origins)
        elif not isinstance(current.type, ShapedType):  # a buffer, of which windows may view the same part
            raise _Unknown
        else:
            extents = shaped(current).shape
            high = tuple(e if isinstance(e, int) else math.inf for e in extents)
            boxes.add(Box(current, (0,) * len(extents), high, tuple(range(len(extents)))))
    if len(boxes) != 1:
        raise _Unknown
    (box,) = boxes
    for view in reversed(views):
        box = _view(view, box)
    return box


def _unviewed(value: SSAValue) -> tuple[list[_View], SSAValue]:
    """The views that a value is, the innermost last, and what that is of."""
    views = list[_View]()
    while isinstance(value.owner, _VIEWS):
        views.append(value.owner)
        value = value.owner.source
    return views, value


def _view(op: _View, source: Box) -> Box:
    axes = source.axes
    if isinstance(op, ReshapeOp):
        return replace(source, axes=None)
    if isinstance(op, TransposeOp):
        one, other = op.axis1.value.data, op.axis2.value.data
        swapped = {one: other, other: one}
        return replace(source, axes=None if axes is None else tuple(axes[swapped.get(n, n)] for n in range(len(axes))))
    offsets, extents = [constant(v) for v in op.offsets], [constant(v) for v in op.extents]
    if axes is None:
        if any(offsets) or None in offsets or tuple(extents) != shaped(op.source).shape:
            raise _Unknown
        return source
    low, high = list(source.low), list(source.high)
    for axis, offset, extent in zip(axes, offsets, extents, strict=True):
        if offset is None or extent is None:
            raise _Unknown
        low[axis] += offset
        high[axis] = min(high[axis], low[axis] + extent)
    kept = tuple(a for n, a in enumerate(axes) if n not in op.dropped)
    return Box(source.root, tuple(low), tuple(high), kept)
