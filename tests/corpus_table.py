"""Every module of the corpus through every pass and every pipeline, as the page docs/corpus.md.

A pass runs as ``inline-calls,PASS``. Where it changes a module that can be run here, the values of all ranks are
compared with those of the untouched original on the inputs that the corpus gives, and with JAX's own outputs; a module
compiled for a device is rewritten only. `make corpus` makes the page anew; arguments name modules, for a part of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from crossrank.errors import InputError, RunError
from crossrank.files import read_bytes
from crossrank.hlo.execute.preflight import check_runnable
from crossrank.hlo.execute.run import RunOptions, RunReport, run_variants
from crossrank.hlo.inventory import inventory, totals
from crossrank.hlo.io import ModuleFile, parse_module
from crossrank.hlo.module import Module
from crossrank.passes import PassResult, all_passes, all_pipelines, parse_passes, run_passes
from tests.support import CORPUS, CORPUS_NAMES

DATA = Path(__file__).parent / "data"
# a pipeline and a conversion say more than one line each
CHECKS = ("verify-collective-targets", "collective-stream-id-checker")
TOO_LARGE = ("synthetic_60k",)  # XLA:CPU compiles for hours
# with options that do more than the default
FURTHER = (
    "collective-permute-to-all-gather{always=true}",
    "convert-collectives-to-custom-call{all_computations=true kinds=all}",
    "fuse-send-recv{all_computations=true}",
    "legalize-cpu-cc-ops{partitions_as_replicas=true}",
)
VIA_INSTR = "pipeline default, via instr"
INSTR = "crossrank.bridge.instruction_backend:InstructionBackend"


@dataclass
class Row:
    """What one list of passes did to one module."""

    module: str
    passes: str
    fired: int
    declined: int
    collectives: tuple[int, int]
    bytes: tuple[int, int]
    ms: float
    verdict: str = ""
    golden: str = ""


def lists_of_passes() -> dict[str, str]:
    """What runs on each module: name → passes."""
    ours = all_passes(Module.TITLE)
    single = {name: f"inline-calls,{name}" for name in ours if name not in CHECKS and name != "inline-calls"}
    single |= {"inline-calls": "inline-calls"} | {p: f"inline-calls,{p}" for p in FURTHER}
    whole = {f"pipeline {k}": v for k, v in sorted(all_pipelines(Module.TITLE).items())}
    return dict(sorted(single.items())) | whole | {VIA_INSTR: whole["pipeline default"]}


def rewrite(file: ModuleFile, name: str, passes: str) -> tuple[Row, bool]:
    """The row of one list of passes, without values; and whether the last pass (of a pipeline: any) changed it."""
    module = file.module.copy()
    before = totals(inventory(module))
    start = time.perf_counter()
    results = run_passes(module, parse_passes(passes))
    ms = 1e3 * (time.perf_counter() - start)
    after = totals(inventory(module))
    said = results if name.startswith("pipeline") else results[-1:]
    row = Row(
        module=Path(file.path).name.partition(".")[0],
        passes=name,
        fired=_remarks(said, "done"),
        declined=_remarks(said, "declined"),
        collectives=(_sum(before, "count"), _sum(after, "count")),
        bytes=(_sum(before, "bytes"), _sum(after, "bytes")),
        ms=ms,
    )
    return row, any(r.changed for r in said)


def _remarks(results: Iterable[PassResult], outcome: str) -> int:
    return sum(r.outcome == outcome for result in results for r in result.remarks)


def _sum(kinds: dict[str, dict[str, int]], what: str) -> int:
    return sum(k[what] for k in kinds.values())


def rows_of(path: Path) -> list[Row]:
    """All rows of one module."""
    file = parse_module(read_bytes(str(path)), str(path))
    rows: list[Row] = []
    changed: list[tuple[Row, str]] = []
    for name, passes in lists_of_passes().items():
        row, fired = rewrite(file, name, passes)
        if fired:
            changed.append((row, passes))
        if fired or row.declined or name.startswith("pipeline"):
            rows.append(row)
    try:
        check_runnable(file, None)
        if rows and rows[0].module in TOO_LARGE:
            raise InputError("too large for XLA:CPU to compile")
    except InputError as error:
        for row, _ in changed:
            row.verdict = "not run"
        print(f"  {path.name}: not run: {error.what}", file=sys.stderr)
        return rows
    golden = path.with_name(path.name.partition(".")[0] + ".npz")
    for backend in ("kernels", INSTR):
        some = [(row, passes) for row, passes in changed if (row.passes == VIA_INSTR) == (backend == INSTR)]
        options = RunOptions(inputs=str(golden) if golden.exists() else None, iters=0, limit_s=120, backend=backend)
        for (row, _), report in zip(some, _run(file, [p for _, p in some], options), strict=True):
            row.verdict, row.golden = _verdict(report), _golden(report)
    return rows


def _run(file: ModuleFile, lists: Sequence[str], options: RunOptions) -> list[RunReport | str]:
    """All in one process; where that fails each in its own, to see which."""
    try:
        return list(run_variants(file, [parse_passes(p) for p in lists], options)) if lists else []
    except (RunError, InputError) as error:
        if len(lists) == 1:
            return [str(error).splitlines()[0]]
        return [r for p in lists for r in _run(file, [p], options)]


def _verdict(report: RunReport | str) -> str:
    if isinstance(report, str):
        return f"FAILED: {report}"
    result = report.result
    if "error" in result:
        return f"FAILED: {result['error'].splitlines()[0]}"
    if result["exact"]:
        return "exact" if result["reference"] == "original" else "exact (pinned)"
    worst = max(o["max_rel_err"] for o in result["outputs"])
    return f"equal ({worst:.0e})" if result["equal"] else f"DIFFERENT ({worst:.0e})"


def _golden(report: RunReport | str) -> str:
    if isinstance(report, str) or not report.result.get("golden"):
        return ""
    golden = report.result["golden"]
    return "yes" if golden["equal"] else f"as the original ({golden['max_rel_err']:.0e})" if report.equal else "NO"


# -- the page ----------------------------------------------------------------------------------------------------------
def page(rows: Sequence[Row]) -> str:
    """The page, in Markdown."""
    bad = [r for r in rows if r.verdict.startswith(("DIFF", "FAIL")) or r.golden == "NO"]
    modules = sorted({r.module for r in rows})
    lines = [
        "# The corpus",
        "",
        f"{len(modules)} modules, each through every pass alone (`inline-calls,PASS`) and through each pipeline.",
        "Made by `make corpus`.",
        "",
        "* *exact*: every bit of every output of every rank is that of the untouched original; *pinned*: once operands",
        "  and results of native collectives go through identity calls on both sides (XLA compiles around them in ways",
        "  of its own).",
        "* *equal*: within the tolerance of a pass that reassociates; the largest difference over an output's largest",
        "  value.",
        "* *golden*: as JAX's (or torch's) own outputs.",
        "* *not run*: compiled for a device, or too large for XLA:CPU.",
        "* *via instr*: the converted collectives are computed by the interpreter of instructions, not by kernels.",
        "",
        "Bytes are those of the collectives' results on one rank.",
        "",
        f"Wrong or failed: {len(bad)}.",
        "",
        "## Passes",
        "",
        "| pass | modules | rewrites | declined | exact | equal | not run |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in lists_of_passes():
        of = [r for r in rows if r.passes == name]
        fired = [r for r in of if r.fired]
        count = [sum(r.verdict.startswith(v) for r in of) for v in ("exact", "equal", "not run")]
        numbers = (len(fired), sum(r.fired for r in of), sum(r.declined for r in of), *count)
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    lines += ["", "## Modules", ""]
    for module in modules:
        lines += [
            f"### {module}",
            "",
            "| passes | done | declined | collectives | bytes | values | golden |",
            "|---|--:|--:|--:|--:|---|---|",
        ]
        for r in rows:
            if r.module == module:
                cells = (r.passes, r.fired, r.declined, _step(*r.collectives), _step(*r.bytes), r.verdict, r.golden)
                lines.append("| " + " | ".join(map(str, cells)) + " |")
        lines.append("")
    return "\n".join(lines)


def _step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def main() -> int:
    """Make the page; 1 where a value is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="only these (default: all of the corpus and of tests/data)")
    parser.add_argument("--json", metavar="OUT", help="the rows, for programs")
    parser.add_argument("-o", "--output", metavar="OUT", help="the page (default: standard output)")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    paths = [CORPUS / n for n in CORPUS_NAMES] + sorted(DATA.glob("*.hlo"))
    wanted = set(arguments.modules)
    paths = [p for p in paths if not wanted or p.name.partition(".")[0] in wanted]
    rows: list[Row] = []
    start = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for n, (path, found) in enumerate(zip(paths, pool.map(rows_of, paths), strict=True), 1):
            rows += found
            wrong = [f"{r.passes}: {r.verdict} {r.golden}" for r in found if r.verdict[:4] in ("DIFF", "FAIL")]
            seconds = time.monotonic() - start
            print(f"{n}/{len(paths)} {path.name} {seconds:.0f} s {'; '.join(wrong)}", file=sys.stderr, flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(r) for r in rows], indent=1))
    text = page(rows)
    if arguments.output:
        Path(arguments.output).write_text(text)
    else:
        print(text)
    return int(any(r.verdict.startswith(("DIFF", "FAIL")) or r.golden == "NO" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
