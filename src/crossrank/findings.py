"""What a check finds wrong or risky."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Finding:
    """Something wrong or risky.

    Attributes:
        kind: a short name of what it is, stable for programs.
        instruction: where, by name (empty: the whole file).
        message: what, in plain words.
        remedy: what to do about it.
        where: the author's source line, where it is known.
        severity: ``error`` (cannot run) or ``warning`` (may be meant so).
    """

    kind: str
    instruction: str
    message: str
    remedy: str = ""
    where: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        source = f" ({self.where})" if self.where not in ("", self.instruction) else ""
        place = f"{self.instruction}{source}: " if self.instruction else ""
        return place + self.message

    def as_dict(self) -> dict[str, str]:
        """The finding with stable keys, for JSON."""
        return asdict(self)
