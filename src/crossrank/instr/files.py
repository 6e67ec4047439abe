"""A kernel as a file gives it: traced from Python or read from its text, with inputs and what is expected of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossrank.arrays import Array, by_rank, check_room, draw, load_arrays
from crossrank.errors import InputError, counted
from crossrank.instr.inventory import written_inputs
from crossrank.instr.program import Kernel, parse_kernel

ByRank = Sequence[Sequence[Array]]
"""For each rank its arrays."""


@dataclass(frozen=True)
class KernelFile:
    """A kernel and how it came.

    Attributes:
        path: the file's name as the user gave it (``-``: standard input).
        kernel: the kernel, for as many ranks as it is to run on.
        returned: what outputs are taken for by its Python: their shapes and element types; None: what they are.
        returns: what it returns that is no tensor, in words; empty where it returns one, or nothing.
        inputs: for each rank its inputs in the kernel's order; None: they are to be drawn.
        expected: from the inputs the outputs that the file's author expects; None: the file does not say.
    """

    path: str
    kernel: Kernel
    inputs: ByRank | None = None
    expected: Callable[[ByRank], ByRank] | None = None
    returned: Sequence[tuple[tuple[int, ...], np.dtype[Any]]] | None = None
    returns: str = ""


def kernel_from_text(
    data: bytes, path: str, ranks: int | None = None, lnc: int | None = None, verify: bool = True
) -> KernelFile:
    """The kernel that instruction text is.

    Args:
        data: what the file holds.
        path: its name.
        ranks: must agree with what the text says; needed where it does not say.
        lnc: must agree, too; by default as many as it has programs.
        verify: raise an InputError where something cannot be.
    """
    kernel = parse_kernel(data.decode(), path)
    for given, key, option, what in ((ranks, "world_size", "ranks", "rank"), (lnc, "lnc", "lnc", "core")):
        said = kernel.said(key)
        if said is None and given is not None:
            kernel.say(key, given)
        elif given not in (None, said):
            raise InputError(
                f"{path} is a kernel for {counted(said or 0, what)}, not {given}",
                f"leave --{option} away, or give --{option} {said}",
            )
    if kernel.said("world_size") is None:
        raise InputError(f"{path} does not say how many ranks it runs on", "say it: --ranks N")
    if verify:
        try:
            kernel.verify()
        except InputError as error:
            line = line_of(error.what, data.decode())
            raise InputError(f"{path}{line}: {error.what}", error.remedy) from None
    return KernelFile(path, kernel)


def line_of(what: str, text: str) -> str:
    """``:line`` of the instruction or tensor of which a message about a kernel's text speaks; empty where none does."""
    core = re.match(r"core (\d+): ", what)
    start = re.search(rf"instr\.program\b.* on {core[1]}\b", text) if core else None
    label = re.match(r"(?:core \d+: )?(?:the shared tensor )?([\w.-]+)", what)
    found = re.compile(rf'"{re.escape(label[1])}"').search(text, start.start() if start else 0) if label else None
    return f":{text.count(chr(10), 0, found.start()) + 1}" if found else ""


def drawn_inputs(kernel: Kernel, seed: int) -> ByRank:
    """Inputs by rank, from a seed: floats normal with deviation 0.1, integers below 8.

    Each rank has its own, but for single integers and predicates, which may decide on jumps.
    """
    rng = np.random.default_rng(seed)
    columns = []
    for tensor in kernel.inputs():
        type = tensor.type
        check_room(
            type.size * 8 * kernel.world_size, f"input {tensor.fields.name} of {counted(kernel.world_size, 'rank')}"
        )
        alike = type.size == 1 and not (type.dtype.is_float or type.dtype.is_complex)
        if alike:
            columns.append([draw(rng, type.shape, type.dtype)] * kernel.world_size)
        else:
            columns.append([draw(rng, type.shape, type.dtype) for _ in range(kernel.world_size)])
    return [[column[rank] for column in columns] for rank in range(kernel.world_size)]


def written_only(kernel: Kernel) -> list[int]:
    """The positions of the inputs that the kernel writes and does not return: they count as outputs."""
    return sorted(written_inputs(kernel) - {t.fields.input for t in kernel.outputs()})


def given_inputs(kernel: Kernel, path: str) -> tuple[ByRank, dict[int, list[Array]]]:
    """Inputs by rank from the arrays ``p0, p1, …`` of an ``.npz``, and the outputs ``o0, o1, …`` that it has.

    Inputs that the kernel writes count as outputs behind those that it returns.

    Raises:
        InputError: one is missing, or has another shape or type than the kernel says.
    """
    arrays = load_arrays(path)
    found: dict[str, list[Array]] = {}
    results = [*kernel.outputs(), *(kernel.inputs()[n] for n in written_only(kernel))]
    for letter, tensors in (("p", kernel.inputs()), ("o", results)):
        for n, tensor in enumerate(tensors):
            if letter == "p" or f"o{n}" in arrays:
                type = tensor.type
                found[f"{letter}{n}"] = by_rank(arrays, f"{letter}{n}", type.shape, type.dtype, kernel.world_size, path)
        stray = [k for k in arrays if k[:1] == letter and k[1:].isdecimal() and int(k[1:]) >= len(tensors)]
        if stray:
            has = (
                "takes " + counted(len(tensors), "input")
                if letter == "p"
                else "gives " + counted(len(tensors), "output")
            )
            raise InputError(f"{path} has {sorted(stray)[0]}, but the kernel {has}")
    inputs = [[found[f"p{n}"][rank] for n in range(len(kernel.inputs()))] for rank in range(kernel.world_size)]
    return inputs, {int(k[1:]): v for k, v in found.items() if k[0] == "o"}
