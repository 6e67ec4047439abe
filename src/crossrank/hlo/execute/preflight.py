"""What cannot be run here, said before anything starts."""

from __future__ import annotations

from collections import Counter

from crossrank.collective.dtypes import PRED
from crossrank.collective.kinds import Kind
from crossrank.errors import InputError
from crossrank.hlo.io import DUMP_REMEDY, ELIDED_REMEDY, ModuleFile
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.shape import Shape
from crossrank.hlo.verifier import verify
from crossrank.hlo.world import set_world

# start/done pairs and what only a device's runtime has
_FOREIGN = {
    "add-dependency",
    "all-gather-done",
    "all-gather-start",
    "all-reduce-done",
    "all-reduce-start",
    "async-done",
    "async-start",
    "async-update",
    "collective-permute-done",
    "collective-permute-start",
    "copy-done",
    "copy-start",
    "domain",
    "get-dimension-size",
    "infeed",
    "outfeed",
    "set-dimension-size",
}
MOST_RANKS = 2048
"""Devices that XLA:CPU makes in one process."""
# custom-calls that XLA:CPU itself takes away or has a function for
_KNOWN_CALLS = ("AwsNeuron", "Sharding", "TopK", "annotate_device_placement", "lapack_", "xla.", "mhlo.")


def check_runnable(file: ModuleFile, ranks: int | None) -> None:
    """Make sure that ``file`` can run on ``ranks`` ranks (None: as many as it says).

    A file that does not say how many ranks it has gets them here.

    Raises:
        InputError: the first thing that stands in the way.
    """
    module = file.module
    set_world(file, ranks)
    if module.world > MOST_RANKS:
        raise InputError(f"{file.path}: it has {module.world} ranks, and one process here holds {MOST_RANKS} at most")
    if file.elided:
        raise InputError(f"{file.path}: constant %{file.elided[0]} has no numbers ({{...}})", ELIDED_REMEDY)
    _check_compiled(file)
    _check_opcodes(file.path, module)
    for finding in verify(module):
        raise InputError(f"{file.path}: {finding}", finding.remedy)


def _single_bits(shape: Shape) -> bool:
    return shape.dtype.bits == 1 and shape.dtype is not PRED


def _check_compiled(file: ModuleFile) -> None:
    for c in file.module.computations:
        for i in c.post_order():
            if i.opcode == "custom-call" and i.proto.custom_call_target.startswith("SPMD"):
                raise InputError(f"{file.path} is not partitioned yet: %{i.name} still cuts for ranks", DUMP_REMEDY)
            if i.opcode == "fusion":
                what = f"fusion %{i.name}"
            elif i.opcode == "custom-call" and not i.proto.custom_call_target.startswith(_KNOWN_CALLS):
                what = f"library call %{i.name} to {i.proto.custom_call_target}"
            elif any(leaf.tiled for leaf in i.shape.leaves()):
                what = f"device layout of %{i.name}"
            else:
                continue
            raise InputError(
                f"{file.path} is a module compiled for a device: it has the {what}, which nothing here can run",
                DUMP_REMEDY,
            )


def _check_opcodes(path: str, module: Module) -> None:
    found: Counter[str] = Counter()
    first: Instruction | None = None
    for i in module.instructions():
        if i.opcode == "rng":
            raise InputError(
                f"{path}: %{i.name} draws random numbers (rng), which no two runs have in common",
                "give them as a parameter, or draw them from a given state (rng-bit-generator)",
            )
        foreign = i.opcode in _FOREIGN or (i.opcode in (Kind.SEND, Kind.RECV) and i.proto.is_host_transfer)
        if foreign or any(s.dynamic for s in i.shape.leaves()):
            found[i.opcode if foreign else "dynamic shapes"] += 1
            first = first or i
    if found and first is not None:
        if set(found) == {"dynamic shapes"}:
            raise InputError(f"{path}: %{first.name} has a dynamic shape, which nothing here can run")
        names = ", ".join(f"{k} ({n})" for k, n in sorted(found.items()))
        raise InputError(
            f"{path}: XLA:CPU cannot run {names}; the first is %{first.name}",
            "run the module as it was before scheduling; `opt` and `inspect` work on this one",
        )
    for leaf in module.entry.root.shape.leaves():
        if not leaf.is_array:
            raise InputError(f"{path}: the module gives a {leaf.dtype.name}, and a run compares arrays", "leave it out")
    narrow = {s.dtype.name for i in module.instructions() for s in i.shape.leaves() if s.is_array and _single_bits(s)}
    if narrow:
        raise InputError(f"{path}: XLA:CPU has no arrays of {', '.join(sorted(narrow))}")
    parameters = module.entry.parameters
    for p in parameters:
        if not p.shape.is_array:
            raise InputError(f"{path}: parameter %{p.name} is a {p.shape}, and a run takes arrays", "flatten it")
