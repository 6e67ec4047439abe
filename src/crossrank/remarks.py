"""What a pass says about what it did, and about what it left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

Outcome = Literal["done", "declined"]


@dataclass(frozen=True)
class Remark:
    """One thing that a pass did, or chose not to do.

    Attributes:
        pass_name: the pass as the command line names it.
        instruction: the instruction (or task, or call) that it speaks of.
        outcome: ``done`` or ``declined``.
        reason: what was done, or why it was not.
        where: the author's source line, where it is known.
    """

    pass_name: str
    instruction: str
    outcome: Outcome
    reason: str
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.pass_name}: {self.outcome}: {self.instruction}{place}: {self.reason}"

    def as_dict(self) -> dict[str, str]:
        """The remark with stable keys, for JSON."""
        return asdict(self)


@dataclass
class Remarks:
    """The remarks of one pass, in the order in which they were made."""

    pass_name: str
    items: list[Remark] = field(default_factory=list)

    def done(self, instruction: str, reason: str, where: str = "") -> None:
        """Say that something was rewritten."""
        self.items.append(Remark(self.pass_name, instruction, "done", reason, where))

    def declined(self, instruction: str, reason: str, where: str = "") -> None:
        """Say that something was left as it was, and why."""
        self.items.append(Remark(self.pass_name, instruction, "declined", reason, where))

    def __iter__(self) -> Iterator[Remark]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
