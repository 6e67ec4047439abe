"""Collectives of a JAX program on our kernels: ``import crossrank.jax; crossrank.jax.install()``.

The program stays as it is. What it compiles for the CPU devices of its process from then on, with `jax.jit`,
`jax.shard_map` or `jax.pmap`, has the collectives that our kernels serve served by them.
"""

from crossrank.bridge.hook import hook, install, uninstall
from crossrank.bridge.hook_report import Report

__all__ = ["Report", "hook", "install", "uninstall"]
