"""Who computes a collective of a run: our kernels, the NumPy oracle, or a plug-in that a run names."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import S32, S64
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.collective.pairs import SourceTargetPairs
from crossrank.collective.semantics import Collective, evaluate_group
from crossrank.errors import InputError
from crossrank.hlo.ffi.call import Backend, Call
from crossrank.hlo.ffi.native import SOURCES, From, Native, Part, Tensor
from crossrank.hlo.shape import Shape
from crossrank.kernels import Variant, compile_variants, has_kernel

Array = npt.NDArray[Any]


class KernelBackend:
    """Compiled kernels on the threads of this process."""

    name = "kernels"

    def __init__(self, native: Native) -> None:
        self._native = native

    def serves(self, call: Call) -> bool:
        """Whether every operand has a kernel."""
        c = call.collective
        if c.kind is Kind.RAGGED_ALL_TO_ALL and any(t.dtype not in (S32, S64) for t in call.operands[2:]):
            return False
        if c.kind.has_tokens and len(call.operands) != len(call.results):
            return False  # a half alone
        return all(has_kernel(_kernel(call), c.reduce_op, s.dtype) for s in call.operands)

    def register(self, call: Call) -> int:
        """Make it known natively, its kernels loaded."""
        c = call.collective
        sources = None
        if c.kind.has_pairs:
            pairs = SourceTargetPairs(c.pairs)
            sources = [[_or_none(pairs.within(g).source_of(n)) for n in range(len(g))] for g in c.groups]
        elif _kernel(call) is Kind.COLLECTIVE_PERMUTE:
            sources = [list(range(len(g))) for g in c.groups]
        return self._native.kernels(call.label, call.world, c.groups, parts_of(call), sources)


def _or_none(source: int | None) -> int:
    return -1 if source is None else source


def variants_of(call: Call) -> list[Variant]:
    """The kernels that a call needs."""
    return [part.variant for part in parts_of(call)]


def prepare(calls: Sequence[Call], progress: Callable[[int, int], None] | None = None) -> None:
    """Compile what ``calls`` need, in parallel, before anything starts."""
    compile_variants(dict.fromkeys(v for call in calls for v in variants_of(call)), progress)


def _kernel(call: Call) -> Kind:
    """The kind of the kernel: a send that meets its recv is a permute, and so is each part of the tuple form."""
    c = call.collective
    tuple_form = c.kind is Kind.ALL_TO_ALL and c.dim is None
    return Kind.COLLECTIVE_PERMUTE if tuple_form or c.kind.has_tokens else c.kind


def parts_of(call: Call) -> list[Part]:
    """How kernels serve a call."""
    c, kernel = call.collective, _kernel(call)
    if c.kind is Kind.RAGGED_ALL_TO_ALL:
        data, tables = call.operands[:2], call.operands[2:]
        slots = [Tensor(From.OPERAND, n, _rows(s), s.dtype).in_bytes() for n, s in enumerate(data)]
        slots += [Tensor(From.OPERAND, 2 + n, (s.count, 1, 1), s.dtype) for n, s in enumerate(tables)]
        slots.append(Tensor(From.RESULT, 0, _rows(call.results[0]), call.results[0].dtype).in_bytes())
        return [Part(Variant(kernel), tuple(slots))]
    made = From.PEER if c.kind is Kind.ALL_TO_ALL and c.dim is None else From.RESULT
    parts = []
    for n, (operand, result) in enumerate(zip(call.operands, call.results, strict=True)):
        pair = (
            Tensor(From.OPERAND, n, _view(operand, c.dim), operand.dtype),
            Tensor(made, n, _view(result, c.dim), result.dtype),
        )
        if c.kind.reduces:
            parts.append(Part(Variant(kernel, c.reduce_op, operand.dtype), pair))
            continue
        moved = tuple(t.in_bytes() for t in pair)
        parts.append(Part(Variant(kernel), (*moved, SOURCES) if kernel is Kind.COLLECTIVE_PERMUTE else moved))
    return parts


def _view(shape: Shape, dim: int | None) -> tuple[int, int, int]:
    if dim is None:
        return (1, shape.count, 1)
    return (math.prod(shape.dims[:dim]), shape.dims[dim], math.prod(shape.dims[dim + 1 :]))


def _rows(shape: Shape) -> tuple[int, int, int]:
    return (shape.dims[0], 1, math.prod(shape.dims[1:]))


class CalledBack(ABC):
    """A backend that is a function from arrays to arrays, called back once the last rank of a group has arrived.

    It is called on threads of the run's own, maybe for several groups at a time. Arithmetic there flushes subnormals as
    XLA does; what only passes numbers on does so by `flushed`.
    """

    name: str

    def __init__(self, native: Native) -> None:
        self._native = native

    @abstractmethod
    def values(self, call: Call, group: int, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """What the members of a group get.

        Args:
            call: the collective.
            group: which of its groups.
            members: the operands of each member, in group order: views of XLA's buffers, to be read, and only here.

        Returns:
            For each member its results, of the types and shapes that ``call.results`` says; no views of ``members``.

        Raises:
            ValueError, InputError, RunError: the run fails, with the collective's label and this text.
        """

    def serves(self, call: Call) -> bool:
        """It serves everything that NumPy has a type for."""
        return call.fills_bytes

    def register(self, call: Call) -> int:
        """Make it known natively, with a function that evaluates one group."""

        def evaluate(group: int, inputs: list[list[Array]], outputs: list[list[Array]]) -> None:
            members = [[typed(raw, shape) for raw, shape in zip(m, call.operands, strict=True)] for m in inputs]
            made = [[np.asarray(v) for v in values] for values in self.values(call, group, members)]
            self._check(call, group, made)
            for filled, values in zip(outputs, made, strict=True):
                for raw, value in zip(filled, values, strict=True):
                    raw[...] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)

        return self._native.oracle(call.label, call.world, call.collective.groups, evaluate)

    def _check(self, call: Call, group: int, made: Sequence[Sequence[Array]]) -> None:
        """Bytes have no type: nothing may get into the buffers but what the collective gives."""
        ranks = call.collective.groups[group]
        if len(made) != len(ranks):
            raise ValueError(f"{self.name} gives something to {len(made)} of {len(ranks)} ranks")
        due = [(np.dtype(s.dtype.numpy), s.dims) for s in call.results]
        for rank, values in zip(ranks, made, strict=True):
            given = [(v.dtype, v.shape) for v in values]
            if given != due:
                texts = (", ".join(f"{dtype} {dims}" for dtype, dims in x) or "nothing" for x in (given, due))
                raise ValueError(f"{self.name} gives rank {rank} {' instead of '.join(texts)}")


class OracleBackend(CalledBack):
    """The NumPy meaning of each collective."""

    name = "oracle"

    def values(self, call: Call, group: int, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """What its meaning is."""
        return meaning(call, group, members)


def within(call: Call, group: int) -> Collective:
    """The collective as one group sees it: its pairs are positions in that group, not ranks."""
    ranks = call.collective.groups[group]
    return replace(call.collective, pairs=SourceTargetPairs(call.collective.pairs).within(ranks).pairs)


def meaning(call: Call, group: int, members: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What each member of a group must get, by the oracle, given all members' operands in group order.

    Raises:
        ValueError: what the operands say of each other does not fit; it names ranks.
    """
    ranks = call.collective.groups[group]
    try:
        results = evaluate_group(within(call, group), members)
    except ValueError as error:
        raise ValueError(re.sub(r"\bmember (\d+)", lambda m: f"rank {ranks[int(m[1])]}", str(error))) from None
    return flushed(call, results)


def flushed(call: Call, results: list[list[Array]]) -> list[list[Array]]:
    """Results of a maximum or minimum, which passes numbers on, as a sum would give them; all others as they are."""
    if call.collective.reduce_op in (ReduceOp.MAXIMUM, ReduceOp.MINIMUM):
        # a product treats subnormals as this thread's arithmetic does
        return [[v * v.dtype.type(1) for v in member] for member in results]
    return results


def typed(raw: Array, shape: Shape) -> Array:
    """Bytes as an array of that type and shape."""
    assert shape.dtype.numpy is not None
    return raw.view(shape.dtype.numpy).reshape(shape.dims)


BACKENDS: dict[str, Callable[[Native], Backend]] = {b.name: b for b in (KernelBackend, OracleBackend)}
"""The backends that need no import."""


def make_backend(name: str, native: Native) -> Backend:
    """The backend of that name: ``kernels``, ``oracle``, or a plug-in.

    Args:
        name: of a plug-in ``package.module:attribute``, which is imported and called with ``native``.
        native: where its collectives are made known.

    Raises:
        InputError: there is no such backend.
    """
    make = BACKENDS.get(name) or _plug_in(name)
    backend = make(native)
    if not isinstance(backend, Backend):
        raise InputError(f"the backend {name} gives a {type(backend).__name__}, which is none", _PLUG_IN)
    return backend


_PLUG_IN = f"a backend is {', '.join(BACKENDS)} or the package.module:attribute that makes one"


def _plug_in(name: str) -> Callable[[Native], Backend]:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"no backend is named {name}", _PLUG_IN)
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # whatever stands there: it is not ours
        raise InputError(f"the backend {name} cannot be imported: {error}", _PLUG_IN) from error
    if not callable(found):
        raise InputError(f"the backend {name} cannot be made: {module} has no {attribute} to call", _PLUG_IN)
    return cast("Callable[[Native], Backend]", found)
