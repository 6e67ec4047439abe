"""Whole modules on N ranks: the untouched original and what a pipeline makes of it, alternated in one process.

    python benchmarks/steps.py [NAME …] [--pipeline default] [--rounds 41] [--json]

Without names, every runnable module of the corpus, on the inputs that the corpus gives. "speedup" is the median of the
ratios original/rewritten over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from crossrank.errors import InputError, RunError
from crossrank.files import read_bytes
from crossrank.hlo.execute.run import RunOptions, run_module
from crossrank.hlo.io import parse_module
from crossrank.passes import parse_passes, pipeline
from crossrank.report import terminal

CORPUS = Path(os.environ.get("CROSSRANK_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
TOO_LARGE = ("synthetic_60k",)  # XLA:CPU compiles for hours


def measure(path: Path, passes: str, rounds: int) -> dict[str, Any]:
    """One module's row."""
    golden = path.with_name(path.name.partition(".")[0] + ".npz")
    options = RunOptions(inputs=str(golden) if golden.exists() else None, iters=rounds)
    report = run_module(parse_module(read_bytes(str(path)), path.name), parse_passes(passes), options)
    return {
        "module": path.name.partition(".")[0],
        "before": sum(report.before.values()),
        "after": sum(report.after.values()) + sum(report.custom_calls.values()),
        "equal": report.equal,
        **report.result["time_ms"],
        "speedup": report.result["speedup"],
    }


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    which = ap.add_mutually_exclusive_group()
    which.add_argument("--pipeline", default="default")
    which.add_argument("--passes")
    ap.add_argument("--rounds", type=int, default=41)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    passes = a.passes if a.passes is not None else ",".join(map(str, pipeline(a.pipeline)))
    paths = [p for p in sorted(CORPUS.glob("*.hlo*")) if p.name.partition(".")[0] not in TOO_LARGE]
    rows = []
    for path in paths:
        if a.names and path.name.partition(".")[0] not in a.names:
            continue
        try:
            rows.append(measure(path, passes, a.rounds))
        except (InputError, RunError) as error:
            print(f"{path.name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        if not a.json:
            print(f"{rows[-1]['module']}: {rows[-1]['speedup']:.2f}", file=sys.stderr)
    if a.json:
        print(json.dumps({"passes": passes, "rows": rows}, indent=1))
        return
    numbers = ("collectives", "after", "original ms", "rewritten ms", "speedup")
    table = terminal.table("module", *numbers, "values", right=numbers)
    for r in rows:
        times = (f"{r['original']:.2f}", f"{r['rewritten']:.2f}", f"{r['speedup']:.2f}")
        table.add_row(r["module"], str(r["before"]), str(r["after"]), *times, "equal" if r["equal"] else "DIFFERENT")
    terminal.show(table)
    terminal.out().print(passes)


if __name__ == "__main__":
    main()
