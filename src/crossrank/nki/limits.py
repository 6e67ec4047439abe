"""What the hardware's engines take: the documented limits, each with the text that refuses what is beyond it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from crossrank.errors import InputError
from crossrank.instr.kinds import PARTITIONS, Space
from crossrank.instr.tensors import View

STATIONARY_FREE = 128
MOVING_FREE = 512
PSUM_BYTES = 16 * 1024
"""PSUM of one partition: 8 banks of 2 KiB."""
SBUF_BYTES = {20: 192 * 1024, 30: 224 * 1024, 40: 256 * 1024}
"""SBUF of one partition, by architecture level."""
SBUF_RESERVED = 16 * 1024
"""Of that, what kernels do not count on."""
SEARCHED = (8, 16384)
"""How few and how many elements of a partition are searched."""
DMA_SOURCES = 16


class NkiValidationError(InputError):
    """A limit of the hardware is exceeded."""


def ask(holds: object, what: str, remedy: str = "") -> None:
    """Raise a NkiValidationError where something does not hold."""
    if not holds:
        raise NkiValidationError(what, remedy)


def free_size(view: View) -> int:
    """The elements of a partition."""
    return math.prod(view.shape[1:])


def tensor_shape(shape: Sequence[int], itemsize: int, space: Space, arch: int) -> None:
    """A tensor of SBUF or PSUM has at most 128 partitions, and fits there."""
    if space.is_hbm:
        return
    ask(shape, f"a tensor in {space} has at least one dimension, the partitions")
    ask(shape[0] <= PARTITIONS, f"partition dimension {shape[0]} exceeds maximum {PARTITIONS}")
    size, room = math.prod(shape[1:]) * itemsize, PSUM_BYTES if space is Space.PSUM else SBUF_BYTES[arch]
    ask(size <= room, f"{size} bytes a partition exceed the {room} that {space} has")


def on_chip(function: str, **views: View) -> None:
    """Operands of an engine lie in SBUF or PSUM and have at most 128 partitions."""
    for name, view in views.items():
        ask(
            not view.buffer.is_hbm,
            f"{function} {name} lies in {view.buffer}, and the engines reach SBUF and PSUM only",
            "copy it there by nisa.dma_copy",
        )
        ask(
            not view.shape or view.shape[0] <= PARTITIONS,
            f"{function} {name} partition dimension {view.shape[0] if view.shape else 0} exceeds maximum {PARTITIONS}",
        )


def lies_in(function: str, *spaces: Space, **views: View) -> None:
    """Operands that must lie in certain spaces."""
    for name, view in views.items():
        ask(view.buffer in spaces, f"{function} {name} must lie in {' or '.join(spaces)}, not in {view.buffer}")


def dma(function: str, **views: View) -> None:
    """DMA queues reach HBM and SBUF."""
    for name, view in views.items():
        ask(
            view.buffer is not Space.PSUM,
            f"{function} {name} lies in psum, which DMA does not reach",
            "copy it to SBUF by nisa.tensor_copy",
        )


def matmul(dst: View, stationary: View, moving: View, arch: int, rows: int) -> None:
    """Sizes, spaces and types of the tensor engine; ``rows`` free dimensions are contracted with the partitions."""
    lies_in("nc_matmul", Space.SBUF, stationary=stationary, moving=moving)
    lies_in("nc_matmul", Space.PSUM, dst=dst)
    on_chip("nc_matmul", stationary=stationary, moving=moving, dst=dst)
    ask(
        stationary.shape[:1] == moving.shape[:1],
        f"nc_matmul contracts the partitions, and stationary has {stationary.shape[0]} and moving {moving.shape[0]}",
    )
    for name, view, most in (("stationary", stationary, STATIONARY_FREE), ("moving", moving, MOVING_FREE)):
        size = free_size(view) // rows
        if name == "moving" and arch >= 40:
            most = PSUM_BYTES // 4
        ask(size <= most, f"nc_matmul {name} free dimension {size} exceeds maximum {most}")
    wide = [v.element.name in ("f32", "f64") for v in (stationary, moving)]
    ask(
        wide[0] == wide[1],
        f"nc_matmul stationary of {stationary.element} and moving of {moving.element}: float32 goes with float32 only",
    )


def transpose(dst: View, data: View, engine: str) -> None:
    """The tensor engine transposes 128 x 128 from SBUF to PSUM, the vector engine 32 x 32 anywhere on chip."""
    on_chip("nc_transpose", dst=dst, data=data)
    most = 32 if engine == "vector" else 128
    if engine != "vector":
        lies_in("nc_transpose", Space.SBUF, data=data)
        lies_in("nc_transpose", Space.PSUM, dst=dst)
    ask(
        max(data.shape[0], free_size(data)) <= most,
        f"nc_transpose data of shape {list(data.shape)} exceeds {most} x {most}",
    )
    same_type("nc_transpose", dst=dst, data=data)


def same_type(function: str, **views: View) -> None:
    """Operands of one element type."""
    types = [v.element for v in views.values()]
    ask(
        len(set(types)) == 1,
        f"{function}: {' and '.join(views)} must have one element type, not {' and '.join(t.name for t in types)}",
    )


def searched(function: str, **views: View) -> None:
    """So many elements of a partition are searched."""
    on_chip(function, **views)
    least, most = SEARCHED
    for name, view in views.items():
        ask(
            least <= free_size(view) <= most,
            f"{function} {name} has {free_size(view)} elements a partition, and takes {least} to {most}",
        )
