"""What a function, a parameter, a signal and a buffer can be: the enums of the program level.

Members have the numbers that compiled kernels see where they reach them; those are append-only.
"""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum

from crossrank.collective import kinds as collective


class FunctionType(StrEnum):
    """What a function is compiled to."""

    Opaque = "Opaque"
    Orchestration = "Orchestration"
    InCore = "InCore"
    AIC = "AIC"
    AIV = "AIV"
    Group = "Group"
    Spmd = "Spmd"
    Inline = "Inline"
    Graph = "Graph"

    @property
    def is_kernel(self) -> bool:
        """Whether it runs on cores: its body becomes C++."""
        return self in (FunctionType.InCore, FunctionType.AIC, FunctionType.AIV)

    @property
    def orchestrates(self) -> bool:
        """Whether its body submits tasks: such a function has level CHIP and role Orchestrator."""
        return self in (FunctionType.Orchestration, FunctionType.Graph)


class Level(StrEnum):
    """Where a function runs, from one core to clusters of hosts."""

    AIV = "AIV"
    AIC = "AIC"
    CORE_GROUP = "CORE_GROUP"
    CHIP_DIE = "CHIP_DIE"
    CHIP = "CHIP"
    HOST = "HOST"


class Role(StrEnum):
    """What a function of levels CHIP and HOST does: say what is to be done, or do it."""

    Orchestrator = "Orchestrator"
    SubWorker = "SubWorker"


class Direction(StrEnum):
    """What a function does to a parameter."""

    In = "In"
    Out = "Out"
    InOut = "InOut"

    @property
    def writes(self) -> bool:
        """Whether the function writes it."""
        return self is not Direction.In


class ArgDirection(StrEnum):
    """What a call does to an argument, as the runtime's ordering of tasks needs it."""

    Scalar = "Scalar"
    Input = "Input"
    InOut = "InOut"
    OutputExisting = "OutputExisting"
    NoDep = "NoDep"

    @property
    def reads(self) -> bool:
        """Whether what was there before matters to the task."""
        return self in (ArgDirection.Input, ArgDirection.InOut)

    @property
    def writes(self) -> bool:
        """Whether others must wait for what the task makes of it."""
        return self in (ArgDirection.InOut, ArgDirection.OutputExisting)


class MemorySpace(StrEnum):
    """Where a tile lies."""

    DDR = "DDR"
    Vec = "Vec"
    Mat = "Mat"
    Left = "Left"
    Right = "Right"
    Acc = "Acc"


class TensorLayout(StrEnum):
    """In which order a tensor's elements lie in memory."""

    ND = "ND"
    DN = "DN"
    NZ = "NZ"


class PadValue(StrEnum):
    """What a tile is filled with where it is not valid."""

    zero = "zero"
    max = "max"
    min = "min"


class NotifyOp(IntEnum):
    """What a notify does to a cell."""

    AtomicAdd = 0
    Set = 1


class WaitCmp(IntEnum):
    """When a wait is over."""

    Eq = 0
    Ge = 1


class AtomicType(IntEnum):
    """How a remote write meets what is there."""

    None_ = 0
    Add = 1


class ReduceOp(IntEnum):
    """How a collective combines."""

    Sum = 0
    Max = 1
    Min = 2
    Prod = 3

    @property
    def collective(self) -> collective.ReduceOp:
        """The reduce op as the collectives of all doors call it."""
        ops = collective.ReduceOp
        return (ops.ADD, ops.MAXIMUM, ops.MINIMUM, ops.MULTIPLY)[self]


def member(kind: type[Enum], name: str) -> Enum:
    """The member of that name; ValueError where there is none."""
    try:
        return kind[name]
    except KeyError:
        raise ValueError(f"{kind.__name__} has no {name}: it has {', '.join(kind.__members__)}") from None
