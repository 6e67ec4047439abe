"""What is wrong or risky in an HLO module, found without running it."""

from __future__ import annotations

from crossrank.collective.kinds import Kind
from crossrank.findings import Finding
from crossrank.hlo.io import ELIDED_REMEDY, ModuleFile
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.verifier import verify


def check_module(file: ModuleFile) -> list[Finding]:
    """All findings: the verifier's, channels without a partner, constants without their numbers."""
    return [*verify(file.module), *_lonely_channels(file.module), *_elided(file)]


def _lonely_channels(module: Module) -> list[Finding]:
    halves: dict[int, dict[str, list[Instruction]]] = {}
    for i in module.instructions():
        if i.opcode in (Kind.SEND, Kind.RECV) and not i.proto.is_host_transfer:
            halves.setdefault(int(i.proto.channel_id), {}).setdefault(i.opcode, []).append(i)
    findings = []
    for channel, by_opcode in sorted(halves.items()):
        sends, recvs = by_opcode.get("send", []), by_opcode.get("recv", [])
        for half, other in ((sends[len(recvs) :], "recv"), (recvs[len(sends) :], "send")):
            findings += [
                Finding(
                    "channel",
                    f"%{i.name}",
                    f"no {other} on channel {channel} meets it",
                    "a rank that runs it waits for ever, unless another module has the other half",
                    i.where,
                    severity="warning",
                )
                for i in half
            ]
    return findings


def _elided(file: ModuleFile) -> list[Finding]:
    return [Finding("elided", f"%{name}", "the constant has no numbers ({...})", ELIDED_REMEDY) for name in file.elided]
