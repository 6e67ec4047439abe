"""Whether what a kernel gives depends on which core goes first: then a barrier is missing.

The cores of a rank share memory, and nothing but barriers and collectives says who comes before whom. In one order all
may seem well. So a kernel is run in others too: backwards, and in some that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crossrank.arrays import Array
from crossrank.compare import compare_outputs

Outputs = Sequence[Sequence[Array]]
"""Each output, as a list over ranks."""
Order = Mapping[str, Any]
"""Arguments of `Machine` that say who goes first."""

IN_ORDER: Order = {}
ORDERS: tuple[Order, ...] = ({"backwards": True}, {"seed": 1}, {"seed": 2})


def order_dependence(what: str, outputs: Outputs, run: Callable[[Order], Outputs]) -> dict[str, Any] | None:
    """Where outputs differ in another order of the cores: ``kernel, order, first_difference``; None: nowhere.

    Args:
        what: whose outputs they are.
        outputs: what the cores gave in order.
        run: gives the outputs in another order.
    """
    for order in ORDERS:
        difference = compare_outputs(outputs, run(order), None)["first_difference"]
        if difference is not None:
            named = "backwards" if order.get("backwards") else f"drawn from seed {order['seed']}"
            return {"kernel": what, "order": named, "first_difference": difference}
    return None
