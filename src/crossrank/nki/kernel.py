"""``nki.jit``: a kernel, its launch grid, and what a call of it means."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

from crossrank.errors import InputError
from crossrank.instr.trace import current, name_of, tracing

ARCHITECTURES = {
    **dict.fromkeys(("trn1", "inf2", "gen2"), 20),
    **dict.fromkeys(("trn2", "gen3"), 30),
    **dict.fromkeys(("trn3", "gen4"), 40),
}
"""The architecture level of each target."""


def axes_of(grid: int | Sequence[int]) -> tuple[int, ...]:
    """A launch grid: how many programs there are along each axis."""
    axes = (grid,) if isinstance(grid, int) else tuple(grid)
    if not axes or any(not isinstance(n, int) or n < 1 for n in axes):
        raise InputError(f"a launch grid is a number of programs, or several, not {grid!r}")
    return axes


class JitKernel:
    """A kernel.

    Called in another kernel it is a part of that; called elsewhere it runs on one rank, as ``nki.simulate`` does.
    ``kernel[2]`` is the kernel with a launch grid.

    Attributes:
        function: its Python function.
        grid: the launch grid; None: it has none.
        platform_target: what it was written for, or empty.
    """

    def __init__(
        self, function: Callable[..., Any], grid: tuple[int, ...] | None = None, platform_target: str = ""
    ) -> None:
        if platform_target and platform_target not in ARCHITECTURES:
            raise InputError(
                f"there is no platform_target {platform_target!r}", f"there are {', '.join(ARCHITECTURES)}"
            )
        functools.update_wrapper(self, function)
        self.function = function
        self.grid = grid
        self.platform_target = platform_target

    @property
    def arch(self) -> int | None:
        """The architecture level that it was written for."""
        return ARCHITECTURES.get(self.platform_target)

    def __getitem__(self, grid: int | Sequence[int]) -> JitKernel:
        """The kernel on a launch grid: the number of programs along each axis."""
        return JitKernel(self.function, axes_of(grid), self.platform_target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the kernel returns."""
        if tracing():
            launched = tuple(a.extent for a in current().program_axes)
            if self.grid not in (None, launched):
                raise InputError(
                    f"{self} is called in a kernel of grid {list(launched)}",
                    "a kernel that another one calls runs on the grid of that one",
                )
            return self.function(*args, **kwargs)
        from crossrank.nki.simulation import simulate

        return simulate(self)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<kernel {name_of(self.function)}{'' if self.grid is None else list(self.grid)}>"


@overload
def jit(func: Callable[..., Any]) -> JitKernel: ...


@overload
def jit(func: None = None, mode: str = "auto", **kwargs: Any) -> Callable[[Callable[..., Any]], JitKernel]: ...


def jit(
    func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any
) -> JitKernel | Callable[[Callable[..., Any]], JitKernel]:
    """Make a kernel of a function: ``@nki.jit``, ``@nki.jit()`` or ``@nki.jit(platform_target="trn2")``.

    Of the options ``platform_target`` counts; ``mode`` and all that is for the vendor's compiler is taken and left.
    """
    target = str(kwargs.get("platform_target") or "")
    if func is None:
        return lambda function: JitKernel(function, platform_target=target)
    return JitKernel(func, platform_target=target)
