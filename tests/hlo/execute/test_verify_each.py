"""`run --verify-each`: the first pass that changes values is named, with output, rank and element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from crossrank.hlo.execute.run import RunOptions, run_module, run_variants
from crossrank.hlo.hlo_pass import HloPass
from crossrank.hlo.module import Module
from crossrank.passes import parse_passes, pipeline
from crossrank.remarks import Remarks
from tests.support import parse, reducer

FLAGS = "replica_groups={}, channel_id=1, use_global_device_ids=true"
ENTRY = f"""
  p = f32[8] parameter(0)
  ar = f32[8] all-reduce(p), {FLAGS}, to_apply=add_f32
  ag = f32[64] all-gather(ar), dimensions={{0}}, {FLAGS}
  ROOT out = (f32[8], f32[64]) tuple(ar, ag)"""


@dataclass(frozen=True)
class Negate(HloPass):
    """Puts a negation behind an all-gather: wrong, and only in output 1."""

    name: ClassVar[str] = "negate"

    def run(self, module: Module, remarks: Remarks) -> bool:
        ag = next(i for i in module.entry.post_order() if i.opcode == "all-gather")
        users = list(ag.users)
        new = module.entry.add("negate", ag.shape, [ag])
        for u in users:
            u.replace_operand(ag, new)
        return True


@dataclass(frozen=True)
class Refused(HloPass):
    """Makes what XLA:CPU cannot compile."""

    name: ClassVar[str] = "refused"

    def run(self, module: Module, remarks: Remarks) -> bool:
        root = module.entry.root
        call = module.entry.add(
            "custom-call",
            root.operands[0].shape,
            [root.operands[0]],
            edit=lambda p: setattr(p, "custom_call_target", "?"),
        )
        root.set_operands([call, root.operands[1]])
        return True


@dataclass(frozen=True)
class Undo(HloPass):
    """Takes `refused` back."""

    name: ClassVar[str] = "undo"

    def run(self, module: Module, remarks: Remarks) -> bool:
        root = module.entry.root
        root.set_operands([root.operands[0].operands[0], root.operands[1]])
        return True


def test_every_pass_that_changes_something_is_a_stage() -> None:
    passes = [*parse_passes("inline-calls"), *pipeline("default")]
    report = run_module(parse(ENTRY, reducer()), passes, RunOptions(iters=0, verify_each=True))
    assert report.equal
    assert [s.spec for s in report.stages] == [str(passes[-1])]
    assert all(s.exact for s in report.stages)
    assert report.culprit is None
    assert report.as_dict()["verify_each"]["first"] is None


def test_the_first_pass_that_changes_values_is_named() -> None:
    passes = [Negate(), *parse_passes("convert-collectives-to-custom-call")]
    report = run_module(parse(ENTRY, reducer()), passes, RunOptions(iters=0, verify_each=True))
    assert not report.equal
    assert report.culprit == "negate"
    first, second = report.stages
    assert (first.equal, second.equal) == (False, False)
    assert first.first_difference is not None
    assert {k: first.first_difference[k] for k in ("output", "rank", "element")} == {
        "output": 1,
        "rank": 0,
        "element": [0],
    }
    assert report.as_dict()["verify_each"]["passes"][0]["spec"] == "negate"


def test_a_stage_that_xla_refuses_is_named_and_the_rest_goes_on() -> None:
    report = run_module(parse(ENTRY, reducer()), [Refused(), Undo()], RunOptions(iters=0, verify_each=True))
    assert report.culprit == "refused"
    assert "XLA:CPU cannot compile the module after refused" in report.stages[0].error
    assert report.stages[1].exact


def test_without_it_there_are_no_stages() -> None:
    report = run_module(parse(ENTRY, reducer()), pipeline("default"), RunOptions(iters=0))
    assert report.stages == []
    assert "verify_each" not in report.as_dict()


@pytest.mark.parametrize("iters", [0, 3])
def test_several_variants_share_one_original(iters: int) -> None:
    variants = [parse_passes(""), [Negate()], pipeline("default")]
    plain, wrong, converted = run_variants(parse(ENTRY, reducer()), variants, RunOptions(iters=iters))
    assert plain.result["exact"]
    assert not wrong.result["equal"]
    assert converted.result["exact"]
    assert converted.custom_calls
    assert not plain.custom_calls
    assert converted.result["time_ms"].keys() == ({"original", "rewritten"} if iters else set())


def test_elements_below_a_byte_are_not_looked_at() -> None:
    """They lie packed in XLA's buffers, where a check would read and write too much."""
    file = parse(
        f"  p = s4[8,6] parameter(0)\n  ROOT r = s4[8,6] all-reduce(p), {FLAGS}, to_apply=add_s4", reducer("add", "s4")
    )
    report = run_module(file, pipeline("default"), RunOptions(iters=0, limit_s=30.0, verify_each=True))
    assert report.equal
    assert report.result["collective_checks"]["checked"] == 0
