"""The build folder: what was made of a program, where people who know the language's compiler look for it.

<out>/orchestration/host_orch.mlir                  a program with a HOST orchestrator
<out>/next_levels/<chip function>/…                 for each chip function: what <out> is for one alone

<out>/kernel_config.py                              its kernels, as plain Python data
<out>/orchestration/<chip function>.mlir
<out>/kernels/{aiv,aic}/<kernel>.cpp
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from crossrank.errors import InputError
from crossrank.files import write_bytes
from crossrank.program.analysis.launches import core_type
from crossrank.program.codegen.kernel import kernel_source
from crossrank.program.dialect.calls import CallOp
from crossrank.program.kinds import Direction
from crossrank.program.program import Function, Program
from crossrank.program.types import ShapedType

_DIRECTIONS = {Direction.In: "IN", Direction.Out: "OUT", Direction.InOut: "INOUT"}

_CONFIG = """\
from pathlib import Path

_ROOT_DIR = Path(__file__).parent

RUNTIME_CONFIG = {{"runtime": "tensormap_and_ringbuffer", "aicpu_thread_num": 0}}

ORCHESTRATION = {{
    "source": str(_ROOT_DIR / "orchestration" / "{name}.mlir"),
    "function_name": "{name}",
    "signature": {signature},
}}

KERNELS = [{kernels}]
"""

_KERNEL = """
    {{
        "func_id": {number},
        "name": "{name}",
        "source": str(_ROOT_DIR / "kernels" / "{core}" / "{name}.cpp"),
        "core_type": "{core}",
        "signature": {signature},
    }},"""


def write_folder(program: Program, out: Path) -> None:
    """Write the build folder of a program whose passes have run; files that are there are overwritten.

    The same program gives the same bytes.

    Raises:
        InputError: a file cannot be written, or a kernel has no code.
    """
    chips = program.entries
    if (host := program.entry).is_host:
        _write(out / "orchestration" / "host_orch.mlir", _text(program, host))
        chips = [f for f in _called(program, host) if f.is_chip]
    elif len(chips) == 1:
        _write_level(program, chips[0], out)
        return
    for chip in chips:
        _write_level(program, chip, out / "next_levels" / chip.name)


def _write_level(program: Program, chip: Function, out: Path) -> None:
    """What is made of a chip function."""
    kernels = [f for f in _called(program, chip) if f.is_kernel and f.has_body]
    _write(out / "orchestration" / f"{chip.name}.mlir", _text(program, chip))
    for kernel in kernels:
        _write(out / "kernels" / core_type(kernel) / f"{kernel.name}.cpp", kernel_source(program, kernel.name))
    listed = [
        _KERNEL.format(number=n, name=k.name, core=core_type(k), signature=_signature(k)) for n, k in enumerate(kernels)
    ]
    text = _CONFIG.format(name=chip.name, signature=_signature(chip), kernels="".join(listed) + "\n" * bool(listed))
    _write(out / "kernel_config.py", text)


def _called(program: Program, caller: Function) -> list[Function]:
    """What a function calls, and those in turn, in the program's order."""
    found = {caller.name}
    todo = [caller]
    while todo:
        for name in _callees(todo.pop()):
            if name not in found:
                found.add(name)
                todo.append(program.function(name))
    return [f for f in program.functions if f.name in found - {caller.name}]


def _callees(function: Function) -> Iterator[str]:
    if function.has_body:
        yield from (op.function for op in function.op.walk() if isinstance(op, CallOp))


def _signature(function: Function) -> str:
    named: Iterable[str] = (
        _DIRECTIONS[p.direction] if isinstance(p.type, ShapedType) else "SCALAR" for p in function.params
    )
    return "[" + ", ".join(f'"{d}"' for d in named) + "]"


def _text(program: Program, function: Function) -> str:
    """A function alone."""
    return Program.of(program.name, [Function(function.op.clone())]).text()


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path.parent}: {error.strerror}") from None
    write_bytes(str(path), text.encode())
