"""What the hook in JAX tells a person when a script has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossrank.report.terminal import byte_size

if TYPE_CHECKING:
    from crossrank.bridge.hook_report import Report


def lines(report: Report, remarks: bool = False) -> list[str]:
    """The lines: what ran on our kernels, what stayed with XLA and why, and what went wrong."""
    if report.error is not None:
        return [f"nothing ran on our kernels: {' '.join(report.error.splitlines())}"]
    said = [str(r) for r in report.remarks] if remarks else []
    if report.converted:
        calls, moved = (sum(total[key] for total in report.ran.values()) for key in ("calls", "bytes"))
        where = f"{report.executables} of {report.compiled} executables"
        ran = f"{calls} call{'' if calls == 1 else 's'}, {byte_size(moved)} read and written"
        said.append(f"on our kernels: {_listed(report.converted)} in {where} ({ran})")
    elif not report.left and not report.errors:
        said.append(f"no collectives in {report.compiled} executable{'' if report.compiled == 1 else 's'}")
    reasons = report.left
    said += [f"left to XLA: {n} {kind}: {reasons[kind]}" for kind, n in report.left_count.items()]
    said += [f"{name} stayed as it was: {why}" for name, why in report.errors.items()]
    if report.failure is not None:
        said.append(f"a run failed: {report.failure}")
    return said


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())
