"""The native half of a run: the FFI targets, and the collectives and pins that are registered for them beforehand.

A module's custom-calls name the target ``crossrank.collective`` or ``crossrank.pin`` and carry one attribute,
``id : i64``, that a method here returned. Operands of a collective are its data, then the rank as ``u32[]``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crossrank.collective.dtypes import S32, U8, DType
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError, RunError
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
_HAS_NAN = ("f16", "bf16", "f32", "f64", "c64", "c128")
_TEXT = 4096


_MOST = 7  # slots of a kernel


class _TensorSpec(ctypes.Structure):
    """One slot of a kernel, as ``call.h`` lays it out."""

    _fields_ = (
        ("source", ctypes.c_int32),
        ("index", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("extents", ctypes.c_int64 * 3),
    )


class _PartSpec(ctypes.Structure):
    """One run of a kernel, as ``call.h`` lays it out."""

    _fields_ = (
        ("body", ctypes.c_void_p),
        ("ragged", ctypes.c_int32),
        ("tensors", ctypes.c_int32),
        ("tensor", _TensorSpec * _MOST),
    )


_Addresses, _Sizes = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *(ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32),
    *(_Addresses, _Sizes, _Addresses, _Sizes, ctypes.POINTER(ctypes.c_char), ctypes.c_int32),
)


class From(IntEnum):
    """Which buffer of a rank a slot of a kernel is: ``TensorSpec::From`` of ``call.h``."""

    OPERAND = 0
    RESULT = 1
    PEER = 2  # of one rank of the group, the same for all: the result that has the number of the rank
    SOURCES = 3  # where each rank's data comes from


@dataclass(frozen=True)
class Tensor:
    """One slot of a kernel.

    Attributes:
        source: which buffer it is.
        index: the number of that operand, result or peer.
        view: ``[outer, dim, inner]`` of one rank's, dim being what is gathered, scattered or split.
        dtype: of its elements.
    """

    source: From
    index: int
    view: tuple[int, int, int]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes on one rank."""
        outer, dim, inner = self.view
        return outer * dim * inner * self.dtype.itemsize

    def in_bytes(self) -> Tensor:
        """For a kernel that moves bytes: an element is a few more of them, innermost."""
        outer, dim, inner = self.view
        return Tensor(self.source, self.index, (outer, dim, inner * self.dtype.itemsize), U8)

    def _spec(self) -> _TensorSpec:
        return _TensorSpec(self.source, self.index, self.dtype.number, self.view)


SOURCES = Tensor(From.SOURCES, 0, (0, 1, 1), S32)


@dataclass(frozen=True)
class Part:
    """One run of a kernel.

    A collective has one for each operand, but for those that take their operands together.

    Attributes:
        variant: the kernel.
        tensors: its slots.
    """

    variant: Variant
    tensors: tuple[Tensor, ...]

    def _spec(self, body: int) -> _PartSpec:
        tensors = (_TensorSpec * _MOST)(*(t._spec() for t in self.tensors))
        return _PartSpec(body, self.variant.kind is Kind.RAGGED_ALL_TO_ALL, len(self.tensors), tensors)

    def fits(self, size: int) -> bool:
        """Whether a group of ``size`` ranks can run it: the kernel trusts the sizes."""
        first, second = self.tensors[:2]
        given, made = first.nbytes, second.nbytes
        match self.variant.kind:
            case Kind.REDUCE_SCATTER:
                return first.view[1] % size == 0 and made * size == given
            case Kind.ALL_GATHER:
                return given * size == made
            case Kind.ALL_TO_ALL:
                return first.view[1] % size == 0 and given == made
            case Kind.RAGGED_ALL_TO_ALL:
                tables, result = self.tensors[2:6], self.tensors[6]
                return (
                    made == result.nbytes
                    and all(t.view == tables[0].view for t in tables)
                    and (tables[0].view[0] % size == 0)
                )
        return given == made


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
        lib.crossrank_set_eager.argtypes = [ctypes.c_int64, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)]
        lib.crossrank_set_eager.restype = None
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

    def kernels(
        self,
        label: str,
        ranks: int,
        groups: Sequence[Sequence[int]],
        parts: Sequence[Part],
        sources: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Register a collective that kernels serve, compiled where the cache has them not; returns its id.

        Args:
            label: what messages call it, such as ``all-reduce %ar.3 (train.py:12)``.
            ranks: of the world.
            groups: the ranks of each group, in group order; a rank in none gets zeros and waits for nobody.
            parts: what is run once all ranks of a group have come, one or more.
            sources: for each member of each group the position of the one that it gets its data from, -1 for none;
                where a part has a slot for them.

        Raises:
            ValueError: groups, sources or sizes that do not fit one another.
        """
        if not parts:
            raise ValueError(f"{label}: a collective has at least one operand")
        wants_sources = any(SOURCES in p.tensors for p in parts)
        if wants_sources and list(map(len, groups)) != list(map(len, sources or ())):
            raise ValueError(f"{label}: each member of each group needs a source, or -1")
        together = any(t.source is From.PEER for p in parts for t in p.tensors)
        wrong = [g for g in groups if not all(p.fits(len(g)) for p in parts) or (together and len(g) != len(parts))]
        if wrong:
            raise ValueError(f"{label}: its operands and results do not fit a group of {len(wrong[0])}")
        paths = compile_variants([p.variant for p in parts])
        specs = (_PartSpec * len(parts))(*(p._spec(entry(paths[p.variant], f"{p.variant.symbol}_body")) for p in parts))
        from_whom = [s for group in sources or () for s in group]
        added = self._lib.crossrank_add_kernels(
            label.encode(),
            ranks,
            *_groups(label, ranks, groups),
            (ctypes.c_int32 * len(from_whom))(*from_whom) if sources is not None else None,
            len(parts),
            specs,
            *_buffers(parts, From.OPERAND),
            *_buffers(parts, From.RESULT),
        )
        return self._added(added)

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

    def eager(self, id: int, ranks: Sequence[int]) -> None:
        """Take the data of these ranks as it comes, so that they wait for nobody; they get zeros.

        For a send whose recv is a call of its own. Call it before the first run.
        """
        self._lib.crossrank_set_eager(id, len(ranks), (ctypes.c_int32 * len(ranks))(*ranks))

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
            kind = "" if isinstance(raised, ValueError | InputError | RunError) else f"{type(raised).__name__}: "
            text = f"{kind}{raised}".encode()[: error_size - 1]
            ctypes.memmove(error, text + b"\0", len(text) + 1)
            return 1
        return 0


def _views(addresses: Any, sizes: Any, members: int, each: int) -> list[list[Bytes]]:
    def view(i: int) -> Bytes:
        if not sizes[i]:
            return np.zeros(0, np.uint8)
        return np.ctypeslib.as_array((ctypes.c_uint8 * sizes[i]).from_address(addresses[i]))

    return [[view(m * each + i) for i in range(each)] for m in range(members)]


def _buffers(parts: Sequence[Part], source: From) -> tuple[int, Any]:
    """The sizes of the operands (or results) that the parts are about, by number."""
    sizes = {t.index: t.nbytes for p in parts for t in p.tensors if t.source is source}
    if source is From.RESULT:  # each peer's part has one of them
        sizes |= {n: t.nbytes for n, p in enumerate(parts) for t in p.tensors if t.source is From.PEER}
    return len(sizes), (ctypes.c_uint64 * len(sizes))(*(sizes[n] for n in range(len(sizes))))


def _groups(label: str, ranks: int, groups: Sequence[Sequence[int]]) -> tuple[int, Any, Any]:
    """The groups as the native side takes them: how many, their sizes, all their ranks."""
    members = [rank for group in groups for rank in group]
    if len(set(members)) != len(members) or not set(members) <= set(range(ranks)) or not all(map(len, groups)):
        raise ValueError(f"{label}: the groups must hold each of {ranks} ranks at most once, and at least one each")
    sizes = (ctypes.c_int32 * len(groups))(*map(len, groups))
    return len(groups), sizes, (ctypes.c_int32 * len(members))(*members)
