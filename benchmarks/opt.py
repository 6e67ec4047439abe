"""`opt` on large modules: the time in XLA's own parsing, printing and conversion beside ours, in one process.

    python benchmarks/opt.py [FILE …] [--passes A,B] [--rounds N] [--json]

XLA's share is what happens inside `crossrank.hlo.xla`; ours is all the rest of reading, rewriting and writing. Without
files, the large modules of the corpus and chains of all-reduces of doubling length are taken: the last column is the
time per instruction, which stays the same where growth is linear.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crossrank.files import read_bytes
from crossrank.hlo import io, xla
from crossrank.passes import parse_passes, pipeline, run_passes
from crossrank.report import terminal

CORPUS = Path(os.environ.get("CROSSRANK_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
LARGE = ("big_fsdp_tp_24l.hlo.gz", "synthetic_60k.hlo.gz")
CHAINS = (4_000, 8_000, 16_000, 32_000)


class Clock:
    """Adds up the seconds that calls take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def chain(length: int) -> bytes:
    """A module of `length` instructions, a quarter of them all-reduces."""
    lines = ["HloModule chain, num_partitions=8", "add {", " a = f32[] parameter(0)", " b = f32[] parameter(1)"]
    lines += [" ROOT c = f32[] add(a, b)", "}", "ENTRY e {", " x0 = f32[64,64] parameter(0)"]
    for n in range(length // 4):
        lines += [
            f" n{n} = f32[64,64] negate(x{n})",
            f" r{n} = f32[64,64] all-reduce(n{n}), channel_id={n + 1}, replica_groups=[2,4]<=[8], "
            "use_global_device_ids=true, to_apply=add, "
            f'metadata={{op_name="layer{n}" source_file="m.py" source_line={n}}}',
            f" t{n} = f32[64,64] tanh(r{n})",
            f" x{n + 1} = f32[64,64] add(t{n}, x{n})",
        ]
    lines += [f" ROOT o = f32[64,64] copy(x{length // 4})", "}"]
    return "\n".join(lines).encode()


def measure(data: bytes, name: str, passes: str, rounds: int) -> dict[str, Any]:
    """Medians over rounds, ms."""
    theirs, ours, count = [], [], 0
    gc.disable()  # as the command does
    for _ in range(rounds):
        clock = Clock()
        kept = {f: getattr(xla, f) for f in ("text_to_proto", "proto_to_text", "check_proto")}
        for f, function in kept.items():
            setattr(xla, f, clock.around(function))
        start = time.perf_counter()
        file = io.parse_module(data, name)
        run_passes(file.module, parse_passes(passes))
        io.to_text(file)
        total = time.perf_counter() - start
        gc.collect()
        for f, function in kept.items():
            setattr(xla, f, function)
        count = sum(len(c.post_order()) for c in file.module.computations)
        theirs.append(clock.seconds)
        ours.append(total - clock.seconds)
    mine, xlas = statistics.median(ours), statistics.median(theirs)
    return {
        "module": name,
        "instructions": count,
        "xla_ms": 1e3 * xlas,
        "ours_ms": 1e3 * mine,
        "ours_over_xla": statistics.median(o / t for o, t in zip(ours, theirs, strict=True)),
        "ours_us_per_instruction": 1e6 * mine / count,
    }


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("files", nargs="*")
    ap.add_argument("--passes", default=",".join(map(str, pipeline("default"))))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    files = a.files or [str(CORPUS / f) for f in LARGE if (CORPUS / f).exists()]
    modules = [(Path(f).name, read_bytes(f)) for f in files]
    if not a.files:
        modules += [(f"chain of {n}", chain(n)) for n in CHAINS]
    results = [measure(data, name, a.passes, a.rounds) for name, data in modules]
    if a.json:
        print(json.dumps({"passes": a.passes, "results": results}, indent=2))
        return
    numbers = ("instructions", "XLA ms", "ours ms", "ours/XLA", "ours µs/instruction")
    rows = terminal.table("module", *numbers, right=numbers)
    for r in results:
        rows.add_row(
            r["module"],
            str(r["instructions"]),
            f"{r['xla_ms']:.0f}",
            f"{r['ours_ms']:.0f}",
            f"{r['ours_over_xla']:.2f}",
            f"{r['ours_us_per_instruction']:.2f}",
        )
    terminal.show(rows)


if __name__ == "__main__":
    main()
