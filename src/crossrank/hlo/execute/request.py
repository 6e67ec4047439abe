"""What the parent asks of the child process: a folder with two modules, inputs and one JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

REQUEST = "request.json"
RESULT = "result.json"


@dataclass(frozen=True)
class Request:
    """One run.

    Attributes:
        ranks: how many.
        config: the module configuration, as header fields.
        backend: who computes converted collectives.
        limit_s: seconds that a rank may wait for another.
        iters: how often both modules are timed; 0: not at all.
        exactly: outputs must be the same bit for bit; else within the tolerance.
        tolerance: relative to the largest value of an output; None: by the types.
        changed: types of the values that the passes changed.
        pinned: ids of the original's collectives that the rewritten module converts.
        save_outputs: write ``outputs.npz``.
        absent_rank: a test hook: this rank never arrives at a collective of ours.
    """

    ranks: int
    config: dict[str, str] = field(default_factory=dict)
    backend: str = "kernels"
    limit_s: float = 60.0
    iters: int = 0
    exactly: bool = True
    tolerance: float | None = None
    changed: tuple[str, ...] = ()
    pinned: tuple[int, ...] = ()
    save_outputs: bool = False
    absent_rank: int | None = None

    def save(self, folder: Path) -> None:
        """Write it into the folder."""
        (folder / REQUEST).write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(folder: Path) -> Request:
        """Read it from the folder."""
        return Request(**json.loads((folder / REQUEST).read_text()))
