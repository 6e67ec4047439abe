"""Programs of many ranks: HOST, CHIP and InCore functions over windows and signals.

from crossrank.program import DistributedConfig, compile

compiled = compile(program, distributed_config=DistributedConfig(device_ids=[0, 1]))
compiled(inputs, outputs)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossrank.program.compiled import CompiledProgram, DistributedConfig, DistributedWorker, RunConfig, compile

__all__ = ["CompiledProgram", "DistributedConfig", "DistributedWorker", "RunConfig", "compile"]


def __getattr__(name: str) -> Any:  # who reads a program need not load what runs it
    if name in __all__:
        return getattr(import_module("crossrank.program.compiled"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
