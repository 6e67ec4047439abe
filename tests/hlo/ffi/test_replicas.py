"""A module for partitions, with layouts of a device, as replicas on XLA:CPU: the values are the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crossrank.hlo.ffi.replicas import as_replicas
from crossrank.hlo.xla import check_proto

from ...support import corpus_file, each_small_module, hlo, needs_corpus, parse, python

RUN = """
import json, sys
import numpy as np
from crossrank.hlo.execute.xla_cpu import Executable, fetch, place
from crossrank.hlo.ffi.replicas import as_replicas
from crossrank.hlo.io import parse_module
said = []
for text in json.load(sys.stdin):
    module = parse_module(text.encode()).module
    ranks = module.world
    shapes = [p.shape for p in module.entry.parameters]
    arguments = [np.arange(s.count, dtype=s.dtype.numpy).reshape(s.dims) for s in shapes]
    as_replicas(module)
    _, outputs = Executable(module.serialize(), ranks, "it").run([place([a] * ranks) for a in arguments])
    said.append([[a.tolist() for a in by_rank] for by_rank in fetch(outputs)])
json.dump(said, sys.stdout)
"""

X = np.arange(24.0).reshape(2, 3, 4)
NUMBERS = np.array([[1, 2, 3], [4, 5, 6]])
TWO_BY_THREE = "constant({{1,2,3},{4,5,6}})"
WORLD4 = "replica_count=2, num_partitions=2"


def line(text: str) -> str:
    return "  p = f32[2,3,4] parameter(0)\n  " + text


CASES: dict[str, tuple[str, str, list[Any]]] = {
    "a bitcast that cuts anew": (line("ROOT r = f32[6,4] bitcast(p)"), "", [X.reshape(6, 4)]),
    "a bitcast that renames the dimensions": (
        line("ROOT r = f32[4,3,2]{0,1,2} bitcast(p)"),
        "",
        [X.transpose(2, 1, 0)],
    ),
    "a bitcast that does both": (line("ROOT r = f32[4,6]{0,1} bitcast(p)"), "", [X.reshape(6, 4).T]),
    "a bitcast of a column-major value": (
        line("c = f32[2,3,4]{0,1,2} copy(p)\n  ROOT r = f32[24]{0} bitcast(c)"),
        "",
        [X.transpose(2, 1, 0).reshape(24)],
    ),
    "a bitcast that changes nothing": (line("ROOT r = f32[2,3,4] bitcast(p)"), "", [X]),
    "a constant in rows": (f"  ROOT r = s32[2,3]{{1,0}} {TWO_BY_THREE}", "", [NUMBERS]),
    "a constant in columns": (f"  ROOT r = s32[2,3]{{0,1}} {TWO_BY_THREE}", "", [NUMBERS]),
    "a constant in columns, in a bitcast": (
        f"  c = s32[2,3]{{0,1}} {TWO_BY_THREE}\n  ROOT r = s32[6]{{0}} bitcast(c)",
        "",
        [NUMBERS.T.reshape(6)],
    ),
    "a parameter in columns": (
        "  p = f32[2,3]{0,1} parameter(0)\n  ROOT r = f32[3,2]{1,0} bitcast(p)",
        "",
        [X.flat[:6].reshape(2, 3).T],
    ),
    "the partition": ("  ROOT r = u32[] partition-id()", WORLD4, [0, 1, 0, 1]),
    "the replica": ("  ROOT r = u32[] replica-id()", WORLD4, [0, 0, 1, 1]),
    "the partition of the only replica": ("  ROOT r = u32[] partition-id()", "num_partitions=4", [0, 1, 2, 3]),
    "the only replica": ("  r = u32[] replica-id()\n  ROOT s = u32[] add(r, r)", "num_partitions=4", [0] * 4),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    texts = [hlo(entry, header=header or "replica_count=1") for entry, header, _ in CASES.values()]
    done = python(RUN, stdin=json.dumps(texts), XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_values(answers: dict[str, Any], name: str) -> None:
    (by_rank,) = answers[name]
    wanted = CASES[name][2]
    assert len(by_rank) == len(wanted)
    for actual, expected in zip(by_rank, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(actual), expected)


def test_what_binds_a_module_to_devices_goes() -> None:
    module = parse(
        "  p = f32[8,4]{0,1} parameter(0), sharding={replicated}\n  ROOT r = f32[8,4]{0,1} negate(p)",
        header="is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }, num_partitions=8",
    ).module
    as_replicas(module)
    assert not any(module.proto.HasField(f) for f in ("schedule", "input_output_alias", "buffer_donor"))
    assert all(i.shape.row_major and not i.proto.HasField("sharding") for i in module.entry)
    check_proto(module.serialize())


@needs_corpus
@each_small_module
def test_xla_accepts_every_corpus_module(name: str) -> None:
    module = corpus_file(name).module
    if not any(leaf.tiled for i in module.instructions() for leaf in i.shape.leaves()):
        as_replicas(module)
        check_proto(module.serialize())
        assert all(leaf.row_major for i in module.instructions() for leaf in i.shape.leaves() if leaf.is_array)
