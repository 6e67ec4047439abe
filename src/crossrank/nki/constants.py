"""``nki.isa.constants``: engines, modes and generations, by their public names."""

from __future__ import annotations

from enum import Enum, IntEnum


class engine(Enum):
    """An engine; ``unknown``: the instruction's own."""

    tensor = "tensor"
    vector = "vector"
    scalar = "scalar"
    gpsimd = "gpsimd"
    dma = "dma"
    sync = "sync"
    unknown = ""


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


class reduce_cmd(Enum):
    """What becomes of a reduction's register."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who makes a DMA queue's descriptors: a hint."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What an index outside of its tensor is: an error, or a row left out."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """How the tensor engine is driven."""

    none = 0
    double_row = 1


class dma_engine(Enum):
    """Who moves the tiles that cores exchange."""

    dma = 0
    gpsimd_dma = 1


class nc_version(IntEnum):
    """A generation of cores."""

    gen2 = 2
    gen3 = 3
    gen4 = 4
