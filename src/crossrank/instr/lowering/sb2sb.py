"""Which copies between the cores of a rank the GPSIMD engine can do: from SBUF to SBUF, and small."""

from __future__ import annotations

from crossrank.instr.kinds import MULTI_CORE_ARCH
from crossrank.instr.lowering.places import bytes_per_row
from crossrank.instr.operands import AccessOp
from crossrank.instr.types import TensorType

MAX_BYTES_PER_PARTITION = 1024
CORES = 2
BASES = (0, 32, 64, 96)
"""The partitions at which an engine's access may begin."""


def incompatibility(
    src: AccessOp | None,
    dst: AccessOp | None,
    *,
    lnc: int,
    arch: int = 40,
    max_bytes: int = MAX_BYTES_PER_PARTITION,
) -> str | None:
    """Why a copy to the other core cannot be done by GPSIMD; None where it can.

    Args:
        src: what is read.
        dst: what is written, on the other core.
        lnc: cores of a rank.
        arch: the architecture level.
        max_bytes: the limit that the pass was given, beside the engine's own; bytes per partition, with each
            element padded to 4.
    """
    if lnc != CORES:
        return f"a rank has {lnc} cores, not {CORES}"
    if src is None or dst is None:
        return "an operand is missing"
    both = (src, dst)
    for access in both:
        if (base := _base(access)) not in BASES:
            return f"it begins at partition {base}, not at {', '.join(map(str, BASES))}"
    for access in both:
        if len(access.type.shape) not in range(2, 6):
            return f"it has {len(access.type.shape)} dimensions, not 2 to 5"
    elements = [_elements_per_partition(a.type) for a in both]
    if elements[0] != elements[1]:
        return f"{elements[0]} elements per partition are sent, {elements[1]} received"
    if src.type.dtype is not dst.type.dtype:
        return f"{src.type.dtype.name} is sent, {dst.type.dtype.name} received"
    for access in both:
        if access.type.space != "sbuf":
            return f"{access.of.fields.name} lies in {access.type.space}, not in sbuf"
    for access in both:
        if not _is_physical(access):
            return f"the pattern on {access.of.fields.name} does not go partition by partition"
    size = effective_bytes(src.type)
    if size > MAX_BYTES_PER_PARTITION:
        return f"{size} bytes per partition (4 or more an element) are more than {MAX_BYTES_PER_PARTITION}"
    if size > max_bytes:
        return f"{size} bytes per partition (4 or more an element) are more than the {max_bytes} asked for"
    if arch < MULTI_CORE_ARCH:
        return f"the architecture level is {arch}, not {MULTI_CORE_ARCH} or more"
    return None


def effective_bytes(type: TensorType) -> int:
    """Bytes per partition, as the engine counts them: an element takes at least 4."""
    return _elements_per_partition(type) * max(type.dtype.itemsize, 4)


def _elements_per_partition(type: TensorType) -> int:
    return type.size // type.shape[0] if type.shape[0] else 0


def _base(access: AccessOp) -> int:
    row = bytes_per_row(access.of.type) if access.of.type.space.has_partitions else 0
    return access.fields.offset * access.type.dtype.itemsize // row if row else 0


def _is_physical(access: AccessOp) -> bool:
    """Whether it goes over partitions with its first dimension, stays within each with the others, and is static."""
    (step, partitions), *free = access.fields.pattern
    row, size = bytes_per_row(access.of.type), access.type.dtype.itemsize
    start = access.fields.offset * size % row if row else 0
    reach = sum(stride * (extent - 1) for stride, extent in free if extent)
    steps_fit = partitions == 1 or (step > 0 and step * size % row == 0)
    return (
        access.is_static and steps_fit and all(stride >= 0 for stride, _ in free) and start + (reach + 1) * size <= row
    )
