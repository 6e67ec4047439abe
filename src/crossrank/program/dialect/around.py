"""What an op stands in."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation


def around(op: Operation) -> Iterator[Operation]:
    """The loops, branches and scopes that an op stands in, the innermost first, inside of its function."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        yield parent
        parent = parent.parent_op()


def function_around(op: Operation) -> FuncOp | None:
    """The function that an op stands in; None where it stands in none."""
    outermost = [op, *around(op)][-1].parent_op()
    return outermost if isinstance(outermost, FuncOp) else None
