"""Our reading, printing and expansion of groups beside XLA's own, each in a process of its own.

XLA ends the process where it finds certain faults in a mesh, and devices have to be counted before JAX loads.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from crossrank.collective.groups import parse_groups
from crossrank.collective.pairs import parse_pairs

from .strategies import any_groups

CORPUS = Path(os.environ.get("CROSSRANK_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")
GROUPS = re.compile(r"replica_groups=(mesh\[.*?\} ?|\{\{.*?\}\}|\{\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)(?=,|$|\s)")
PAIRS = re.compile(r"source_target_pairs=(\{\}|\{\{.*?\}\})")


def child(script, argument, **environment):
    """What a Python child prints, as JSON, given ``argument`` as JSON on its input."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(argument),
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


REPRINT = """
import json, sys
from jaxlib import _hlo
lines = [f' r{i} = f32[1] all-reduce(p), channel_id=1, replica_groups={g}, use_global_device_ids=true, to_apply=s'
         for i, g in enumerate(json.load(sys.stdin))]
text = '''HloModule m, num_partitions=64
s { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { p = f32[1] parameter(0)
''' + '\\n'.join(lines) + '\\n ROOT q = f32[1] copy(p) }'
module = _hlo.hlo_module_from_text(text)
again = _hlo.HloModule.from_serialized_hlo_module_proto(module.as_serialized_hlo_module_proto())
found = [[line.split('replica_groups=')[1].split(', use_global')[0]
          for line in m.to_string().splitlines() if 'replica_groups' in line] for m in (module, again)]
assert found[0] == found[1]
json.dump(found[0], sys.stdout)
"""


def reprinted(texts):
    pytest.importorskip("jaxlib")
    return child(REPRINT, texts)


def test_random_groups_print_as_xla_prints_them():
    made = []

    @settings(
        max_examples=300,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(any_groups())
    def collect(groups):
        made.append(str(groups))

    collect()
    assert reprinted(made) == made


def test_other_spellings_are_shortened_as_xla_does_it():
    spellings = [
        *("{ {0, 1}, { 2,3 } }", "{{}}", "{ }", "{{-1,0}}"),
        *("[2,4]<=[2,4]T(0,1)", "[4,2]<=[2,2,2]T(1,2,0)", "[2,4]<=[4,1,2]T(1,0,2)", "[2,2]<=[1,1,4]T(2,0,1)"),
        *("[1,1]<=[1,1]T(1,0)", "[8,3]<=[2,3,4]T(2,0,1)", "[4,6]<=[2,2,3,2]T(2,3,0,1)", "[8,2]<=[2,2,2,2]T(3,0,1,2)"),
        *("mesh['a'=2,'b'=4]{'b'}", 'mesh["a"=2] {"a"}', "mesh['a b'=2,'1'=1] {'a b','1'}"),
        "mesh['a'=4,'b'=2], device_ids=([8]) {'a'}",
        "mesh['a'=4,'b'=2] , device_ids=( [2,2,2]T(1,2,0) ) {'a'}",
        "mesh['a'=4,'b'=2], device_ids=([2,2,2]T(0,1,2)) {'a'}",
        "mesh['a'=30] {'a':(10)3,'a':(2)5}",
    ]
    assert [str(parse_groups(text)) for text in spellings] == reprinted(spellings)


GATHER = """
import json, sys
import numpy as np
import jax
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir
devices = jax.devices()
n = len(devices)
forms = json.load(sys.stdin)
lines = [f' r{i} = s32[{size}] all-gather(p), replica_groups={g}, dimensions={{0}}'
         for i, (g, size) in enumerate(forms)]
shapes = ', '.join(f's32[{size}]' for _, size in forms)
names = ', '.join(f'r{i}' for i in range(len(forms)))
text = (f'HloModule m, replica_count={n}\\nENTRY e {{ p = s32[1] parameter(0)\\n' + '\\n'.join(lines)
        + f'\\n ROOT q = ({shapes}) tuple({names}) }}')
computation = _hlo.XlaComputation(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
options = xla_client.CompileOptions()
build = options.executable_build_options
options.num_replicas = build.num_replicas = n
build.device_assignment = xla_client.DeviceAssignment.create(np.arange(n).reshape(n, 1))
with mlir.make_ir_context():
    module = ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))
    run = devices[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)
shards = [jax.device_put(np.array([i], np.int32), d) for i, d in enumerate(devices)]
sharding = NamedSharding(Mesh(np.array(devices), ('x',)), PartitionSpec('x'))
ranks = jax.make_array_from_single_device_arrays((n,), sharding, shards)
outputs = run.execute_sharded([ranks]).disassemble_into_single_device_arrays()
json.dump([[np.asarray(a).tolist() for a in output] for output in outputs], sys.stdout)
"""


# One mesh a module: on the way through StableHLO all meshes of a module become one.
@pytest.mark.parametrize(
    "forms",
    [
        ["{{5,1,3,7},{4,0,2,6}}", "{{7,6,5,4,3,2,1,0}}", "[2,4]<=[8]", "[4,2]<=[2,4]T(1,0)", "[4,2]<=[2,2,2]T(2,1,0)"],
        [
            "mesh['a'=2,'b'=4] " + refs
            for refs in (
                *("{'b'}", "{'b','a'}", "{'b':(2)2}", "{'b':(1)2}", "{'b':(2)2,'a'}", "{'a','b':(1)2}"),
                *("{'b':(2)2,'b':(1)2}", "{'b':(2)2,'a','b':(1)2}", "{'a','b':(2)2,'b':(1)2}"),
            )
        ],
        ["mesh['a'=2,'b'=1,'c'=4] " + refs for refs in ("{'c','b'}", "{'c':(2)2,'b','a'}", "{'a'}")],
    ],
    ids=["written", "parts", "axes of one"],
)
def test_groups_gather_in_xla_as_we_expand_them(forms):
    """Every rank gathers the ranks of its group: XLA's own expansion, with its order."""
    pytest.importorskip("jax")
    groups = [parse_groups(form) for form in forms]
    found = child(
        GATHER,
        [(form, g.group_size) for form, g in zip(forms, groups, strict=True)],
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    for form, g, by_rank in zip(forms, groups, found, strict=True):
        want = {rank: list(group) for group in g.expand() for rank in group}
        assert by_rank == [want[rank] for rank in range(8)], form


PARTITION = """
import itertools, json, re, sys
import numpy as np
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
found = []
for shape in json.load(sys.stdin):
    names = tuple('abc'[: len(shape)])
    mesh = Mesh(np.array(jax.devices()).reshape(shape), names)
    array = jax.ShapeDtypeStruct((8, 8), np.float32)
    for k in range(1, len(names) + 1):
        for axes in itertools.permutations(names, k):
            for spec in (P(axes), P(None, axes[0])):
                here, everywhere = NamedSharding(mesh, spec), NamedSharding(mesh, P())
                step = jax.jit(lambda x: x * 2, in_shardings=here, out_shardings=everywhere)
                for line in step.lower(array).compile().as_text().splitlines():
                    found += re.findall(r'replica_groups=(.*?), (?:dim|use|to_)', line)
json.dump(found, sys.stdout)
"""


def test_a_mesh_expands_as_the_iota_that_xla_writes_instead():
    """The partitioner's groups as a mesh, with device ids, and the same program's with the mesh form turned off."""
    pytest.importorskip("jax")
    flags = "--xla_force_host_platform_device_count=8"
    shapes = [(2, 4), (2, 2, 2)]
    meshes = child(PARTITION, shapes, XLA_FLAGS=flags)
    others = child(PARTITION, shapes, XLA_FLAGS=f"{flags} --xla_enable_rgv3_materialization=false")
    assert any("device_ids" in mesh for mesh in meshes)
    assert not any("mesh" in other for other in others)
    for mesh, other in zip(meshes, others, strict=True):
        assert parse_groups(mesh).expand() == parse_groups(other).expand(), (mesh, other)


def corpus_text():
    files = sorted(p for p in CORPUS.glob("*") if p.name.endswith((".hlo", ".hlo.gz")))
    if not files:
        pytest.skip(f"no corpus at {CORPUS}: set CROSSRANK_CORPUS to the folder of modules")
    for path in files:
        yield gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def test_the_groups_and_pairs_of_the_corpus():
    groups, pairs, seen = set(), set(), 0
    for text in corpus_text():
        groups |= {m.strip() for m in GROUPS.findall(text)}
        pairs |= set(PAIRS.findall(text))
        seen += len(GROUPS.findall(text)) - text.count("replica_groups=")
    assert seen == 0, "the pattern of this test misses a form"
    assert len(groups) > 30
    ordered = sorted(groups)
    ours = [parse_groups(text) for text in ordered]
    assert [str(g) for g in ours] == ordered == reprinted(ordered)
    assert [str(parse_pairs(text)) for text in sorted(pairs)] == sorted(pairs)
    for g in ours:
        ids = [i for group in g.expand() for i in group]
        assert sorted(ids) == list(range(len(ids))), str(g)
        assert g.num_groups == len(g.expand())
