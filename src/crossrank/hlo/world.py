"""How many ranks a module has: what its file says, or what the user says for a file that does not."""

from __future__ import annotations

from collections.abc import Sequence

from crossrank.errors import InputError
from crossrank.hlo.collectives import kind_of
from crossrank.hlo.io import ModuleFile
from crossrank.hlo.module import Module


def set_world(file: ModuleFile, ranks: int | None) -> None:
    """Settle the number of ranks: what the file says, or ``ranks`` where it does not say."""
    config = file.module.config
    world = file.module.world
    if ranks is None or ranks == world:
        return
    if ranks < 1:
        raise InputError(f"--ranks {ranks}: there is no run on fewer than one rank")
    if config.says_ranks:
        raise InputError(
            f"{file.path} is a module for {world} ranks, not {ranks}",
            f"leave --ranks away, or give --ranks {world}",
        )
    _claim(file.module, ranks)


def set_program_world(files: Sequence[ModuleFile]) -> None:
    """Give each of several modules as many ranks as there are modules."""
    check_program_world(files)
    for file in files:
        if file.module.world != len(files):
            _claim(file.module, len(files))


def check_program_world(files: Sequence[ModuleFile]) -> None:
    """InputError where one of several modules is for another number of ranks than there are modules."""
    for file in files:
        if file.module.world not in (1, len(files)):
            raise InputError(
                f"{file.path} is a module for {file.module.world} ranks, and there are {len(files)} files",
                "give one file for each rank, the same one several times where they run the same",
            )


def _claim(module: Module, ranks: int) -> None:
    # ids are partitions where collectives have channels
    partitions = any(kind_of(i) is not None and i.proto.channel_id for i in module.instructions())
    key = "num_partitions" if partitions else "replica_count"
    module.config = module.config.with_fields(**{key: ranks})
