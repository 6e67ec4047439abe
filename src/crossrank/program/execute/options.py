"""What a run may be told of the machine that it stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RuntimeOptions:
    """The machine and the patience of a run.

    Attributes:
        aiv_cores: vector cores of a device; a launch that is to be resident at once has no more blocks.
        aic_cores: cube cores of a device (and clusters of cores), for launches of kernels that multiply matrices.
        adds_bf16: its cores add bf16 to what is there as one step.
        limit_s: seconds after which a run is given up in which nothing is done: no task or dispatch begins or ends, and
            no signal changes.
    """

    aiv_cores: int = 48
    aic_cores: int = 24
    adds_bf16: bool = True
    limit_s: float = 60.0
