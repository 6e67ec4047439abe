"""Every pass, and random pipelines of them, on random modules: values stay, and what comes out is a sound module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from crossrank.collective.kinds import Kind
from crossrank.hlo.collectives import describe
from crossrank.hlo.execute.run import RunOptions, run_variants
from crossrank.hlo.io import ModuleFile, parse_module, to_text
from crossrank.hlo.module import Module
from crossrank.hlo.passes.convert_collectives_to_custom_call import convert
from crossrank.hlo.verifier import verify
from crossrank.passes import Pass, all_passes, describe_pass, parse_passes, pipeline, run_passes
from crossrank.remarks import Remarks

from ...random_modules import draw_module

Passes = Sequence[Pass[Module]]

CHOICES: dict[str, tuple[object, ...]] = {
    "threshold_count": (2, 3, 256),
    "threshold_bytes": (64, 1024, 1 << 30),
    "tp_groups": ("marked", "first", "off"),
    "kinds": ("named", "all"),
}
IDLE = {
    "collective-stream-id-checker",
    "collective-token-removal",
    "raise-custom-call-collectives",
    "verify-collective-targets",
}
"""Passes that find nothing to change in what is drawn: a token cannot be run, custom-calls come from other passes."""
FIXED = {"allow_inexact", "untargeted", "target", "execution_threads"}
"""Options that stay as they are: they change values on purpose, or nothing that matters here."""


@dataclass(frozen=True)
class ConvertSome(Pass[Module]):
    """Converts a random part of the collectives."""

    name: ClassVar[str] = "convert-some"
    seed: int = 0
    share: float = 0.6

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Convert; returns whether anything was."""
        rng = np.random.default_rng(self.seed)
        found = [
            (i, info)
            for i in module.instructions()
            if i.opcode != "custom-call" and (info := describe(i)) and not info.kind.has_tokens
        ]
        chosen = [both for both in found if rng.random() < self.share]
        for i, info in chosen:
            convert(i, info)
        return bool(chosen)


def draw_pass(rng: np.random.Generator, name: str) -> Pass[Module]:
    """A pass with options of which each is the default or drawn."""
    drawn = []
    for option in describe_pass(all_passes()[name])["options"]:
        key, choices = option["name"], CHOICES.get(option["name"])
        if key in FIXED or rng.random() < 0.5:
            continue
        if choices is None and option["type"] != "bool":
            continue
        value = choices[int(rng.integers(len(choices)))] if choices else bool(rng.integers(2))
        drawn.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return parse_passes(f"{name}{{{' '.join(drawn)}}}" if drawn else name)[0]


def draw_variants(seed: int, pipelines: int = 6) -> list[Passes]:
    """Each pass alone, with drawn options; pipelines of several; a part converted; the named pipelines last."""
    rng = np.random.default_rng([seed, 1])
    known = [
        name for name in all_passes(Module.TITLE) if name != "verify-collective-targets"
    ]  # which refuses what it must
    variants: list[Passes] = [[draw_pass(rng, name)] for name in known]
    for _ in range(pipelines):
        some = rng.permutation(known)[: int(rng.integers(3, 12))]
        first = parse_passes("inline-calls") if rng.random() < 0.6 else []
        variants.append([*first, *(draw_pass(rng, str(name)) for name in some)])
    there_and_back = parse_passes(
        "convert-collectives-to-custom-call{all_computations=true kinds=all},raise-custom-call-collectives"
    )
    return [*variants, there_and_back, [ConvertSome(seed=seed)], pipeline("default"), pipeline("neuron")]


def idempotent(p: Pass[Module]) -> bool:
    """Whether its page says that it finds nothing more the second time."""
    options: dict[str, Any] = vars(p)
    return "threshold_count" not in options and not options.get("assign_missing") and p.name in all_passes()


def read(text: str, seed: int) -> ModuleFile:
    return parse_module(text.encode(), f"random{seed}.hlo")


def faults_of_form(text: str, variants: Sequence[Passes], seed: int) -> tuple[list[Passes], list[str]]:
    """The variants that change the module, and what is wrong with the form of what they make."""
    changing: list[Passes] = []
    faults: list[str] = []
    seen = {to_text(read(text, seed))}
    for passes in variants:
        file = read(text, seed)
        said = ",".join(map(str, passes))
        results = run_passes(file.module, passes)
        made = to_text(file)
        if not any(r.changed for r in results):
            if made not in seen:
                faults.append(f"{said}: changed something and does not say so")
            continue
        again = read(made, seed)  # XLA takes it
        faults += [f"{said}: {finding}" for finding in verify(again.module)]
        if len(passes) == 1 and idempotent(passes[0]) and run_passes(again.module, passes)[0].changed:
            faults.append(f"{said}: finds more the second time")
        if made not in seen:
            seen.add(made)
            changing.append(passes)
    return changing, faults


def faults_of_values(text: str, variants: Sequence[Passes], seed: int) -> list[str]:
    """Which variants change values, all run in one process."""
    reports = run_variants(read(text, seed), variants, RunOptions(iters=0, seed=seed, limit_s=30))
    faults = []
    for passes, report in zip(variants, reports, strict=True):
        result = report.result
        reassociates = any(p.reassociates and r.changed for p, r in zip(passes, report.passes, strict=True))
        if "error" in result or not result["equal" if reassociates else "exact"]:
            why = result.get("error") or result["first_difference"]
            faults.append(f"{','.join(r.spec for r in report.passes if r.changed)}: {why}")
    return faults


@pytest.mark.parametrize("seed", range(6))
def test_random_modules(seed: int) -> None:
    text = draw_module(seed, patterns=4)
    changing, faults = faults_of_form(text, draw_variants(seed, pipelines=3), seed)
    assert not faults
    assert not faults_of_values(text, changing, seed)


def test_random_modules_keep_their_form() -> None:
    """Many more, without running them."""
    for seed in range(100, 112):
        text = draw_module(seed)
        assert not faults_of_form(text, draw_variants(seed), seed)[1]


def test_what_is_drawn_has_what_matters() -> None:
    """The generator itself: every kind, form and mode, and for every pass something to do."""
    texts = [draw_module(seed) for seed in range(60)]
    text = "".join(texts)
    for word in (
        *(f"{kind}(" for kind in Kind if kind not in (Kind.RAGGED_ALL_TO_ALL, Kind.SEND_RECV)),
        *(f") {kind}(" for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)),
        *(f"{opcode}(" for opcode in ("while", "conditional", "call", "opt-barrier")),
        *("{0,1}", "<=[8]", "T(1,0)", "mesh[", "device_ids=", "replica_groups={}", "pairs={}"),
        *("control-predecessors", "constrain_layout", "replica_count=4, num_partitions=2", "collective_type"),
        *(f" {t}[" for t in ("f32", "bf16", "f16", "f64", "s32", "u8", "s64", "pred", "c64")),
    ):
        assert word in text, word
    idle = set(all_passes(Module.TITLE)) - IDLE
    for seed, drawn in enumerate(texts):
        idle -= {name for name in idle if run_passes(read(drawn, seed).module, parse_passes(name))[0].changed}
    assert not idle
