"""The native half of a run: the FFI targets, and the collectives and pins that are registered for them beforehand.

A module's custom-calls name the target ``crossrank.collective`` or ``crossrank.pin`` and carry one attribute,
``id : i64``, that a method here returned. Operands of a collective are its data, then the rank as ``u32[]``; it has one
result for each data operand (one that an oracle serves may have any number).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import U8, DType
from crossrank.collective.kinds import Kind
from crossrank.errors import RunError
from crossrank.kernels import Variant, compile_variants
from crossrank.kernels.compile import Unit, build, load
from crossrank.kernels.render import INCLUDE
from crossrank.runtime import library as runtime
from crossrank.runtime.threads import entry

HERE = Path(__file__).parent
COLLECTIVE, PIN = "crossrank.collective", "crossrank.pin"

Bytes = npt.NDArray[np.uint8]
Oracle = Callable[[int, list[list[Bytes]], list[list[Bytes]]], None]

_SOURCES = ("options.cc", "call.cc", "failures.cc", "meeting.cc", "nan.cc", "handlers.cc", "interface.cc")
_SHAPES = {Kind.ALL_REDUCE: 0, Kind.REDUCE_SCATTER: 1, Kind.ALL_GATHER: 2}  # enum Shape of call.h
_HAS_NAN = ("f16", "bf16", "f32", "f64", "c64", "c128")
_TEXT = 4096


class _OperandSpec(ctypes.Structure):
    """One operand, as ``call.h`` lays it out."""

    _fields_ = (
        ("body", ctypes.c_void_p),
        ("shape", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("view", ctypes.c_int64 * 3),
    )


_Addresses, _Sizes = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *(ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32),
    *(_Addresses, _Sizes, _Addresses, _Sizes, ctypes.POINTER(ctypes.c_char), ctypes.c_int32),
)


@dataclass(frozen=True)
class Operand:
    """How one data operand of a collective is served by a kernel.

    Attributes:
        variant: the kernel.
        view: ``[outer, dim, inner]`` of one rank's operand, dim being the one that is gathered or scattered;
            ``(1, count, 1)`` for an all-reduce.
        itemsize: bytes of an element.
    """

    variant: Variant
    view: tuple[int, int, int]
    itemsize: int

    def _spec(self, body: int) -> _OperandSpec:
        outer, dim, inner = self.view
        if self.variant.dtype is None:  # bytes are moved: an element is a few more of them, innermost
            return _OperandSpec(body, _SHAPES[self.variant.kind], U8.number, (outer, dim, inner * self.itemsize))
        return _OperandSpec(body, _SHAPES[self.variant.kind], self.variant.dtype.number, self.view)


@dataclass(frozen=True)
class Times:
    """What a collective did so far, over all its groups and runs.

    Attributes:
        calls: meetings of a group that were held.
        bytes: read and written by all ranks.
        seconds: from the last arrival to the end, added up.
    """

    calls: int
    bytes: int
    seconds: float


def _unit() -> Unit:
    import jax
    import jaxlib

    return Unit(
        name="ffi",
        source="".join(f'#include "{source}"\n' for source in _SOURCES),
        includes=(HERE, runtime.HERE, INCLUDE),
        system_includes=(Path(jax.ffi.include_dir()),),
        flags=("-O2",),
        stamp=f"jaxlib {jaxlib.__version__}",
    )


class Native:
    """The handlers of this process. ``Native.load()`` gives the one there is."""

    def __init__(self) -> None:
        import jax

        runtime.library()
        lib = load(build(_unit()))
        for name in ("crossrank_add_kernels", "crossrank_add_oracle", "crossrank_add_pin"):
            getattr(lib, name).restype = ctypes.c_int64
        lib.crossrank_nan_seen.argtypes = [ctypes.c_int64]
        lib.crossrank_set_option.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        lib.crossrank_times.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64)]
        self._lib = lib
        self._oracles: dict[int, Oracle] = {}
        self._adding = threading.Lock()
        self._callback = _Callback(self._call_back)
        lib.crossrank_set_callback(self._callback)
        for target in (COLLECTIVE, PIN):
            handler = getattr(lib, target.replace(".", "_"))
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")

    @staticmethod
    @cache
    def load() -> Native:
        """Build the handlers where the cache has them not, and register both FFI targets; once in a process.

        Raises:
            InputError: no compiler, or a cache that cannot be used.
            RunError: the compiler failed.
        """
        return Native()

    def kernels(self, label: str, ranks: int, groups: Sequence[Sequence[int]], operands: Sequence[Operand]) -> int:
        """Register a collective that kernels serve, compiled where the cache has them not; returns its id.

        Args:
            label: what messages call it, such as ``all-reduce %ar.3 (train.py:12)``.
            ranks: of the world.
            groups: the ranks of each group, in group order; a rank in none gets zeros and waits for nobody.
            operands: its data operands, one or more; they meet once.
        """
        if not operands:
            raise ValueError(f"{label}: a collective has at least one operand")
        paths = compile_variants([o.variant for o in operands])
        specs = (_OperandSpec * len(operands))(
            *(o._spec(entry(paths[o.variant], f"{o.variant.symbol}_body")) for o in operands)
        )
        for operand in operands:
            if operand.variant.kind is Kind.REDUCE_SCATTER and any(operand.view[1] % len(g) for g in groups):
                raise ValueError(
                    f"{label}: {operand.view[1]} elements cannot be scattered among the ranks of each group"
                )
        add = self._lib.crossrank_add_kernels
        return self._added(add(label.encode(), ranks, *_groups(label, ranks, groups), len(operands), specs))

    def oracle(self, label: str, ranks: int, groups: Sequence[Sequence[int]], call: Oracle) -> int:
        """Register a collective that Python computes; returns its id.

        Args:
            label: what messages call it.
            ranks: of the world.
            groups: as for ``kernels``.
            call: called with the index of the group, ``inputs[member][operand]`` and ``outputs[member][result]``, 1-D
                views of bytes in group order, once all members have arrived, on a thread of its own. It fills the
                outputs. What it raises fails the run with its text.
        """
        with self._adding:  # a run may start as soon as there is an id: have the function there
            add = self._lib.crossrank_add_oracle
            added = self._added(add(label.encode(), ranks, *_groups(label, ranks, groups)))
            self._oracles[added] = call
            return added

    def pin(self, label: str, watch: Sequence[DType | None] = ()) -> int:
        """Register an identity of any number of operands; returns its id.

        Args:
            label: what messages call it.
            watch: for each operand the float or complex type in which NaN is looked for, or None.
        """
        for dtype in watch:
            if dtype is not None and dtype.name not in _HAS_NAN:
                raise ValueError(f"{label}: NaN is looked for in {', '.join(_HAS_NAN)}, not in {dtype}")
        numbers = (ctypes.c_int32 * len(watch))(*(dtype.number if dtype else 0 for dtype in watch))
        return self._added(self._lib.crossrank_add_pin(label.encode(), len(watch), numbers))

    def nan_seen(self, id: int) -> bool:
        """Whether a pin saw a NaN since the last ``clear_nan``."""
        return bool(self._lib.crossrank_nan_seen(id))

    def clear_nan(self) -> None:
        """Forget every NaN that was seen."""
        self._lib.crossrank_clear_nan()

    def set_limit(self, seconds: float) -> None:
        """How long a collective may wait for its last rank; 60 s unless set. Then all that wait in that run fail."""
        self.set_option("limit_us", round(seconds * 1e6))

    def failure(self) -> str | None:
        """The first failure since ``reset``: which collective waited for whom, or what an oracle raised."""
        text = ctypes.create_string_buffer(_TEXT)
        return text.raw.split(b"\0")[0].decode(errors="replace") if self._lib.crossrank_failure(text, _TEXT) else None

    def reset(self) -> None:
        """Forget the failure."""
        self._lib.crossrank_reset()

    def absent(self, rank: int | None, id: int | None = None) -> None:
        """For tests: let ``rank`` not arrive, in collective ``id`` or in any; None lets all arrive again."""
        self.set_option("absent_id", -1 if id is None else id)
        self.set_option("absent_rank", -1 if rank is None else rank)

    def set_option(self, name: str, value: int) -> None:
        """Turn a knob of ``options.h``, to measure; ValueError where there is none of that name."""
        if self._lib.crossrank_set_option(name.encode(), value):
            raise ValueError(f"no option is named {name}")

    def times(self, id: int) -> Times:
        """What a collective did so far."""
        three = (ctypes.c_uint64 * 3)()
        self._lib.crossrank_times(id, three)
        return Times(three[0], three[1], three[2] / 1e9)

    @staticmethod
    def _added(id: int) -> int:
        if id < 0:
            raise RunError("too many collectives are registered in this process")
        return id

    def _call_back(
        self, id: int, group: int, members: int, n_operands: int, n_results: int, *rest: Any
    ) -> int:  # of _Callback's type
        operands, operand_bytes, results, result_bytes, error, error_size = rest
        try:
            with self._adding:
                call = self._oracles[id]
            inputs = _views(operands, operand_bytes, members, n_operands)
            call(group, inputs, _views(results, result_bytes, members, n_results))
        except BaseException as raised:  # it must not escape into native code
            text = f"{type(raised).__name__}: {raised}".encode()[: error_size - 1]
            ctypes.memmove(error, text + b"\0", len(text) + 1)
            return 1
        return 0


def _views(addresses: Any, sizes: Any, members: int, each: int) -> list[list[Bytes]]:
    def view(i: int) -> Bytes:
        if not sizes[i]:
            return np.zeros(0, np.uint8)
        return np.ctypeslib.as_array((ctypes.c_uint8 * sizes[i]).from_address(addresses[i]))

    return [[view(m * each + i) for i in range(each)] for m in range(members)]


def _groups(label: str, ranks: int, groups: Sequence[Sequence[int]]) -> tuple[int, Any, Any]:
    """The groups as the native side takes them: how many, their sizes, all their ranks."""
    members = [rank for group in groups for rank in group]
    if len(set(members)) != len(members) or not set(members) <= set(range(ranks)) or not all(map(len, groups)):
        raise ValueError(f"{label}: the groups must hold each of {ranks} ranks at most once, and at least one each")
    sizes = (ctypes.c_int32 * len(groups))(*map(len, groups))
    return len(groups), sizes, (ctypes.c_int32 * len(members))(*members)
