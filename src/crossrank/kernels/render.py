"""C++ sources of kernels, from the templates: one template a collective."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from crossrank.collective.dtypes import dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.kernels.variant import MOVING, Variant

HERE = Path(__file__).parent
INCLUDE = HERE / "include"

Code = tuple[ReduceOp, str] | None


@cache
def _template(kind: Kind) -> Template:
    return Template((HERE / "templates" / f"{kind.replace('-', '_')}.cpp.in").read_text(encoding="utf-8"))


def render(variant: Variant) -> str:
    """The source of one kernel."""
    fields = {"symbol": variant.symbol, "title": "bytes", "op": "", "number": ""}
    if variant.code is not None:
        op, number = variant.code
        fields |= {"title": f"{op}, {number}", "op": op.capitalize(), "number": number.upper()}
    return _template(variant.kind).substitute(fields)


def render_unit(code: Code) -> str:
    """One translation unit: the kernels that move bytes, or those that share a reduction, most of what they are."""
    if code is None:
        return "\n".join(render(Variant(kind)) for kind in MOVING)
    op, number = code
    return "\n".join(render(Variant(kind, op, dtype(number))) for kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER))
