"""Runs a kernel on N ranks of one or several cores, without hardware.

Cooperative: a core runs until it must wait, then the next one. Who waits for whom is always known, so that a deadlock
is found exactly and at once, with the instructions and source lines of all who wait.
"""

from crossrank.instr.interpret.machine import Machine, run_kernel

__all__ = ["Machine", "run_kernel"]
