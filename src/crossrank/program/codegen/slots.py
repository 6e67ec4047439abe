"""In which order a kernel takes its parameters: tensors, contexts, scalars, and then its launch."""

from __future__ import annotations

from dataclasses import dataclass

from crossrank.errors import InputError
from crossrank.program.program import Function, where
from crossrank.program.properties import PROPERTIES
from crossrank.program.types import ANY_TENSOR, CommCtxType, DistTensorType, is_scalar, spelled


@dataclass(frozen=True)
class Slots:
    """The argument array of a kernel, as numbers of its parameters.

    Attributes:
        tensors: the parameters in the first slots.
        contexts: those behind; the i-th is the context of the i-th distributed tensor.
        scalars: those behind; the launch is in the slot after the last.
    """

    tensors: tuple[int, ...]
    contexts: tuple[int, ...]
    scalars: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The parameter in each slot but the launch's."""
        return (*self.tensors, *self.contexts, *self.scalars)


def slots_of(function: Function) -> Slots:
    """The slots of a kernel.

    Raises:
        InputError: a parameter that no kernel takes, or distributed tensors without their contexts.
    """
    params = function.params
    windows = sum(isinstance(p.type, DistTensorType) for p in params)
    contexts = tuple(n for n, p in enumerate(params) if isinstance(p.type, CommCtxType))
    if len(contexts) != windows:
        raise InputError(
            f"{where(function.op)}kernel {function.name} has {windows} distributed tensors among its parameters, and "
            f"{len(contexts)} contexts",
            f"run {PROPERTIES['DistTensorCtxMaterialized'].made_by} before its code is made",
        )
    tensors = tuple(n for n, p in enumerate(params) if isinstance(p.type, ANY_TENSOR))
    scalars = tuple(n for n, p in enumerate(params) if is_scalar(p.type))
    if strange := [p for p in params if not (isinstance(p.type, (*ANY_TENSOR, CommCtxType)) or is_scalar(p.type))]:
        raise InputError(
            f"{where(function.op)}kernel {function.name} takes {strange[0].name}, a {spelled(strange[0].type)}",
            "kernels take tensors and scalars",
        )
    return Slots(tensors, contexts, scalars)
