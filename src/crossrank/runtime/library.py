"""The native half of the runtime as one shared library, built on first use."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from crossrank.kernels.compile import Unit, build, load
from crossrank.kernels.render import INCLUDE

HERE = Path(__file__).parent
_SOURCES = (
    *("machine.cc", "pool.cc", "elastic.cc", "threads.cc", "bodies.cc"),
    *("tasks.cc", "tasks_fabric.cc", "tasks_stuck.cc", "tasks_interface.cc"),
)

UNIT = Unit(
    name="runtime",
    source="".join(f'#include "{source}"\n' for source in _SOURCES),
    includes=(HERE, INCLUDE),
    flags=("-O2",),
)


@cache
def library() -> ctypes.CDLL:
    """The library, loaded so that later ones find its symbols: there is one pool of threads in a process."""
    return load(build(UNIT), ctypes.RTLD_GLOBAL)
