"""Our collectives beside XLA:CPU's own and the memory floor, on this machine.

Both sides are compiled modules of chained collectives, run in one process, turn by turn; a ratio is the median over the
turns. A permute is a ring in each group. A collective that changes the shape has the same operand as the one before it,
tied to that one's result by a custom-call that does nothing, on both sides. The floor is the time of copying the bytes
that the ranks of all groups must read once and write once, measured in the same turns. `place`: the all-reduces have
their results in the place of their operands.

    python benchmarks/collectives.py --sizes 4K,4M --kinds all-reduce --dtypes f32
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

RANKS = 8
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
SAME_SHAPE = ("all-reduce", "all-to-all", "collective-permute")
DTYPES = {"f32": 4, "bf16": 2}
# Pages that a freed buffer leaves are kept for the next one. The default gives them back, and large sizes then are
# mostly page faults, on both sides.
RETAINED = ":".join(
    f"glibc.malloc.{setting}"
    for setting in ("mmap_threshold=4294967296", "trim_threshold=68719476736", "arena_max=1", "hugetlb=1")
)
ALLOCATORS = {"default": "", "retained": RETAINED}
# A batch of turns in which other processes took more than this share of the CPUs does not count, unless the whole
# patience for a cell is used up with such.
DISTURBED, BATCH_S, PATIENCE_S = 0.06, 0.25, 20
DEVICES = f"--xla_force_host_platform_device_count={RANKS}"


@dataclass(frozen=True)
class Cell:
    """One line of the table. `size`: bytes of the largest buffer of a rank."""

    kind: str
    dtype: str
    group: int
    size: int

    @property
    def elements(self) -> tuple[int, int]:
        """Of one rank's operand and result."""
        most = self.size // DTYPES[self.dtype]
        if self.kind in SAME_SHAPE:
            return most, most
        few = most // self.group
        return (few, most) if self.kind == "all-gather" else (most, few)

    @property
    def moved(self) -> int:
        """Bytes that all ranks read and write in one collective."""
        return RANKS * sum(self.elements) * DTYPES[self.dtype]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(range(first, first + self.group)) for first in range(0, RANKS, self.group))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Of a permute: a ring in each group."""
        rings = ((g, (*g[1:], g[0])) for g in self.groups)
        return tuple(pair for sources, targets in rings for pair in zip(sources, targets, strict=True))

    @property
    def attributes(self) -> str:
        """Of the native collective."""
        if self.kind == "collective-permute":
            return f"source_target_pairs={braces(self.pairs)}"
        dims = "" if self.kind == "all-reduce" else ", dimensions={0}"
        apply = ", to_apply=add" if self.kind in ("all-reduce", "reduce-scatter") else ""
        return f"replica_groups={braces(self.groups)}{dims}{apply}"


def braces(lists: tuple[tuple[int, ...], ...]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, one)) + "}" for one in lists) + "}"


def bytes_of(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


# ---- the child: one allocator setting, all cells ---------------------------------------------------------------------


def module(cell: Cell, chain: int, how: str, id: int, tie: int) -> str:
    """The text of a module of `chain` collectives; how: xla, ours, in-place (results in the place of dead operands)."""
    t, (i, o) = cell.dtype, cell.elements
    lines = [f"p = {t}[{i}]{{0}} parameter(0)", "k = u32[] replica-id()"]
    value = "p"
    for c in range(chain):
        before, last = value, c == chain - 1
        root = "ROOT " if last else ""
        if how == "xla":
            lines.append(f"{root}r{c} = {t}[{o}]{{0}} {cell.kind}({value}), {cell.attributes}")
        else:
            alias = ", output_to_operand_aliasing={{}: (0, {})}" if how == "in-place" and c else ""
            lines.append(
                f'{root}r{c} = {t}[{o}]{{0}} custom-call({value}, k), custom_call_target="crossrank.collective", '
                f"operand_layout_constraints={{{t}[{i}]{{0}}, u32[]}}{alias}, "
                f'api_version=API_VERSION_TYPED_FFI, backend_config="{{id = {id} : i64}}"'
            )
        value = f"r{c}"
        if cell.kind not in SAME_SHAPE and not last:
            both = f"{t}[{i}]{{0}}, {t}[{o}]{{0}}"
            lines.append(
                f'tie{c} = ({both}) custom-call({before}, r{c}), custom_call_target="crossrank.pin", '
                f"operand_layout_constraints={{{both}}}, "
                "output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}, "
                f'api_version=API_VERSION_TYPED_FFI, backend_config="{{id = {tie} : i64}}"'
            )
            value = f"next{c}"
            lines.append(f"{value} = {t}[{i}]{{0}} get-tuple-element(tie{c}), index=0")
    body = "\n  ".join(lines)
    add = f"add {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT s = {t}[] add(a, b)\n}}"
    return f"HloModule m, replica_count={RANKS}\n{add}\nENTRY e {{\n  {body}\n}}\n"


class Xla:
    """XLA with a CPU device for each rank."""

    def __init__(self) -> None:
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        self.devices = jax.devices()
        self.sharding = NamedSharding(Mesh(np.array(self.devices), ("i",)), PartitionSpec("i"))

    def build(self, text: str) -> Any:
        import jax._src.interpreters.mlir as jax_mlir
        import numpy as np
        from jax._src.lib import xla_client
        from jaxlib import _hlo, _jax
        from jaxlib.mlir import ir

        computation = _hlo.XlaComputation(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = RANKS, 1
        build = options.executable_build_options
        build.num_replicas, build.num_partitions, build.use_spmd_partitioning = RANKS, 1, False
        build.device_assignment = xla_client.DeviceAssignment.create(np.arange(RANKS).reshape(RANKS, 1))
        with jax_mlir.make_ir_context():
            parsed = ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))
            devices = xla_client.DeviceList(tuple(self.devices))
            return self.devices[0].client.compile_and_load(parsed, devices, options)

    def give(self, elements: int, dtype: str) -> Any:
        import jax
        import ml_dtypes
        import numpy as np

        numpy = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float32)
        rows = [np.random.default_rng(r).standard_normal(elements, np.float32).astype(numpy) for r in range(RANKS)]
        shards = [jax.device_put(row, device) for row, device in zip(rows, self.devices, strict=True)]
        return jax.make_array_from_single_device_arrays((RANKS * elements,), self.sharding, shards)

    @staticmethod
    def run(executable: Any, operand: Any) -> tuple[float, list[Any]]:
        """Seconds until every rank's result is ready, and the results, which the caller frees outside the clock."""
        from jax._src.lib import xla_client

        start = time.perf_counter()
        results = executable.execute_sharded([operand]).disassemble_into_single_device_arrays()[0]
        xla_client.batched_block_until_ready(results)
        return time.perf_counter() - start, results


class Floor:
    """Times copies of so many bytes."""

    def __init__(self, moved: int) -> None:
        from crossrank.kernels.compile import Unit, build
        from crossrank.kernels.render import INCLUDE
        from crossrank.runtime.library import HERE

        here = Path(__file__).parent
        unit = Unit("floor", (here / "floor.cc").read_text(), includes=(INCLUDE, HERE))
        self.lib = ctypes.CDLL(str(build(unit)))
        self.lib.floor_open.argtypes, self.lib.floor_open.restype = [ctypes.c_uint64], ctypes.c_void_p
        self.lib.floor_close.argtypes = [ctypes.c_void_p]
        self.lib.floor_seconds.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        self.lib.floor_seconds.restype = ctypes.c_double
        self.copiers = self.lib.floor_open(moved)
        self.rounds = 3 if moved > 1 << 25 else 20

    def seconds(self) -> float:
        return float(self.lib.floor_seconds(self.copiers, self.rounds))

    def close(self) -> None:
        self.lib.floor_close(self.copiers)


class Others:
    """What other processes take of the CPUs, since it was made."""

    def __init__(self) -> None:
        self.start = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        user, nice, system, _, _, irq, soft, steal, *_ = map(
            int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
        )
        own = os.times()
        busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy - own.user - own.system

    def share(self) -> float:
        """Of the time of all CPUs."""
        (then, before), (now, after) = self.start, self._now()
        return (after - before) / (now - then) / (os.cpu_count() or 1)


def values(results: list[Any]) -> list[bytes]:
    return [r.__array__().tobytes() for r in (results[0], results[-1])]


def measure(xla: Xla, cell: Cell, chain: int, turns: int) -> dict[str, Any]:
    """Medians of one cell. Times are of one collective, in µs."""
    from crossrank.collective.dtypes import dtype
    from crossrank.collective.kinds import Kind, ReduceOp
    from crossrank.collective.semantics import Collective
    from crossrank.hlo.execute.backends import KernelBackend
    from crossrank.hlo.ffi.call import Call
    from crossrank.hlo.ffi.native import Native
    from crossrank.hlo.shape import Shape

    native = Native.load()
    kind = Kind(cell.kind)
    op, pairs = (ReduceOp.ADD if kind.reduces else None), (cell.pairs if kind.has_pairs else ())
    collective = Collective(kind, cell.groups, op, None if kind.has_pairs or kind is Kind.ALL_REDUCE else 0, pairs)
    operands, results = ((Shape(dtype(cell.dtype)).with_dims([n]),) for n in cell.elements)
    hows = ["xla", "ours"] + (["in-place"] if cell.kind == "all-reduce" and chain > 1 else [])
    backend = KernelBackend(native)
    ids = {
        how: backend.register(Call(f"{cell.kind} {how}", RANKS, collective, operands, results))
        for how in hows
        if how != "xla"
    }
    tie = native.pin("tie")
    executables = {how: xla.build(module(cell, chain, how, ids.get(how, 0), tie)) for how in hows}
    given, floor = xla.give(cell.elements[0], cell.dtype), Floor(cell.moved)
    first = {how: values(xla.run(executables[how], given)[1]) for how in hows}
    all_turns: list[dict[str, float]] = []
    quiet: list[dict[str, float]] = []
    begun = time.perf_counter()
    while len(quiet) < turns and (len(all_turns) < turns or time.perf_counter() - begun < PATIENCE_S):
        batch: list[dict[str, float]] = []
        others, start = Others(), time.perf_counter()
        while time.perf_counter() - start < BATCH_S:
            taken = {how: xla.run(executables[how], given)[0] / chain * 1e6 for how in hows}
            batch.append(taken | {"floor": floor.seconds() * 1e6})
        all_turns += batch
        quiet += batch if others.share() < DISTURBED else []
    used = quiet if len(quiet) >= turns else all_turns
    spent = {how: [turn[how] for turn in used] for how in used[0]}
    floor.close()
    medians = {how: median(times) for how, times in spent.items()}
    ours = hows[1:]
    return {
        **asdict(cell),
        "time_us": medians,
        "body_us": {how: native.times(ids[how]).seconds / native.times(ids[how]).calls * 1e6 for how in ours},
        "xla_over": {how: median(x / y for x, y in zip(spent["xla"], spent[how], strict=True)) for how in ours},
        "over_floor": {how: median(x / y for x, y in zip(spent[how], spent["floor"], strict=True)) for how in hows},
        # XLA:CPU keeps the f32 that it widened bf16 to from one of its collectives to the next.
        "same_bits": cell.dtype != "f32" or all(found == first["xla"] for found in first.values()),
        "turns": len(used),
        "quiet": len(quiet) >= turns,
    }


def child(cells: list[Cell], chain: int, turns: int, options: dict[str, int]) -> None:
    from crossrank.hlo.ffi.native import Native

    xla = Xla()
    for name, value in options.items():
        Native.load().set_option(name, value)
    for cell in cells:
        print(json.dumps(measure(xla, cell, chain, turns)), flush=True)


# ---- the parent: a child for each allocator setting, the table -------------------------------------------------------


def measurements(args: argparse.Namespace, allocator: str) -> Iterator[dict[str, Any]]:
    env = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}"}
    if ALLOCATORS[allocator]:
        env["GLIBC_TUNABLES"] = ALLOCATORS[allocator]
    command = [sys.executable, __file__, *sys.argv[1:], "--child"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield {"allocator": allocator, **json.loads(line)}
    if process.returncode:
        sys.exit(process.returncode)


def row(m: dict[str, Any]) -> str:
    over, floors, times = m["xla_over"], m["over_floor"], m["time_us"]
    text = f"{m['allocator']:9} {m['kind']:18} {m['dtype']:5} {m['group']:5} {size_text(m['size']):>8}"
    text += f" {times['floor']:10.1f} {times['xla']:10.1f} {times['ours']:10.1f}"
    text += f" {m['body_us']['ours']:9.1f} {over['ours']:9.2f} {floors['ours']:10.2f}"
    if "in-place" in over:
        text += f" {times['in-place']:10.1f} {over['in-place']:9.2f} {floors['in-place']:10.2f}"
    notes = [] if m["same_bits"] else ["other bits than XLA's"]
    return "  ".join([text, *notes, *([] if m["quiet"] else ["other processes were busy"])])


HEAD = (
    f"{'allocator':9} {'collective':18} {'dtype':5} {'group':>5} {'size':>8} {'floor µs':>10} {'XLA µs':>10} "
    f"{'ours µs':>10} {'body µs':>9} {'XLA/ours':>9} {'ours/floor':>10} "
    f"{'place µs':>10} {'XLA/place':>9} {'place/floor':>10}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4K,256K,4M,32M", help="bytes of the largest buffer of a rank")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--groups", default="8,4", help="ranks of a group, of 8 in all")
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--chain", type=int, default=20, help="collectives in a module; 1 for one alone")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--set", default="", help="options of the native side: name=value,…")
    parser.add_argument("--json", action="store_true", help="one object on standard output, and nothing else")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cells = [
        Cell(kind, dtype, int(group), bytes_of(size))
        for size in args.sizes.split(",")
        for kind in args.kinds.split(",")
        for dtype in args.dtypes.split(",")
        for group in args.groups.split(",")
    ]
    if args.child:
        options = {k: int(v) for k, v in (pair.split("=") for pair in args.set.split(",") if pair)}
        child(cells, args.chain, args.turns, options)
        return
    found = []
    if not args.json:
        print(HEAD)
    for allocator in args.allocators.split(","):
        for measured in measurements(args, allocator):
            found.append(measured)
            if not args.json:
                print(row(measured), flush=True)
    if args.json:
        print(json.dumps({"ranks": RANKS, "chain": args.chain, "turns": args.turns, "cells": found}))


if __name__ == "__main__":
    main()
