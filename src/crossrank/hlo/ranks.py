"""The rank of whoever runs an instruction, as a value."""

from __future__ import annotations

from crossrank.collective.dtypes import U32
from crossrank.hlo.build import scalar
from crossrank.hlo.module import Computation, Instruction, Module
from crossrank.hlo.shape import Shape

_U32 = Shape(U32, (), ())


class Ranks:
    """The rank of the device that runs an instruction, as a value in each computation that asks.

    For a module of partitions that becomes one of replicas only: a rank is a replica there.
    """

    def __init__(self, num_partitions: int, replica_count: int) -> None:
        self.num_partitions = num_partitions
        self.replica_count = replica_count
        self._rank: dict[Computation, Instruction] = {}

    def rank(self, c: Computation) -> Instruction:
        """The flattened rank, ``u32[]``."""
        if c not in self._rank:
            self._rank[c] = c.add("replica-id", _U32, name="rank")
        return self._rank[c]

    def replica(self, c: Computation) -> Instruction:
        """The replica of the rank, ``u32[]``."""
        if self.num_partitions == 1:
            return self.rank(c)
        return self._arithmetic(c, "divide") if self.replica_count > 1 else scalar(c, 0, U32)

    def partition(self, c: Computation) -> Instruction:
        """The partition of the rank, ``u32[]``."""
        if self.replica_count == 1:
            return self.rank(c)
        return self._arithmetic(c, "remainder") if self.num_partitions > 1 else scalar(c, 0, U32)

    def _arithmetic(self, c: Computation, opcode: str) -> Instruction:
        return c.add(opcode, _U32, [self.rank(c), scalar(c, self.num_partitions, U32)])

    def replace_ids(self, module: Module) -> None:
        """Compute what replica-id and partition-id were from the rank, everywhere."""
        for c in module.computations:
            ids = [i for i in c.post_order() if i.opcode in ("partition-id", "replica-id")]
            for i in ids:
                new = self.partition(c) if i.opcode == "partition-id" else self.replica(c)
                if new is not i:
                    i.replace_all_uses_with(new)
            for i in ids:
                if not i.users and not i.is_root:
                    c.remove(i)
