"""How many ranks a module has: what its file says, or what the user says for a file that does not."""

from __future__ import annotations

from crossrank.errors import InputError
from crossrank.hlo.collectives import kind_of
from crossrank.hlo.io import ModuleFile


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
    # ids are partitions where collectives have channels
    partitions = any(kind_of(i) is not None and i.proto.channel_id for i in file.module.instructions())
    key = "num_partitions" if partitions else "replica_count"
    file.module.config = config.with_fields(**{key: ranks})
