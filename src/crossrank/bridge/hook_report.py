"""What the hook did in a process: data for programs, filled while modules compile and run."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from crossrank.remarks import Remark
from crossrank.statistics import byte_size

if TYPE_CHECKING:  # a script that imports no JAX has none of it, and a report is made when Python ends
    from crossrank.bridge.rewrite import Rewritten
    from crossrank.hlo.ffi.native import Native


@dataclass(repr=False)
class Report:
    """What became of every module that XLA compiled while the hook was there.

    Attributes:
        modules: those that hold collectives, in the order in which they were compiled.
        compiled: how many modules XLA compiled, with collectives or without.
        errors: module → why it stayed as it was, where that was a failure.
        error: why there is no hook at all, or None.
        native: what has the times and failures of collectives; None where there is no hook.
    """

    modules: list[Rewritten] = field(default_factory=list)
    compiled: int = 0
    errors: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    native: Native | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<Report: {'; '.join(self.lines())}>"

    def count(self) -> None:
        """Take note of one more module that XLA compiles."""
        with self._lock:
            self.compiled += 1

    def add(self, made: Rewritten) -> None:
        """Take note of what became of a module with collectives."""
        with self._lock:
            self.modules.append(made)

    def fail(self, name: str, reason: str) -> None:
        """Take note that a module stays as it was, whatever was made of it before."""
        with self._lock:
            made = next((m for m in reversed(self.modules) if m.name == name), None)
            if made is not None:
                self.modules.remove(made)
            self.errors[name] = reason

    @property
    def failure(self) -> str | None:
        """The first thing that ended a run, such as who waited for whom; None where nothing did."""
        return self.native.failure() if self.native is not None else None

    @property
    def remarks(self) -> list[Remark]:
        """What the passes said."""
        return [r for m in self.modules for p in m.passes for r in p.remarks]

    @property
    def executables(self) -> int:
        """Modules with at least one collective on our kernels."""
        return sum(bool(m.given) for m in self.modules)

    @property
    def converted(self) -> dict[str, int]:
        """Collectives on our kernels by kind; XLA has combined some before they are counted."""
        return _count(str(g.kind) for m in self.modules for g in m.given)

    @property
    def left_count(self) -> dict[str, int]:
        """Collectives that stayed with XLA by kind."""
        return _count(str(x.kind) for m in self.modules for x in m.left)

    @property
    def left(self) -> dict[str, str]:
        """Why collectives of each kind stayed with XLA; several reasons stand behind one another."""
        reasons: dict[str, dict[str, None]] = {}
        for m in self.modules:
            for x in m.left:
                reasons.setdefault(str(x.kind), {})[x.reason] = None
        return {kind: "; ".join(why) for kind, why in sorted(reasons.items())}

    @property
    def ran(self) -> dict[str, dict[str, Any]]:
        """For each kind on our kernels: calls (one a group and run), bytes read and written, seconds."""
        found: dict[str, dict[str, Any]] = {}
        for m in self.modules:
            for g in m.given:
                total = found.setdefault(str(g.kind), {"calls": 0, "bytes": 0, "seconds": 0.0})
                if self.native is not None:
                    for key, value in asdict(self.native.times(g.number)).items():
                        total[key] += value
        return dict(sorted(found.items()))

    def lines(self, remarks: bool = False) -> list[str]:
        """What a person is told: what ran on our kernels, what stayed with XLA and why, and what went wrong."""
        if self.error is not None:
            return [f"nothing ran on our kernels: {' '.join(self.error.splitlines())}"]
        said = [str(r) for r in self.remarks] if remarks else []
        if self.converted:
            calls, moved = (sum(total[key] for total in self.ran.values()) for key in ("calls", "bytes"))
            where = f"{self.executables} of {self.compiled} executables"
            ran = f"{calls} call{'' if calls == 1 else 's'}, {byte_size(moved)} read and written"
            said.append(f"on our kernels: {_listed(self.converted)} in {where} ({ran})")
        elif not self.left and not self.errors:
            said.append(f"no collectives in {self.compiled} executable{'' if self.compiled == 1 else 's'}")
        reasons = self.left
        said += [f"left to XLA: {n} {kind}: {reasons[kind]}" for kind, n in self.left_count.items()]
        said += [f"{name} stayed as it was: {why}" for name, why in self.errors.items()]
        if self.failure is not None:
            said.append(f"a run failed: {self.failure}")
        return said

    def as_dict(self) -> dict[str, Any]:
        """JSON data with stable keys."""
        return {
            "executables": self.executables,
            "compiled": self.compiled,
            "converted": self.converted,
            "left": self.left,
            "left_count": self.left_count,
            "ran": self.ran,
            "errors": dict(self.errors),
            "error": self.error,
            "failure": self.failure,
            "remarks": [r.as_dict() for r in self.remarks],
            "modules": [_module(m) for m in self.modules],
        }


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())


def _count(kinds: Any) -> dict[str, int]:
    return dict(sorted(Counter(kinds).items()))


def _module(m: Rewritten) -> dict[str, Any]:
    return {
        "name": m.name,
        "ranks": m.ranks,
        "converted": _count(str(g.kind) for g in m.given),
        "calls": [g.label for g in m.given],
        "left": [asdict(x) for x in m.left],
        "passes": [{"name": p.name, "spec": p.spec, "changed": p.changed} for p in m.passes],
    }
