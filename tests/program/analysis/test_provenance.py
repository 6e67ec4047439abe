"""Operands of collectives that are one allocation, or of two domains, in functions that get them through calls."""

from __future__ import annotations

from textwrap import indent

import pytest

from crossrank.author import load_module
from crossrank.errors import InputError
from crossrank.passes import parse_passes, run_passes
from crossrank.program.analysis.provenance import Provenance, check_operands
from crossrank.program.program import Program

WINDOW = "pl.InOut[pld.DistributedTensor[[{}, 8], pl.FP32]]"
SIGNAL = "s: pl.InOut[pld.DistributedTensor[[4, 1], pl.INT32]]"
PARAMS = f"a: {WINDOW.format(4)}, b: {WINDOW.format(4)}, {SIGNAL}"
FILE = f"""\
import crossrank.program.language as pl
import crossrank.program.language.distributed as pld
@pl.program
class P:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(self, {PARAMS}):
{{kernel}}
        return a, b
    @pl.function(type=pl.FunctionType.Orchestration)
    def chip(self, {PARAMS}):
{{chip}}
        return a, b
    @pl.function(type=pl.FunctionType.Orchestration)
    def wide(self, both: {WINDOW.format(8)}, {SIGNAL}, n: pl.Scalar[pl.INDEX]):
{{wide}}
    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def host(self, n: pl.Scalar[pl.INDEX]):
        one = pld.alloc_window_buffer(256)  # one
        two = pld.alloc_window_buffer(256)  # two
        cells = pld.alloc_window_buffer(16)
        a = pld.window(one, [4, 8], dtype=pl.FP32)
        again = pld.window(one, [4, 8], dtype=pl.FP32)
        both = pld.window(one, [8, 8], dtype=pl.FP32)
        b = pld.window(two, [4, 8], dtype=pl.FP32)
        s = pld.window(cells, [4, 1], dtype=pl.INT32)
{{host}}
"""
HERE = "pld.tensor.all_to_all(a, b, s)  # collective"
CALL = "self.kernel(a, b, s)"
BODIES = {"kernel": "pass", "chip": CALL, "wide": "pass"}


def on_all(call: str) -> str:
    return f"for r in pl.range(pld.world_size()):\n    self.{call.replace(')', ', device=r)')}"


RIGHT, WRONG, WIDE = map(on_all, ("chip(a, b, s)", "chip(a, again, s)  # call", "wide(both, s, n)"))


def text(bodies: dict[str, str]) -> str:
    return FILE.format(**{name: indent(body, " " * 8) for name, body in (BODIES | bodies).items()})


def program(bodies: dict[str, str]) -> Program:
    found = load_module(text(bodies).encode(), "p.py", "a program").P
    assert isinstance(found, Program)
    return found


def checked(bodies: dict[str, str]) -> None:
    subject = program(bodies)
    check_operands(subject, lambda f: f.is_kernel)
    check_operands(subject, lambda f: f.is_chip)
    check_operands(subject, lambda f: f.is_host)


def refused(bodies: dict[str, str]) -> list[str]:
    """What is said, with the marks of the lines in place of their numbers."""
    with pytest.raises(InputError) as raised:
        checked(bodies)
    said = str(raised.value)
    for n, line in enumerate(text(bodies).splitlines(), 1):
        if "  # " in line:
            said = said.replace(f"p.py:{n}:", f"<{line.rpartition('# ')[2]}>")
    return said.splitlines()


# functions, and which operands are one
SHARED = {
    "in a dispatch": ({"kernel": HERE, "host": WRONG}, "input and target"),
    "in a dispatch, on a chip": ({"chip": HERE, "host": WRONG}, "input and target"),
    "in the second dispatch": ({"kernel": HERE, "host": f"{RIGHT}\n{WRONG}"}, "input and target"),
    "in a task": ({"kernel": HERE, "chip": "self.kernel(a, a, s)  # call", "host": RIGHT}, "input and target"),
    "in slices that meet": (
        {"kernel": HERE, "wide": "self.kernel(both[0:4], both[3:7], s)  # call", "host": WIDE},
        "input and target",
    ),
    "in slices of slices": (
        {"wide": "x, y = both[1:7], both[2:8]\npld.tensor.all_to_all(x[1:5], y[2:6], s)  # collective", "host": WIDE},
        "input and target",
    ),
    "in what calls gave back": (
        {"chip": f"a, b = {CALL}\nfor i in pl.range(3):\n    a, b = {CALL}\n{HERE}", "host": WRONG},
        "input and target",
    ),
    "in what a loop of the host carries": (
        {"chip": HERE, "host": "for r in pl.range(pld.world_size()):\n    a, _ = self.chip(a, a, s, device=r)  # call"},
        "input and target",
    ),
    "in a reduction's signal": (
        {
            "chip": "pld.tensor.allreduce(a, s)  # collective",
            "host": f"s = pld.window(one, [4, 1], dtype=pl.INT32)\n{RIGHT}  # call",
        },
        "src and signal",
    ),
    "in the host": (
        {"host": f"{RIGHT}\npld.tensor.all_to_all(a, again, s)  # collective"},
        "input and target",
    ),
    "in the host, side by side": (
        {"host": f"{RIGHT}\npld.tensor.all_to_all(both[0:4], both[4:8], s)  # collective"},
        "input and target",
    ),
}


@pytest.mark.parametrize("meet", SHARED)
def test_one_allocation(meet: str) -> None:
    bodies, operands = SHARED[meet]
    first, second = refused(bodies)
    assert first.partition(" pld.tensor.")[0].startswith("<collective>")
    assert first.partition(" pld.tensor.")[2].partition(" ")[2] == (
        f"{operands} must be different window allocations (two pld.window views over the same alloc_window_buffer are "
        "a cross-process data race under in-kernel TPUT/notify)"
    )
    assert second.startswith("both are in 'one', allocated at <one>")
    assert second.endswith(": allocate a buffer for each")
    assert ("called at <call>" in second) is ("# call" in text(bodies))


WORLD = "for r in pl.range(2):\n    self.chip(a, b, s, device=r)  # call"
APART = {
    "on a chip": {"chip": HERE, "host": f"{WORLD}\nself.wide(both, s, n, device=2)"},
    "in a kernel": {"kernel": HERE, "host": f"{WORLD}\nself.wide(both, s, n, device=2)"},
    "in the host": {"host": f"{WORLD}\nself.wide(both, s, n, device=2)\n{HERE}"},
}


@pytest.mark.parametrize("rail", APART)
def test_two_domains(rail: str) -> None:
    first, second = refused(APART[rail])
    assert first.endswith(" pld.tensor.all_to_all window buffers must resolve to the same comm-domain scope")
    assert first.startswith("<collective>")
    assert "input is in 'one' (allocated at <one>" in second
    assert "which devices 0,1,2 use, and target in 'two' (at <two>" in second
    assert "which devices 0,1 use" in second
    assert ("chip is called at <call>" in second) is (rail != "in the host")


@pytest.mark.parametrize(
    "bodies",
    [
        {"kernel": HERE, "host": RIGHT},
        {"chip": HERE, "host": RIGHT},
        {"host": f"{RIGHT}\n{HERE}"},
        {"kernel": HERE, "host": "pass"},  # nobody calls it
        {"kernel": HERE, "wide": "self.kernel(both[0:4], both[4:8], s)", "host": WIDE},
        {"wide": "x = both[4:8]\npld.tensor.all_to_all(both[0:4], x, s)", "host": WIDE},
        {"wide": "self.kernel(both[0:4], both[n:n + 4], s)", "kernel": HERE, "host": WIDE},  # when it runs
        {
            "wide": "x = both[0:4]\nfor i in pl.range(2):\n    x = both[i * 4:i * 4 + 4]\n"
            "pld.tensor.all_to_all(both[0:4], x, s)",
            "host": WIDE,
        },
        {"chip": HERE, "host": WORLD.replace("device=r", "device=r + 1")},  # which devices: told by another pass
    ],
)
def test_what_is_apart_or_not_known(bodies: dict[str, str]) -> None:
    checked(bodies)


def test_a_function_is_looked_at_once_for_each_choice_of_windows() -> None:
    bodies = {"chip": f"for i in pl.unroll(30):\n    a, b = {CALL}\nself.kernel(b, a, s)", "host": f"{RIGHT}\n{RIGHT}"}
    found = [c.function.name for c in Provenance(program(bodies)).contexts()]
    assert found == ["host", "chip", "kernel", "kernel"]


def test_in_the_source_it_is_the_callers_obligation() -> None:
    bodies = {"kernel": HERE, "host": WRONG}
    with pytest.raises(InputError, match="must be different window allocations"):
        run_passes(program(bodies), parse_passes("lower-composite-ops"))
    run_passes(program(bodies), parse_passes("lower-composite-ops{as_source=true}"))
