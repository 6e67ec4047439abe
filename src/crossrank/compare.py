"""Comparing what two runs gave, output by output and rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from crossrank.arrays import Array
from crossrank.collective.dtypes import DType, dtype_of
from crossrank.collective.dtypes import dtype as dtype_by_name

ByRank = Sequence[Array]
"""One array for each rank."""

TOLERANCES = {"f64": 1e-12, "c128": 1e-12, "f32": 1e-5, "c64": 1e-5, "bf16": 2e-2, "f16": 2e-2}


@dataclass(frozen=True)
class OutputComparison:
    """One output on all ranks against its reference.

    Attributes:
        index: which output (leaf of the result).
        shape: on one rank.
        dtype: HLO name of the element type.
        exact: every bit is the same; NaN equals NaN.
        equal: exact, or within the tolerance.
        max_abs_err: largest difference of two finite elements.
        max_rel_err: the same over the largest finite magnitude of the reference.
        max_ulp: largest difference in units in the last place; None for types that have none.
        finite: no element is NaN or infinite.
        all_nan: every element is NaN, so that the comparison proves nothing.
    """

    index: int
    shape: tuple[int, ...]
    dtype: str
    exact: bool
    equal: bool
    max_abs_err: float
    max_rel_err: float
    max_ulp: int | None
    finite: bool
    all_nan: bool

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """The first element that differs."""

    output: int
    rank: int
    element: tuple[int, ...]
    expected: str
    actual: str

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"output {self.output}, rank {self.rank}, element {list(self.element)}: "
            f"{self.actual} instead of {self.expected}"
        )


@dataclass(frozen=True)
class Tolerance:
    """How far apart two outputs may be, relative to the largest finite magnitude of the reference.

    Attributes:
        value: the same for all types of floats; None: by the narrowest type among the output and ``changed``.
        changed: names of the types of the values that a rewrite touched.
    """

    value: float | None = None
    changed: tuple[str, ...] = ()

    def of(self, dtype: DType) -> float:
        """For outputs of one type; 0 for integers and predicates."""
        if not (dtype.is_float or dtype.is_complex):
            return 0.0
        if self.value is not None:
            return self.value
        touched = [dtype_by_name(name) for name in self.changed]
        floats = [dtype, *(t for t in touched if t.is_float or t.is_complex)]
        return max(TOLERANCES.get(t.name, 2e-2) for t in floats)


def compare_output(
    index: int, expected: ByRank, actual: ByRank, within: Tolerance | None
) -> tuple[OutputComparison, Difference | None]:
    """Compare one output, an array for each rank on either side; without a tolerance only equal bits are equal."""
    element = dtype_of(actual[0].dtype)
    tolerance = within.of(element) if within else 0.0
    exact, finite, all_nan = True, True, True
    max_abs, scale, ulp = 0.0, 0.0, 0
    odd = False  # NaN or infinity where the other has none, or another infinity
    first: Difference | None = None
    for rank, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            exact, all_nan, odd = False, False, True
            first = first or Difference(index, rank, (), *(f"{x.dtype}{list(x.shape)}" for x in (a, b)))
            continue
        same = same_bits(a, b)
        number = element.is_float or element.is_complex
        wide_b = _wide(b) if number else b
        is_finite = np.isfinite(wide_b) if number else np.ones(b.shape, bool)
        finite &= bool(is_finite.all())
        all_nan &= bool(number and b.size and np.isnan(wide_b).all())
        if number and a.size:
            wide_a = _wide(a)
            magnitude = np.abs(np.where(np.isfinite(wide_a), wide_a, 0))
            scale = max(scale, float(magnitude.max(initial=0)))
        if same.all():
            continue
        exact = False
        where = tuple(int(k) for k in np.argwhere(~same)[0])
        first = first or Difference(index, rank, where, shown(a[where]), shown(b[where]))
        if not number:
            wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
            is_finite = np.ones(b.shape, bool)
        both = np.isfinite(wide_a) & is_finite & ~same
        odd |= bool((~same & ~both).any())
        if both.any():
            max_abs = max(max_abs, float(np.abs(wide_a[both] - wide_b[both]).max()))
        if element.is_float and element.itemsize in (2, 4, 8) and both.any():
            ulp = max(ulp, _ulp(a[both], b[both]))
    relative = max_abs / scale if scale > 0 else max_abs
    if odd:  # no number says how far a NaN is off; the largest there is keeps JSON what it is
        max_abs = relative = float(np.finfo(np.float64).max)
    equal = exact or (not odd and tolerance > 0 and max_abs <= tolerance * scale)
    result = OutputComparison(
        index,
        tuple(actual[0].shape),
        element.name,
        exact,
        equal,
        max_abs,
        relative,
        ulp if element.is_float else None,
        finite,
        all_nan,
    )
    return result, first


def compare_outputs(expected: Sequence[ByRank], actual: Sequence[ByRank], within: Tolerance | None) -> dict[str, Any]:
    """Two runs, output by output, as JSON data."""
    compared = [compare_output(n, a, b, within) for n, (a, b) in enumerate(zip(expected, actual, strict=True))]
    first = next((difference for _, difference in compared if difference), None)
    return {
        "equal": all(o.equal for o, _ in compared),
        "exact": all(o.exact for o, _ in compared),
        "outputs": [o.as_dict() for o, _ in compared],
        "first_difference": first.as_dict() if first else None,
    }


def compare_given(given: Mapping[int, ByRank], actual: Sequence[ByRank], within: Tolerance) -> dict[str, Any]:
    """A run against outputs that were given, by index, as JSON data."""
    compared = [_compare_given(n, g, actual[n], within) for n, g in given.items()]
    return {
        "equal": all(o.equal for o, _ in compared),
        "max_rel_err": max((o.max_rel_err for o, _ in compared), default=0.0),
        "outputs": len(compared),
        "first_difference": next((d.as_dict() for o, d in compared if d and not o.equal), None),
    }


def _compare_given(
    index: int, given: ByRank, actual: ByRank, within: Tolerance
) -> tuple[OutputComparison, Difference | None]:
    """Floats may be given in a wider type: they are compared in that, by the tolerance of the output's own.

    Where the output is what was given rounded to its type, it is as near as it can be: no difference.
    """
    if all(g.dtype == a.dtype for g, a in zip(given, actual, strict=True)):
        return compare_output(index, given, actual, within)
    within = replace(within, changed=(*within.changed, dtype_of(actual[0].dtype).name))
    pairs = [_in_wide(g, a) for g, a in zip(given, actual, strict=True)]
    return compare_output(index, [g for g, _ in pairs], [a for _, a in pairs], within)


def _in_wide(given: Array, actual: Array) -> tuple[Array, Array]:
    with np.errstate(over="ignore"):
        rounded = given.astype(actual.dtype)
    wide, seen = _wide(given), _wide(actual)
    near = same_bits(rounded, actual) & np.isfinite(seen)
    return np.where(near, seen, wide), seen


def is_nan(x: Array) -> Array:
    """Which elements are NaN; none where the type has none."""
    return np.isnan(_wide(x)) if _is_inexact(x) else np.zeros(x.shape, bool)


def is_infinite(x: Array) -> Array:
    """Which elements are infinite; none where the type has no such."""
    return np.isinf(_wide(x)) if _is_inexact(x) else np.zeros(x.shape, bool)


def _is_inexact(x: Array) -> bool:
    element = dtype_of(x.dtype)
    return element.is_float or element.is_complex


def summary(compared: dict[str, Any]) -> dict[str, Any]:
    """A comparison in two numbers, as JSON data."""
    worst = max((o["max_rel_err"] for o in compared["outputs"]), default=0.0)
    return {"exact": compared["exact"], "max_rel_err": worst}


def _wide(x: Array) -> Array:
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x.astype(np.float64)


def same_bits(a: Array, b: Array) -> Array:
    """Elementwise: equal bits, or NaN on both sides (for complex numbers part by part)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.zeros(b.shape, bool)
    if a.dtype.kind == "c":
        part = np.float32 if a.dtype.itemsize == 8 else np.float64
        pa, pb = (np.ascontiguousarray(x).view(part).reshape(*x.shape, 2) for x in (a, b))
        return np.asarray(same_bits(pa, pb).all(axis=-1))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    raw_a, raw_b = (np.ascontiguousarray(x).view(bits).reshape(x.shape) for x in (a, b))
    same = np.asarray(raw_a == raw_b)
    if a.dtype.kind == "f" or a.dtype.kind == "V":  # ml_dtypes' types are of kind V
        with np.errstate(all="ignore"):
            same |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return same


def _ulp(a: Array, b: Array) -> int:
    """Largest distance in steps from one representable number to the next."""
    bits = a.dtype.itemsize * 8
    unsigned = [np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}")).astype(object) for x in (a, b)]
    top = 1 << (bits - 1)
    ordered = [np.where(u >= top, top - u, u) for u in unsigned]
    return int(np.abs(ordered[0] - ordered[1]).max())


def shown(value: Any) -> str:
    """An element as people read it."""
    return str(value.item() if hasattr(value, "item") and value.dtype.kind in "iub" else value)


def output_name(output: dict[str, Any]) -> str:
    """What people are told: the number of an output, behind the rank where each rank has a program of its own."""
    return f"r{output['rank']}.o{output['index']}" if "rank" in output else str(output["index"])


def odd_values(outputs: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader should know of outputs although they are equal: those that are all NaN, or not finite."""
    found = []
    dead = [output_name(o) for o in outputs if o["all_nan"]]
    if dead:
        found.append(f"output {listed(dead)}: every element is NaN, so that equality proves nothing there")
    odd = [output_name(o) for o in outputs if not o["finite"] and not o["all_nan"]]
    if odd:
        found.append(f"output {listed(odd)}: NaN or infinity among the values")
    return found


def listed(names: Sequence[object], between: str = ", ", most: int = 8) -> str:
    """The first of them, and how many more there are."""
    return between.join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
