"""Computations by name: what each one reads and writes, and the parameters that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np

from crossrank.instr.compute.alu import ALU, COMPARISONS, REDUCTIONS
from crossrank.instr.compute.values import Array, cast

Value: TypeAlias = "int | float | bool | str | tuple[Value, ...] | None"
"""What a parameter may be."""

Results = Array | tuple[Array | None, ...]
Function = Callable[..., Results]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Computation:
    """One engine computation.

    Attributes:
        name: as ``nki.isa`` spells it.
        engine: the engine that it runs on unless told otherwise: vector, scalar, tensor, gpsimd or dma.
        outs: the parameters that are written, in order; those that have a default may be left out at the end.
        ins: the parameters that are read, in order; the last may be named ``x*``, which takes all that are left.
        function: of the outs' present contents, the ins and the parameters, by name; gives new values for the outs, in
            their shapes but of any dtype, and leaves what it is given untouched.
        hints: parameters that never change the result; the function does not get them.
        choices: what a parameter may be, where that is one of some names.
    """

    name: str
    engine: str
    outs: tuple[str, ...]
    ins: tuple[str, ...]
    function: Function
    hints: frozenset[str] = frozenset()
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)

    @cached_property
    def defaults(self) -> Mapping[str, object]:
        """The default of each argument of the function; ``inspect.Parameter.empty`` where it has none."""
        return {name: parameter.default for name, parameter in inspect.signature(self.function).parameters.items()}


COMPUTATIONS: dict[str, Computation] = {}
"""Every computation by its name."""

_CHOICES: dict[str, Collection[str]] = {
    "op": ALU,
    "op0": ALU,
    "op1": ALU,
    "cmp_op": COMPARISONS,
    "comp_op0": COMPARISONS,
    "comp_op1": COMPARISONS,
    "reduce_op": REDUCTIONS,
    # The others keep registers alive from one instruction to the next.
    "reduce_cmd": ("idle", "reset_reduce"),
}


def computation(
    engine: str,
    *,
    outs: tuple[str, ...] = ("dst",),
    ins: tuple[str, ...],
    hints: Collection[str] = (),
    choices: Mapping[str, Collection[str]] | None = None,
) -> Callable[[F], F]:
    """Registers a function as the computation of its name."""

    def register(function: F) -> F:
        COMPUTATIONS[function.__name__] = Computation(
            function.__name__, engine, outs, ins, function, frozenset(hints), _CHOICES | dict(choices or {})
        )
        return function

    return register


def check(name: str, params: Mapping[str, Value]) -> Computation:
    """The computation ``name``, given that it may have ``params``.

    The parameter ``tensors`` names the ins that are given as tensors, in order; without it all of them are.

    Raises:
        ValueError: no such computation; a parameter that it does not have, that it lacks, or that is no name it knows.
    """
    if name not in COMPUTATIONS:
        raise ValueError(f"there is no computation {name!r}")
    found = COMPUTATIONS[name]
    tensors = _tensors(found, params)
    for key, value in params.items():
        if key == "tensors" or key in found.hints:
            continue
        if key not in found.defaults or key in found.outs:
            raise ValueError(f"{name}: there is no parameter {key!r}")
        if key in tensors:
            raise ValueError(f"{name}: {key} is given twice, as a tensor and as {value!r}")
        if (
            key in found.choices
            and value not in found.choices[key]
            and (value is not None or found.defaults[key] is not None)
        ):
            raise ValueError(f"{name}: {key} may not be {value!r}")
    for key, default in found.defaults.items():
        if default is inspect.Parameter.empty and key not in (*params, *tensors, *found.outs):
            raise ValueError(f"{name}: {key} is missing")
    return found


def _tensors(found: Computation, params: Mapping[str, Value]) -> tuple[str, ...]:
    declared = tuple(key.rstrip("*") for key in found.ins)
    given = params.get("tensors", declared)
    if not isinstance(given, tuple) or [key for key in declared if key in given] != list(dict.fromkeys(given)):
        raise ValueError(f"{found.name}: tensors must be some of {declared} in this order, not {given!r}")
    return tuple(key for key in declared if key in given)


def evaluate(name: str, outs: Sequence[Array], ins: Sequence[Array], params: Mapping[str, Value]) -> list[Array]:
    """What becomes of the outs.

    Args:
        name: of the computation.
        outs: their present contents, in order; outs at the end that may be left out are left out.
        ins: the tensors that are read, in order.
        params: the parameters, see ``check``.

    Returns:
        For each out an array of its shape and dtype; none shares memory with what was given.

    Raises:
        ValueError: what ``check`` says, or arrays that do not fit; one line that names the computation.
    """
    found = check(name, params)
    tensors = _tensors(found, params)
    needed = sum(found.defaults[key] is inspect.Parameter.empty for key in found.outs)
    if not needed <= len(outs) <= len(found.outs):
        raise ValueError(f"{name}: writes {', '.join(found.outs)}, but {len(outs)} are given")
    arguments: dict[str, object] = dict(zip(found.outs, outs, strict=False))
    if tensors and f"{tensors[-1]}*" in found.ins:
        split = len(tensors) - 1
        arguments[tensors[-1]] = list(ins[split:])
        tensors, ins = tensors[:-1], ins[:split]
    if len(ins) != len(tensors):
        raise ValueError(f"{name}: reads {', '.join(tensors)}, but {len(ins)} are given")
    arguments.update(zip(tensors, ins, strict=True))
    arguments.update((key, value) for key, value in params.items() if key != "tensors" and key not in found.hints)
    try:
        with np.errstate(all="ignore"):
            results = found.function(**arguments)
            results = results if isinstance(results, tuple) else (results,)
            return [_stored(result, out) for result, out in zip(results, outs, strict=False)]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _stored(result: Array | None, out: Array) -> Array:
    assert result is not None
    assert result.shape == out.shape
    return cast(result, out.dtype)
