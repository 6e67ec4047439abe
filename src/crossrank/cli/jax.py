"""`crossrank jax`: an unmodified JAX script, its collectives rewritten and on our kernels."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from crossrank.bridge import script
from crossrank.cli import CHOSEN_LOG_LEVEL, XLA_LOG_LEVEL
from crossrank.cli.options import Commands, add_passes, chosen_passes, count, seconds
from crossrank.errors import InputError
from crossrank.hlo.module import Module
from crossrank.passes import check_door

RANKS = 8
_DEVICES = "--xla_force_host_platform_device_count"


def add(commands: Commands) -> None:
    """Add the command."""
    p = commands.add_parser(
        "jax",
        help="run an unmodified JAX script with its collectives on our kernels",
        description="Run SCRIPT as Python does, on N CPU devices, with the collectives of everything that it jits "
        "rewritten and on our kernels. What ran where is said at the end, on standard error.",
        usage="crossrank jax [options] SCRIPT ...",
    )
    p.add_argument(
        "--ranks",
        type=count,
        metavar="N",
        help=f"CPU devices, for a script that does not say (default: what XLA_FLAGS says, else {RANKS})",
    )
    p.add_argument("--report", metavar="JSON", help="write what ran where to this file")
    p.add_argument(
        "--limit", type=seconds, default=60.0, metavar="S", help="seconds a rank may wait for another (default: 60)"
    )
    add_passes(p, default="none")
    p.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="the script and its own arguments")
    p.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Become the script: its exit status is the command's."""
    own = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not own:
        raise InputError("crossrank jax needs a script", "crossrank jax [options] SCRIPT ...")
    path = Path(own[0])
    if path.is_dir():
        raise InputError(f"{path} is a folder", "name the script in it")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if arguments.ranks == 0:
        raise InputError("--ranks 0: there is no run on fewer than one rank")
    if arguments.report is not None and not Path(arguments.report).absolute().parent.is_dir():
        raise InputError(f"cannot write {arguments.report}: there is no such folder")
    chosen = chosen_passes(arguments)
    check_door(chosen, Module.TITLE)
    passes = ",".join(map(str, chosen))
    command = script.command(
        own[0],
        own[1:],
        passes=passes,
        limit=arguments.limit,
        report=arguments.report,
        remarks=arguments.remarks,
    )
    sys.stdout.flush()
    os.execve(command[0], command, _environment(arguments.ranks, arguments.limit))


def _environment(ranks: int | None, limit: float) -> dict[str, str]:
    env = dict(os.environ)
    flags = env.get("XLA_FLAGS", "").split()
    if ranks is not None or ("JAX_NUM_CPU_DEVICES" not in env and not any(f.startswith(_DEVICES) for f in flags)):
        env.pop("JAX_NUM_CPU_DEVICES", None)
        flags.append(f"{_DEVICES}={ranks or RANKS}")
    # XLA's own limits for what stays with it come after ours, so that ours can say who did not arrive
    for stage, after in (("warn_stuck", int(limit) + 2), ("terminate", 3)):
        name = f"--xla_cpu_collective_call_{stage}_timeout_seconds"
        if not any(f.startswith(name) for f in flags):
            flags.append(f"{name}={after}")
    env["XLA_FLAGS"] = " ".join(flags)
    env["JAX_PLATFORMS"] = "cpu"
    if CHOSEN_LOG_LEVEL is None:
        env.pop(XLA_LOG_LEVEL, None)
    return env
