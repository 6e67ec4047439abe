"""Arguments: drawn so that the program makes sense of them, or read and checked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from crossrank.collective.dtypes import ALL
from crossrank.errors import InputError
from crossrank.hlo.execute.inputs import draw_inputs, read_inputs

from ...support import corpus_file, each_small_module, needs_corpus, parse


def drawn(entry: str, *computations: str, seed: int = 0):
    return draw_inputs(parse(entry, *computations).module, seed)


def test_floats_are_small_and_each_rank_has_its_own() -> None:
    (x,) = drawn("  ROOT p = f32[1000] parameter(0)")
    assert len(x) == 8
    assert not np.array_equal(x[0], x[1])
    assert abs(np.std(np.stack(x)) - 0.1) < 0.01


def test_the_seed_decides() -> None:
    entry = "  ROOT p = f32[10] parameter(0)"
    assert np.array_equal(drawn(entry)[0], drawn(entry)[0])
    assert not np.array_equal(drawn(entry)[0], drawn(entry, seed=1)[0])


@pytest.mark.parametrize("t", [t for t in ALL if t.bits >= 8 or t.name == "pred"], ids=str)
def test_every_element_type(t) -> None:
    (x,) = drawn(f"  ROOT p = {t.name}[16] parameter(0)")
    assert x[0].dtype == t.numpy
    assert x[0].shape == (16,)
    if t.is_integer:
        assert 0 <= x[0].min() <= x[0].max() < 8


@pytest.mark.parametrize("shape", ["s32[]", "u8[]", "pred[]"])
def test_scalars_that_decide_are_the_same_everywhere(shape: str) -> None:
    (x,) = drawn(f"  ROOT p = {shape} parameter(0)")
    assert len({a.item() for a in x}) == 1


GATHER = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,9}"
LOOP = f"""
body {{
  t = (s32[6], f32[3,9]) parameter(0)
  i = s32[6] get-tuple-element(t), index=0
  x = f32[3,9] get-tuple-element(t), index=1
  g = f32[6,9] gather(x, i), {GATHER}
  ROOT r = (s32[6], f32[3,9]) tuple(i, x)
}}
cond {{
  t = (s32[6], f32[3,9]) parameter(0)
  ROOT c = pred[] constant(false)
}}
"""
PICK = f"""
pick {{
  i = s32[6] parameter(0)
  x = f32[3,9] parameter(1)
  w = s64[6] convert(i)
  ROOT g = f32[6,9] gather(x, w), {GATHER}
}}
"""
PARAMETERS = "  i = s32[6] parameter(0)\n  x = f32[3,9] parameter(1)\n"


@pytest.mark.parametrize(
    ("entry", "computations", "below"),
    [
        (f"{PARAMETERS}  ROOT r = f32[6,9] gather(x, i), {GATHER}", [], 3),
        (f"{PARAMETERS}  b = s32[6] opt-barrier(i)\n  ROOT r = f32[6,9] gather(x, b), {GATHER}", [], 3),
        (
            f"{PARAMETERS}  t = (f32[3,9], s32[6]) tuple(x, i)\n  b = (f32[3,9], s32[6]) opt-barrier(t)\n"
            f"  j = s32[6] get-tuple-element(b), index=1\n  ROOT r = f32[6,9] gather(x, j), {GATHER}",
            [],
            3,
        ),
        (
            f"{PARAMETERS}  j = s32[6] convert(i)\n  k = s32[6] copy(j)\n  ROOT r = f32[6,9] gather(x, k), {GATHER}",
            [],
            3,
        ),
        (f"{PARAMETERS}  ROOT r = f32[6,9] call(i, x), to_apply=pick", [PICK], 3),
        (
            f"{PARAMETERS}  t = (s32[6], f32[3,9]) tuple(i, x)\n"
            "  ROOT w = (s32[6], f32[3,9]) while(t), condition=cond, body=body",
            [LOOP],
            3,
        ),
        (
            "  i = s32[6,1] parameter(0)\n  x = f32[4,9] parameter(1)\n  u = f32[6,9] parameter(2)\n"
            "  ROOT s = f32[4,9] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
            ["sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}"],
            4,
        ),
        (
            "  i = s32[] parameter(0)\n  x = f32[7,9] parameter(1)\n  z = s32[] constant(0)\n"
            "  ROOT r = f32[5,9] dynamic-slice(x, i, z), dynamic_slice_sizes={5,9}",
            [],
            3,
        ),
        (
            "  i = s32[] parameter(0)\n  x = f32[7,9] parameter(1)\n"
            "  z = s32[] constant(0)\n  u = f32[6,9] parameter(2)\n"
            "  ROOT r = f32[7,9] dynamic-update-slice(x, u, i, z)",
            [],
            2,
        ),
        ("  ROOT i = s32[600] parameter(0)", [], 8),
    ],
)
def test_indices_stay_within_what_they_index(entry: str, computations: list[str], below: int) -> None:
    highest = max(int(np.max(rank)) for seed in range(20) for rank in drawn(entry, *computations, seed=seed)[0])
    assert highest == below - 1


RAGGED = """
  x = f32[24,2] parameter(0)
  o = f32[24,2] parameter(1)
  a = s32[4] parameter(2)
  b = s32[4] parameter(3)
  c = s32[4] parameter(4)
  d = s32[4] parameter(5)
  ROOT r = f32[24,2] ragged-all-to-all(x, o, a, b, c, d), channel_id=1, replica_groups={{0,1,2,3},{7,5,6,4}}"""


# as shard_map leaves it: in a body that is called, of a row of a table
RAGGED_CALLED = """
  x = f32[24,2] parameter(0)
  o = f32[24,2] parameter(1)
  a = s32[1,4] parameter(2)
  a2 = s32[1,4] copy(a)
  b = s32[1,4] parameter(3)
  c = s32[1,4] parameter(4)
  d = s64[1,4] parameter(5)
  ROOT r = f32[24,2] call(x, o, a2, b, c, d), to_apply=exchange"""
EXCHANGE = """
exchange {
  x = f32[24,2] parameter(0)
  o = f32[24,2] parameter(1)
  p = s32[1,4] parameter(2)
  q = s32[1,4] parameter(3)
  r = s32[1,4] parameter(4)
  t = s64[1,4] parameter(5)
  a = s32[4] reshape(p)
  b = s32[4] reshape(q)
  c = s32[4] reshape(r)
  u = s32[1,4] convert(t)
  d = s32[4] reshape(u)
  ROOT e = f32[24,2] ragged-all-to-all(x, o, a, b, c, d), channel_id=1, replica_groups={{0,1,2,3},{7,5,6,4}}
}
"""


@pytest.mark.parametrize("text", [(RAGGED,), (RAGGED_CALLED, EXCHANGE)])
def test_offsets_and_sizes_of_a_ragged_exchange_fit(text: tuple[str, ...]) -> None:
    tables = drawn(*text)[2:]
    offsets, sent, targets, received = ([rank.reshape(-1) for rank in table] for table in tables)
    for group in ((0, 1, 2, 3), (7, 5, 6, 4)):
        for k, rank in enumerate(group):
            assert (offsets[rank] + sent[rank] <= 24).all()
            for m, peer in enumerate(group):
                assert sent[rank][m] == received[peer][k]
                assert targets[rank][m] + sent[rank][m] <= 24
            pieces = sorted((targets[peer][k], sent[peer][k]) for peer in group)
            assert all(a + n <= b for (a, n), (b, _) in pairwise(pieces))
    assert sum(s.sum() for s in sent) > 0


# -- read --------------------------------------------------------------------------------------------------------------
MODULE = """
  p = f32[4,2] parameter(0)
  q = bf16[3] parameter(1)
  s = s32[] parameter(2)
  ROOT r = (f32[4,2], bf16[3]) tuple(p, q)"""


def good() -> dict[str, np.ndarray]:
    return {
        "p0": np.arange(64, dtype=np.float32).reshape(8, 4, 2),
        "p1": np.array([1, 2, 3], ml_dtypes.bfloat16).view(np.uint16),
        "p2": np.array(5, np.int32),
    }


def read(tmp_path: Path, arrays: dict[str, np.ndarray]):
    path = tmp_path / "in.npz"
    np.savez(path, **arrays)
    return read_inputs(parse(MODULE).module, str(path))


def test_read(tmp_path: Path) -> None:
    (p, q, s), outputs = read(tmp_path, good())
    assert np.array_equal(p[3], good()["p0"][3])
    assert q[7].dtype == ml_dtypes.bfloat16
    assert q[7].tolist() == [1, 2, 3]
    assert [int(x) for x in s] == [5] * 8
    assert outputs == {}


def test_outputs_are_read_where_they_are(tmp_path: Path) -> None:
    _, outputs = read(tmp_path, {**good(), "o1": np.zeros((8, 3), np.uint16)})
    assert list(outputs) == [1]
    assert outputs[1][0].dtype == ml_dtypes.bfloat16


def test_saved_bfloat16_itself_is_read(tmp_path: Path) -> None:
    (_, q, _), _ = read(tmp_path, {**good(), "p1": np.array([1, 2, 3], ml_dtypes.bfloat16)})
    assert q[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"p0": None}, "has no p0, a f32.4,2."),
        ({"p0": np.zeros((8, 2, 4), np.float32)}, r"p0 has shape \[8, 2, 4\], not \[8, 4, 2\] or \[4, 2\]"),
        ({"p0": np.zeros((4, 4, 2), np.float32)}, r"p0 has shape \[4, 4, 2\]"),
        ({"p0": np.zeros((8, 4, 2))}, r"p0 is float64, not f32\[4,2\]"),
        ({"p1": np.zeros(3, np.float16)}, r"p1 is float16, not bf16\[3\]"),
        ({"p2": np.zeros((), np.uint32)}, r"p2 is uint32, not s32\[\]"),
        ({"p3": np.zeros(1)}, "has p3, but the module takes 3 parameters"),
        ({"o0": np.zeros(5, np.float32)}, "o0 has shape"),
        ({"o7": np.zeros(5, np.float32)}, "has o7, but the module gives 2 outputs"),
    ],
)
def test_what_does_not_fit_is_an_input_error(tmp_path: Path, change, complaint: str) -> None:
    arrays = {k: v for k, v in {**good(), **change}.items() if v is not None}
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, arrays)


@pytest.mark.parametrize("content", [None, b"", b"not a zip", b"PK\x03\x04broken"])
def test_what_is_no_npz(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "in.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"in\.npz"):
        read_inputs(parse(MODULE).module, str(path))


def test_an_array_alone_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"is no \.npz"):
        read_inputs(parse(MODULE).module, str(tmp_path / "in.npy"))


@needs_corpus
@each_small_module
def test_corpus_modules_get_arguments(name: str) -> None:
    module = corpus_file(name).module
    if all(p.shape.is_array for p in module.entry.parameters):
        for p, values in zip(module.entry.parameters, draw_inputs(module, 0), strict=True):
            assert len(values) == module.world
            assert all(v.shape == p.shape.dims and v.dtype == p.shape.dtype.numpy for v in values)
