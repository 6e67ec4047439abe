"""Failures of passes made small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from crossrank.errors import InputError
from crossrank.hlo.execute.failure import extract_failure
from crossrank.hlo.execute.run import RunOptions
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Module
from crossrank.passes import parse_passes
from crossrank.remarks import Remarks
from tests.support import parse, reducer

CHAIN = "\n".join(
    ["  v0 = f32[8] parameter(0)"]
    + [f"  v{n} = f32[8] negate(v{n - 1})" for n in range(1, 12)]
    + ["  ar = f32[8] all-reduce(v11), replica_groups={}, channel_id=1, use_global_device_ids=true, to_apply=add_f32"]
    + ["  w0 = f32[8] add(ar, v3)"]
    + [f"  w{n} = f32[8] negate(w{n - 1})" for n in range(1, 12)]
    + ["  ROOT out = f32[8] add(w11, v0)"]
)


@dataclass(frozen=True)
class Wrong(HloPass):
    """Takes an all-reduce away."""

    name: ClassVar[str] = "wrong"

    def run(self, module: Module, remarks: Remarks) -> bool:
        found = [i for i in module.entry.post_order() if i.opcode == "all-reduce"]
        for i in found:
            i.replace_all_uses_with(i.operands[0])
            remarks.done(f"%{i.name}", "gone")
        return bool(found)


@dataclass(frozen=True)
class Raises(HloPass):
    """Cannot stand an all-reduce."""

    name: ClassVar[str] = "raises"

    def run(self, module: Module, remarks: Remarks) -> bool:
        for i in module.entry.post_order():
            if i.opcode == "all-reduce":
                raise KeyError(f"what is %{i.name}?")
        return False


@dataclass(frozen=True)
class Malformed(HloPass):
    """Gives an all-reduce another shape."""

    name: ClassVar[str] = "malformed"

    def run(self, module: Module, remarks: Remarks) -> bool:
        for i in module.entry.post_order():
            if i.opcode == "all-reduce":
                i.set_operands([i.operands[0], i.operands[0]])
                i.set_called(())
                remarks.done(f"%{i.name}", "two operands")
        return True


@pytest.mark.parametrize(
    ("culprit", "said"),
    [
        (Wrong(), "values differ after wrong: output 0, rank 0"),
        (Raises(), "raises raises KeyError: 'what is %ar?'"),
        (Malformed(), "XLA refuses what malformed makes"),
    ],
)
def test_what_fails_is_cut_down(culprit: HloPass, said: str) -> None:
    file = parse(CHAIN, reducer())
    tried: list[str] = []
    small, how = extract_failure(file, [culprit], culprit.name, RunOptions(iters=0), tried.append)
    assert said in how
    assert "all-reduce" in [i.opcode for i in small.entry]
    assert len(small.entry.post_order()) <= 5
    assert len(tried) == 2
    assert len(file.module.entry.post_order()) > 20


def test_a_pass_that_does_not_fail_is_said() -> None:
    file = parse(CHAIN, reducer())
    passes = parse_passes("convert-collectives-to-custom-call")
    with pytest.raises(InputError, match="does not fail"):
        extract_failure(file, passes, passes[0].name, RunOptions(iters=0), lambda _: None)
    with pytest.raises(InputError, match="not among the passes"):
        extract_failure(file, passes, "inline-calls", RunOptions(iters=0), lambda _: None)
