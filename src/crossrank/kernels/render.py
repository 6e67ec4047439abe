"""C++ sources of kernels, from the templates: one template a collective."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from crossrank.collective.dtypes import DType, dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.kernels.variant import MOVING, Code, Variant, reduction

HERE = Path(__file__).parent
INCLUDE = HERE / "include"


@cache
def _template(name: str) -> Template:
    return Template((HERE / "templates" / f"{name}.cpp.in").read_text(encoding="utf-8"))


def render(variant: Variant) -> str:
    """The source of one kernel."""
    return _rendered(variant.kind.replace("-", "_"), variant.symbol, variant.code)


def render_managed(template: str, op: ReduceOp | None, element: DType) -> tuple[str, str]:
    """The name of the entry by which programs call a collective, and the source that has it.

    Args:
        template: of the collective. One that HLO modules have too is the very same source.
        op: the reduce op; None where nothing is reduced.
        element: the element type; what moves bytes is the same for all.
    """
    code = reduction(op, element)
    symbol = "_".join(("crossrank", template, *(code or ())))
    return f"{symbol}_managed", _rendered(template, symbol, code)


def _rendered(template: str, symbol: str, code: Code) -> str:
    fields = {"symbol": symbol, "title": "bytes", "op": "", "number": ""}
    if code is not None:
        op, number = code
        fields |= {"title": f"{op}, {number}", "op": op.capitalize(), "number": number.upper()}
    return _template(template).substitute(fields)


def render_unit(code: Code) -> str:
    """One translation unit: the kernels that move bytes, or those that share a reduction, most of what they are."""
    if code is None:
        return "\n".join(render(Variant(kind)) for kind in MOVING)
    op, number = code
    return "\n".join(render(Variant(kind, op, dtype(number))) for kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER))
