"""Every pass and pipeline on large modules: its time beside XLA's parsing of the same text, in one process.

    python benchmarks/passes.py [FILE …] [--passes A;B] [--rounds N] [--json]

Without files, the large modules of the corpus and modules of doubling size whose every layer holds what the passes look
for: an all-reduce that is sliced, reduce-scatters that are concatenated, all-gathers that are converted, reshaped and
added, permutes, an all-to-all, variadic all-reduces, integer scalars, barriers. "growth" is the time per instruction of
the largest over that of the smallest of these: about 1 where a pass is linear.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from crossrank.files import read_bytes
from crossrank.hlo import io, xla
from crossrank.hlo.module import Module
from crossrank.passes import all_passes, all_pipelines, parse_passes, run_passes
from crossrank.remarks import Remarks
from crossrank.report import terminal

CORPUS = Path(os.environ.get("CROSSRANK_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
LARGE = ("big_fsdp_tp_24l.hlo.gz", "synthetic_60k.hlo.gz")
LAYERS = (125, 250, 500, 1000)

GROUPS = "replica_groups=[1,8]<=[8], use_global_device_ids=true"
LAYER = """
  ar{n} = f32[64,8] all-reduce(x{n}), channel_id={c}1, {g}, to_apply=add
  at{n} = u32[] multiply(id, eight)
  ds{n} = f32[8,8] dynamic-slice(ar{n}, at{n}, zero), dynamic_slice_sizes={{8,8}}
  rs{n} = f32[8,8] reduce-scatter(x{n}), channel_id={c}2, {g}, dimensions={{0}}, to_apply=add
  rt{n} = f32[8,8] reduce-scatter(x{n}), channel_id={c}3, {g}, dimensions={{0}}, to_apply=add
  ru{n} = f32[8,8] reduce-scatter(x{n}), channel_id={d}3, {g}, dimensions={{0}}, to_apply=add
  rw{n} = f32[8,8] reduce-scatter(x{n}), channel_id={d}4, {g}, dimensions={{0}}, to_apply=add
  cat{n} = f32[8,16] concatenate(ru{n}, rw{n}), dimensions={{1}}
  ag{n} = f32[64,16] all-gather(cat{n}), channel_id={c}4, {g}, dimensions={{0}}
  cv{n} = bf16[64,16] convert(ag{n})
  ah{n} = f32[64,8] all-gather(ds{n}), channel_id={c}5, {g}, dimensions={{0}}
  ai{n} = f32[64,8] all-gather(rs{n}), channel_id={c}6, {g}, dimensions={{0}}
  bin{n} = f32[64,8] add(ah{n}, ai{n})
  aj{n} = f32[64,8] all-gather(rt{n}), channel_id={c}7, {g}, dimensions={{0}}
  rv{n} = f32[512] reshape(aj{n})
  cp{n} = f32[64,8] collective-permute(bin{n}), channel_id={c}8, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}}}}
  aa{n} = f32[64,8] all-to-all(cp{n}), channel_id={c}9, replica_groups=[1,8]<=[8], dimensions={{0}}
  va{n} = (f32[64,8], f32[8,8]) all-reduce(aa{n}, ds{n}), channel_id={d}1, {g}, to_apply=add
  v0{n} = f32[64,8] get-tuple-element(va{n}), index=0
  v1{n} = f32[8,8] get-tuple-element(va{n}), index=1
  tu{n} = (f32[64,8], f32[8,8]) tuple(v0{n}, v1{n})
  ob{n} = (f32[64,8], f32[8,8]) opt-barrier(tu{n})
  o0{n} = f32[64,8] get-tuple-element(ob{n}), index=0
  si{n} = s32[] all-reduce(count), channel_id={d}2, {g}, to_apply=adds
  y{n} = f32[64,8] reshape(rv{n})
  x{m} = f32[64,8] add(o0{n}, y{n})"""


def layers(count: int) -> bytes:
    """A module of so many layers."""
    lines = ["HloModule layers, num_partitions=8"]
    for name, t in (("add", "f32"), ("adds", "s32")):
        lines += [f"{name} {{", f" {name}a = {t}[] parameter(0)", f" {name}b = {t}[] parameter(1)"]
        lines += [f" ROOT {name}c = {t}[] add({name}a, {name}b)", "}"]
    lines += [
        "ENTRY e {",
        "  x0 = f32[64,8] parameter(0)",
        "  count = s32[] parameter(1)",
        "  id = u32[] partition-id()",
    ]
    lines += ["  eight = u32[] constant(8)", "  zero = u32[] constant(0)"]
    kept = []
    for n in range(count):
        lines.append(LAYER.format(n=n, m=n + 1, c=2 * n + 1, d=2 * n + 2, g=GROUPS))
        kept += [(f"cv{n}", "bf16[64,16]"), (f"si{n}", "s32[]")]
    shapes, names = ", ".join(s for _, s in kept), ", ".join(k for k, _ in kept)
    lines += [f"  ROOT out = ({shapes}, f32[64,8]) tuple({names}, x{count})", "}"]
    return "\n".join(lines).encode()


def measure(name: str, data: bytes, lists: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """A row for each list of passes; ms are medians."""
    text = data.decode()
    parse = []
    for _ in range(rounds):
        start = time.perf_counter()
        xla.text_to_proto(text)
        parse.append(time.perf_counter() - start)
    opened = io.parse_module(data, name).module
    raw = opened.copy()
    run_passes(opened, parse_passes("inline-calls"))
    count = sum(len(c.post_order()) for c in opened.computations)
    rows = []
    for label, passes in lists.items():
        taken, rewrites = [], 0
        for _ in range(rounds):
            module = (raw if label.startswith("pipeline") or label == "inline-calls" else opened).copy()
            seconds, rewrites = _run(module, passes)
            taken.append(seconds)
        ms = 1e3 * statistics.median(taken)
        rows.append(
            {
                "module": name,
                "instructions": count,
                "passes": label,
                "rewrites": rewrites,
                "ms": ms,
                "over_parse": statistics.median(t / p for t, p in zip(taken, parse, strict=True)),
                "us_per_instruction": 1e3 * ms / count,
            }
        )
    return rows


def _run(module: Module, passes: str) -> tuple[float, int]:
    seconds, rewrites = 0.0, 0
    gc.collect()
    gc.disable()  # as the command does
    for p in parse_passes(passes):
        remarks = Remarks(p.name)
        start = time.perf_counter()
        p.run(module, remarks)
        seconds += time.perf_counter() - start
        rewrites += sum(r.outcome == "done" for r in remarks)
    gc.enable()
    return seconds, rewrites


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("files", nargs="*")
    ap.add_argument("--passes", help="lists of passes, parted by ; (default: every pass, every pipeline)")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    lists = {name: name for name in all_passes(Module.TITLE) if name != "verify-collective-targets"}
    lists |= {f"pipeline {k}": v for k, v in all_pipelines(Module.TITLE).items() if v}
    if a.passes:
        lists = {p: p for p in a.passes.split(";")}
    files = a.files or [str(CORPUS / f) for f in LARGE if (CORPUS / f).exists()]
    modules = [(Path(f).name.partition(".")[0], read_bytes(f)) for f in files]
    if not a.files:
        modules += [(f"{n} layers", layers(n)) for n in LAYERS]
    rows = [row for name, data in modules for row in measure(name, data, lists, a.rounds)]
    if a.json:
        print(json.dumps(rows, indent=1))
        return
    _show(rows, lists)


def _show(rows: list[dict[str, Any]], lists: dict[str, str]) -> None:
    names = list(dict.fromkeys(r["module"] for r in rows))
    table = terminal.table("passes", *names, "growth", right=(*names, "growth"))
    for label in lists:
        of = {r["module"]: r for r in rows if r["passes"] == label}
        grown = [r["us_per_instruction"] for m, r in of.items() if m.endswith("layers")]
        growth = f"{grown[-1] / grown[0]:.2f}" if grown else ""
        cells = [f"{of[m]['ms']:.0f} ms ({of[m]['over_parse']:.2f}) {of[m]['rewrites']}" for m in names]
        table.add_row(label, *cells, growth)
    terminal.show(table)
    terminal.out().print("ms (times XLA's parsing of the module), rewrites")


if __name__ == "__main__":
    main()
