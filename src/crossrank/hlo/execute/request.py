"""What the parent asks of the child process: a folder with modules, inputs and one JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

REQUEST = "request.json"
RESULT = "result.json"
ORIGINAL = "original.pb"


@dataclass(frozen=True)
class Variant:
    """One rewrite of the original.

    Attributes:
        file: the module, in the folder.
        config: its configuration, as header fields.
        what: what messages call it.
        exactly: outputs must be the same bit for bit; else within the tolerance.
        changed: types of the values that the passes changed.
        pinned: ids of the original's collectives that it converts.
        removed: ids of those of which nothing is left in it.
        gone: ids in the original of values that it computes in another way, where what takes them is still there.
        new: ids in it of what these are computed by.
        keeps_native: some of its own collectives are native.
    """

    file: str
    config: dict[str, str] = field(default_factory=dict)
    what: str = "the rewritten module"
    exactly: bool = True
    changed: tuple[str, ...] = ()
    pinned: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    new: tuple[int, ...] = ()
    keeps_native: bool = False


@dataclass(frozen=True)
class Request:
    """One original, and what is to be compared with it.

    Attributes:
        ranks: how many.
        variants: the rewrites, each compared with the original.
        config: the configuration of the original, as header fields.
        backend: who computes converted collectives; see `backends.make_backend`.
        limit_s: seconds that a rank may wait for another.
        iters: how often the original and the last variant are timed; 0: not at all.
        tolerance: relative to the largest value of an output; None: by the types.
        check_collectives: compare what each collective of the last variant gave with the oracle.
        save_outputs: write ``outputs.npz`` with what the last variant gave.
        absent_rank: a test hook: this rank never arrives at a collective of ours.
    """

    ranks: int
    variants: tuple[Variant, ...]
    config: dict[str, str] = field(default_factory=dict)
    backend: str = "kernels"
    limit_s: float = 60.0
    iters: int = 0
    tolerance: float | None = None
    check_collectives: bool = False
    save_outputs: bool = False
    absent_rank: int | None = None

    def save(self, folder: Path) -> None:
        """Write it into the folder."""
        (folder / REQUEST).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Request:
        """Read it from the folder."""
        data = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        return Request(**data | {"variants": tuple(Variant(**v) for v in data["variants"])})
