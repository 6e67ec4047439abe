"""`aws_neuron_flip_all_gather_reshape`: reshape first, gather then."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from ...support import find, opcodes, parse, run_values
from .rewrites import FLAGS, Lines, array, declined, gather, pick_groups, rewritten

NAME = "aws_neuron_flip_all_gather_reshape"
ANY = NAME + "{any_reshape=true}"
ORDER = "the elements would come in another order"


def one(local: str, dim: int, full: str, result: str, groups: str = "{}", more: str = ""):
    return parse(
        f"  p = f32[{local}] parameter(0)\n"
        f"  g = f32[{full}] all-gather(p), replica_groups={groups}, dimensions={{{dim}}}, {FLAGS}\n"
        f"  ROOT r = f32[{result}] reshape(g){more}"
    )


@pytest.mark.parametrize(
    ("local", "dim", "full", "result", "inner", "place"),
    [
        ("1,8", 0, "8,8", "64", "8", 0),  # merges, and is the major one
        ("2,3,5", 1, "2,24,5", "2,120", "2,15", 1),
        ("2,6,5", 2, "2,6,40", "12,40", "12,5", 1),  # others merge
        ("2,6,5", 0, "16,6,5", "16,3,10", "2,3,10", 0),
        ("1,4,3", 1, "1,32,3", "32,3", "4,3", 0),  # extents of 1 come and go
        ("4,3", 0, "32,3", "1,32,1,3", "1,4,1,3", 1),
        ("4,1,3", 0, "32,1,3", "96", "12", 0),
        ("12", 0, "96", "96", "12", 0),
    ],
)
def test_the_reshape_goes_before_the_gather(
    local: str, dim: int, full: str, result: str, inner: str, place: int
) -> None:
    module = rewritten(one(local, dim, full, result), NAME)
    assert opcodes(module) in (["parameter", "reshape", "all-gather"], ["parameter", "all-gather"])
    g = module.entry.root
    assert (list(g.proto.dimensions), int(g.proto.channel_id)) == ([place], 1)
    assert (g.shape.without_layout(), g.operands[0].shape.without_layout()) == (f"f32[{result}]", f"f32[{inner}]")


@pytest.mark.parametrize(
    ("local", "dim", "full", "result", "reason"),
    [
        ("4,8", 1, "4,64", "256", ORDER),
        ("2,3,5", 1, "2,24,5", "48,5", ORDER),
        ("8,3", 0, "64,3", "16,4,3", "the gathered dimension becomes 2 dimensions"),
        ("8,3,2,5", 0, "64,3,2,5", "1920", "3 other dimensions merge with the gathered one"),
        ("0,3", 0, "0,3", "0", "nothing is gathered, so that no output dimension stands for it"),
    ],
)
def test_guards(local: str, dim: int, full: str, result: str, reason: str) -> None:
    assert declined(one(local, dim, full, result).module, NAME) == [reason]


def test_control_dependencies_and_other_users() -> None:
    file = one("1,8", 0, "8,8", "64", more=", control-predecessors={g}")
    assert declined(file.module, NAME) == ["%g has control dependencies"]
    file = parse(
        f"  p = f32[1,8] parameter(0)\n  g = f32[8,8] all-gather(p), replica_groups={{}}, dimensions={{0}}, {FLAGS}\n"
        "  r = f32[64] reshape(g)\n  ROOT t = (f32[64], f32[8,8]) tuple(r, g)"
    )
    assert declined(file.module, NAME) == ["%g has other users"]


@pytest.mark.parametrize(
    ("local", "dim", "full", "result", "inner", "place"),
    [
        ("8,3", 0, "64,3", "16,4,3", "2,4,3", 0),
        ("8,3", 0, "64,3", "8,8,3", "1,8,3", 0),
        ("2,3,2,5", 0, "16,3,2,5", "480", "60", 0),
        ("3,4,6", 1, "3,32,6", "3,16,12", "3,2,12", 1),
    ],
)
def test_every_reshape_that_keeps_the_order(
    local: str, dim: int, full: str, result: str, inner: str, place: int
) -> None:
    g = rewritten(one(local, dim, full, result), ANY).entry.root
    assert (list(g.proto.dimensions), g.operands[0].shape.without_layout()) == ([place], f"f32[{inner}]")


def test_a_split_whose_first_part_cannot_be_cut() -> None:
    assert declined(one("8,3", 0, "64,3", "4,16,3").module, ANY) == [ORDER]


def test_metadata_and_attributes_stay() -> None:
    file = one("1,8", 0, "8,8", "64", more=', metadata={op_name="flat"}, frontend_attributes={k="v"}')
    r = rewritten(file, NAME).entry.root.operands[0]
    assert (r.opcode, r.proto.metadata.op_name, r.frontend_attributes) == ("reshape", "flat", {"k": "v"})
    assert find(file.module, "p").users


def regroup(rng: np.random.Generator, dims: list[int]) -> list[int]:
    """Extents with the same product: neighbours merged, some split, ones put in."""
    flat: list[int] = []
    for extent in dims:
        if flat and rng.random() < 0.5:
            flat[-1] *= extent
        else:
            flat.append(extent)
    out: list[int] = []
    for extent in flat:
        cuts = [d for d in (2, 4) if extent % d == 0]
        if cuts and rng.random() < 0.3:
            cut = int(rng.choice(cuts))
            out += [cut, extent // cut]
        else:
            out.append(extent)
        if rng.random() < 0.2:
            out.append(1)
    return out


@pytest.mark.parametrize(("seed", "passes"), list(product(range(2), (NAME, ANY))))
def test_values(seed: int, passes: str) -> None:
    rng = np.random.default_rng(seed)
    lines = Lines()
    for _ in range(20):
        dims = [int(n) for n in rng.integers(1, 5, rng.integers(1, 5))]
        groups, size = pick_groups(rng)
        dim = int(rng.integers(len(dims)))
        g = gather(lines, lines.parameter(array("f32", dims)), "f32", dims, dim, groups)
        dims[dim] *= size
        result = regroup(rng, dims)
        assert prod(result) == prod(dims)
        lines.add(array("f32", result, rng.permutation(len(result))), f"reshape({g})", output=True)
    report = run_values(lines.text(), passes)
    assert report.result["exact"]
    outcomes = {r.outcome for r in report.passes[0].remarks}
    assert outcomes == {"done", "declined"}
