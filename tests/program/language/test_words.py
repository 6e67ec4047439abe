"""Each word and keyword of the language: the ops that it becomes, and the type of what it gives."""

from __future__ import annotations

import math

import pytest

from crossrank.program.dialect.tensors import known
from crossrank.program.kinds import Level
from crossrank.program.language import arithmetic, memory
from crossrank.program.language.op import CHIP, HOST, KERNEL, Op
from crossrank.program.types import spelled
from tests.program.language.bench import Line, is_ssa, line

A, COL, ROW = "Tile[[4, 64], FP32]", "Tile[[4, 1], FP32]", "Tile[[1, 64], FP32]"
WIN, SIG = "DistributedTensor[[4, 64], FP32]", "DistributedTensor[[4, 1], INT32]"
INDEX = "Scalar[INDEX]"

# fmt: off
KERNELS = {
    # to tiles and back
    "pl.load(t, [1, 0], [2, 64])": ("load", "Tile[[2, 64], FP32]"),
    "pl.load(t, offsets=[0, 0], shapes=[4, 64], target_memory=pl.MemorySpace.Mat)": ("load", A),
    "pl.load(win, [0, 0], [4, 64], valid_shape=[x, 64])": ("index_cast load", A),
    "pl.load(t, [3, 0], [4, 64], clamp=True)": ("load", A),
    "pl.load(t, [x, 0], [4, 64], clamp=True)": ("subi maxsi minsi index_cast index_cast load", A),
    "pl.load(flat, [0, 0], [1, 64])": ("reshape load", ROW),
    "pl.load(deep, [0, 0], [4, 64])": ("slice load", A),
    "pl.load(dyn, [0, 0], [4, 64], [NR, 64])": ("symbol load", A),
    "pl.store(a, [0, 0], t)": ("store", "Tensor[[4, 64], FP32]"),
    "pl.store(a, offsets=[0, 0], output_tensor=win)": ("store", WIN),
    "pl.store(a, [0, 0, 0], deep)": ("store", "Tensor[[1, 4, 64], FP32]"),
    "pl.store(pl.load(row, [0, 0], [1, 64]), [0], flat)": ("load reshape store", "Tensor[[64], FP32]"),
    "pl.tile.create([4, 8], dtype=pl.BF16, target_memory=pl.MemorySpace.Vec)": ("full", "Tile[[4, 8], BF16]"),
    "pl.tile.full([1, 8], dtype=pl.INT32, value=0)": ("full", "Tile[[1, 8], INT32]"),
    "pl.full([1, 8], pl.BOOL, True)": ("full", "Tile[[1, 8], BOOL]"),
    "pl.move(a, target_memory=pl.MemorySpace.Left)": ("move", A),
    "pl.move(a, pl.MemorySpace.Right)": ("move", A),
    "pl.fillpad(a)": ("fillpad", A),
    "pl.fillpad(i, pad_value=pl.PadValue.min)": ("fillpad", "Tile[[4, 64], INT32]"),
    "pl.set_validshape(a, x, 64)": ("index_cast set_valid_shape", A),
    "pl.concat(a, col)": ("full assemble assemble", "Tile[[4, 65], FP32]"),
    # views, elements
    "pl.slice(t, [1, 64], [x, 0])": ("index_cast slice", "Tensor[[1, 64], FP32]"),
    "pl.tensor.slice(win, [NR, 64], [0, 0])": ("symbol slice", "DistributedTensor[[NR, 64], FP32]"),
    "pl.slice(t, [1, 64], [2, 0], drop_dims=[0])": ("slice", "Tensor[[64], FP32]"),
    "pl.slice(a, [1, 64], [2, 0])": ("slice", ROW),
    "pl.slice(t, [2, 64], [2, 0], valid_shape=[2, 8])":
        ("slice", "Tensor[[2, 64], FP32, TensorView(valid_shape=[2, 8])]"),
    "pl.slice(t, [2, 64], [2, 0], valid_shape=[2, 64])": ("slice", "Tensor[[2, 64], FP32]"),
    "pl.set_validshape(win, 3, 64)": ("slice", "DistributedTensor[[4, 64], FP32, TensorView(valid_shape=[3, 64])]"),
    "pl.slice(pl.set_validshape(t, 3, 64), [2, 64], [2, 0])":
        ("slice slice", "Tensor[[2, 64], FP32, TensorView(valid_shape=[1, 64])]"),
    "pl.slice(pl.set_validshape(t, 3, 64), [3, 64], [0, 0])": ("slice slice", "Tensor[[3, 64], FP32]"),
    "pl.tile.reshape(col, [1, 4])": ("reshape", "Tile[[1, 4], FP32]"),
    "pl.reshape(t, [2, -1])": ("reshape", "Tensor[[2, 128], FP32]"),
    "pl.transpose(t, 0, -1)": ("transpose", "Tensor[[64, 4], FP32]"),
    "pl.assemble(t, a, [0, 0])": ("store", "Tensor[[4, 64], FP32]"),
    "pl.assemble(t, u, [0, 0])": ("load store", "Tensor[[4, 64], FP32]"),
    "pl.tile.assemble(a, col, [0, 3])": ("assemble", A),
    "pl.read(ids, [x, 0])": ("index_cast read", "Scalar[INT32]"),
    "pl.tile.read(a, [0, 1])": ("read", "Scalar[FP32]"),
    "pl.read(flat, 3)": ("read", "Scalar[FP32]"),
    "pl.write(ids, [0, 0], x)": ("write", "Tensor[[4, 1], INT32]"),
    "pl.write(win, [0, 0], 1.5)": ("write", WIN),
    "pl.dim(dyn, 0)": ("dim", INDEX),
    "pl.slice(dyn, [pl.dim(dyn, 0), 64], [0, 0])": ("dim slice", "Tensor[[NR, 64], FP32]"),
    "pl.array.create(4, pl.INT32)": ("create_array", "Array[[4], INT32]"),
    "pl.array.get_element(pl.array.create(4, pl.INT32), 1)": ("create_array read", "Scalar[INT32]"),
    "pl.array.update_element(pl.array.create(4, pl.INT32), x, x)":
        ("create_array index_cast write", "Array[[4], INT32]"),
    # arithmetic
    "pl.add(a, t)": ("load binary", A),
    "pl.tensor.add(t, u)": ("load load binary", A),
    "pl.add(a, 1.0)": ("binary", A),
    "pl.add(1, a)": ("binary", A),
    "pl.sub(1.0, a)": ("full binary", A),
    "pl.mul(a, y)": ("binary", A),
    "pl.mul(i, x)": ("binary", "Tile[[4, 64], INT32]"),
    "pl.add(a, col)": ("binary", A),
    "pl.add(a, flat)": ("load reshape binary", A),
    "pl.maximum(a, a)": ("binary", A),
    "pl.min(x, 3)": ("minsi", "Scalar[INT32]"),
    "pl.max(a, 0)": ("binary", A),
    "pl.add(x, x)": ("addi", "Scalar[INT32]"),
    "pl.exp(t)": ("load unary", A),
    "pl.neg(y)": ("negf", "Scalar[FP32]"),
    "pl.cast(a, pl.FP16)": ("cast", "Tile[[4, 64], FP16]"),
    "pl.cast(a, target_type=pl.INT32, mode='floor')": ("cast", "Tile[[4, 64], INT32]"),
    "pl.cast(half, pl.FP32)": ("load cast", A),
    "pl.cast(a, pl.FP32)": ("", A),
    "pl.cast(x, pl.INDEX)": ("index_cast", INDEX),
    "pl.row_sum(a)": ("reduce", COL),
    "pl.tile.row_sum(a, a)": ("reduce", COL),
    "pl.col_max(a)": ("reduce", ROW),
    "pl.row_expand_mul(a, col)": ("binary", A),
    "pl.col_expand_expdif(a, row)": ("load binary unary", A),
    "pl.row_expand(a, col)": ("full binary", A),
    "pl.expands(a, 2)": ("full", A),
    "pl.cmp(a, 0.0, 4)": ("full full select", "Tile[[4, 64], BOOL]"),
    "pl.sel(pl.cmp(a, t), a, 0)": ("load full full select full select", A),
    "pl.matmul(a, t, b_trans=True)": ("load transpose matmul", "Tile[[4, 4], FP32]"),
    "pl.matmul(pl.cast(a, pl.BF16), pl.cast(a, pl.BF16), pl.BF16, a_trans=True)":
        ("cast cast transpose matmul cast", "Tile[[64, 64], BF16]"),
    "pl.matmul_acc(pl.matmul(a, a, None, False, True), a, a, b_trans=True)":
        ("transpose matmul transpose matmul", "Tile[[4, 4], FP32]"),
    # peers
    "pld.get_comm_ctx(win)": ("get_comm_ctx", "CommCtx"),
    "pld.rank(ctx)": ("rank", INDEX),
    "pld.nranks(ctx)": ("nranks", INDEX),
    "pld.tile.remote_load(win, peer=x, offsets=[0, 0], shape=[1, 64])": ("index_cast remote_load", ROW),
    "pld.remote_load(win, 1, [3, 0], [4, 64], valid_shape=[1, 64])": ("remote_load", A),
    "pld.tile.remote_store(a, target=win, peer=x, offsets=[0, 0])": ("index_cast remote_store", WIN),
    "pld.tile.remote_store(a, win, 0, [0, 0], atomic=pld.AtomicType.Add)": ("remote_store", WIN),
    "pld.tensor.remote_store(t, win, 0, [0, 0])": ("load remote_store", WIN),
    "pld.remote_store(t, win, 0, [0, 0])": ("load remote_store", WIN),
    "pld.tensor.put(win, peer=x, src=win2, atomic=pld.AtomicType.None_)": ("index_cast put", WIN),
    "pld.tensor.put(win, x, t, [1, 0], [0, 0], [1, 64])": ("index_cast put", WIN),
    "pld.tensor.put(win, 0, t, chunk_rows=2, chunk_cols=64, pipeline=True)": ("put", WIN),
    "pld.tensor.get(dst=t, peer=0, src=win, dst_offsets=[x, 0], src_offsets=[0, 0], shape=[1, 64])":
        ("index_cast get", "Tensor[[4, 64], FP32]"),
    "pld.system.notify(target=sig, peer=x, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)":
        ("index_cast notify", None),
    "pld.system.notify(sig, peer=0, offsets=[x, 0], value=x, op=pld.NotifyOp.Set)": ("index_cast notify", None),
    "pld.system.wait(signal=sig, offsets=[0, 0], expected=x, cmp=pld.WaitCmp.Eq)": ("wait", None),
    "pld.system.defer_wait(signal=sig, offsets=[0, 0], expected=x, cmp=pld.WaitCmp.Ge)": ("defer_wait", None),
    "pl.system.fence()": ("comm_fence", None),
    "pl.system.cacheinvalid(win, [1, 64], [0, 0])": ("slice cache_invalidate", None),
    "pl.get_block_idx()": ("block_idx", INDEX),
    "pl.get_block_num()": ("block_num", INDEX),
    # collectives
    "pld.tensor.allreduce(win, sig)": ("allreduce", WIN),
    "pld.tensor.allreduce(win, dynsig, op=pld.ReduceOp.Max, mode='ring', core_num=1)": ("allreduce", WIN),
    "pld.tensor.barrier(sig)": ("barrier", SIG),
    "pld.tensor.broadcast(win, sig, root=2)": ("broadcast", WIN),
    "pld.tensor.allgather(chunk, win, sig)": ("allgather", WIN),
    "pld.tensor.allgather(row, win, cells)": ("allgather", WIN),
    "pld.tensor.reduce_scatter(win, sig, op=pld.ReduceOp.Sum)": ("reduce_scatter", WIN),
    "pld.tensor.all_to_all(t, win, sig)": ("all_to_all", WIN),
    "pld.tensor.all_to_all_v(t, win, wide, ids, recv)": ("all_to_all_v", WIN),
}
CHIPS = {
    "pl.create_tensor([4, NR], dtype=pl.FP32)": ("symbol create_tensor", "Tensor[[4, NR], FP32]"),
    "pl.assemble(t, row, [2, 0])": ("assemble", "Tensor[[4, 64], FP32]"),
    "pl.slice(t, [1, 64], [0, 0], drop_dims=[0])": ("slice", "Tensor[[64], FP32]"),
    "pl.read(ids, [0, 0])": ("read", "Scalar[INT32]"),
    "pl.min(x, x)": ("minsi", "Scalar[INT32]"),
    "pl.system.task_dummy(deps=[])": ("join", "TaskId"),
    "pld.tensor.all_to_all_v(t, win, wide, ids, recv, core_num=8)": ("all_to_all_v", WIN),
}
HOSTS = {
    "pld.world_size()": ("world_size", INDEX),
    "pld.alloc_window_buffer(256, name='w')": ("alloc_window_buffer", "Ptr"),
    "pld.alloc_window_buffer(pld.world_size() if not x else x, name='w')": ("index_cast alloc_window_buffer", "Ptr"),
    "pld.alloc_window_buffer([4, NR], dtype=pl.INT32, name='w')": ("symbol muli alloc_window_buffer", "Ptr"),
    "pld.window(pld.alloc_window_buffer(256, name='w'), [1, 64], dtype=pl.FP32)":
        ("alloc_window_buffer window", "DistributedTensor[[1, 64], FP32]"),
    "pld.window(pld.alloc_window_buffer(256, name='w'), [pld.world_size(), NR], dtype=pl.FP32)":
        ("alloc_window_buffer world_size symbol window", "DistributedTensor[[?, NR], FP32]"),
    "pl.create_tensor([128, 128], dtype=pl.FP32)": ("create_tensor", "Tensor[[128, 128], FP32]"),
    "pld.tensor.allreduce(win, core_num=4)": ("allreduce", WIN),
    "pld.tensor.allreduce(win, cells, core_num=x)": ("index_cast allreduce", WIN),
}
PROPERTIES = [
    ("pld.tensor.put(win, 0, t, chunk_rows=2, chunk_cols=64, pipeline=True)",
     {"atomic": "None_", "chunk_rows": 2, "chunk_cols": 64, "pipeline": True}),
    ("pld.tensor.put(win, 0, t, atomic=pld.AtomicType.Add)", {"atomic": "Add", "chunk_rows": 0, "pipeline": False}),
    ("pld.tile.remote_store(a, win, 0, [0, 0], atomic=1)", {"atomic": "Add"}),
    ("pld.system.notify(sig, 0, [0, 0], 1, op=pld.NotifyOp.Set)", {"op": "Set"}),
    ("pld.system.wait(sig, [0, 0], 1, cmp=pld.WaitCmp.Eq)", {"cmp": "Eq"}),
    ("pld.tensor.allreduce(win, sig)", {"op": "Sum", "mode": "mesh"}),
    ("pld.tensor.allreduce(win, sig, op=pld.ReduceOp.Prod, mode='ring')", {"op": "Prod", "mode": "ring"}),
    ("pld.tensor.broadcast(win, sig, root=2)", {"root": 2}),
    ("pld.tensor.reduce_scatter(win, sig, op=pld.ReduceOp.Min)", {"op": "Min"}),
    ("pl.cast(a, pl.INT32)", {"rounding": "round"}),
    ("pl.cast(a, pl.INT32, mode=3)", {"rounding": "floor"}),
    ("pl.row_max(a)", {"op": "max", "axis": "row"}),
    ("pl.sub(a, a)", {"op": "sub"}),
    ("pl.cmp(a, a, 5)", {"comparison": "ge"}),
]
# fmt: on


@pytest.mark.parametrize(
    ("level", "text", "names", "type"),
    [
        (level, text, *wanted)
        for level, table in ((KERNEL, KERNELS), (CHIP, CHIPS), (HOST, HOSTS))
        for text, wanted in table.items()
    ],
)
def test_what_it_becomes(level: Level, text: str, names: str, type: str | None) -> None:
    found = line(text, level)
    assert found.names.replace("arith.", "") == names
    assert (spelled(found.value.type) if is_ssa(found.value) else found.value) == type


def property_of(found: Line, name: str) -> object:
    attribute = found.last.properties.get(name)
    data = getattr(attribute, "data", None) if hasattr(attribute, "data") else getattr(attribute, "value", attribute)
    return bool(attribute) if name == "pipeline" else getattr(data, "data", data)


@pytest.mark.parametrize(("text", "wanted"), PROPERTIES)
def test_how(text: str, wanted: dict[str, object]) -> None:
    found = line(text)
    assert {name: property_of(found, name) for name in wanted} == wanted


def test_numbers_that_python_knows_stay_its() -> None:
    for text, wanted in {
        "pl.dim(t, -1)": 64,
        "pl.min(7, 3)": 3,
        "pl.add(2, 3)": 5,
        "pl.FP32.get_byte() + pl.INT8.get_byte()": 5,
    }.items():
        found = line(text)
        assert found.value == wanted
        assert not found.ops


def test_values_of_constants() -> None:
    """What fills a tile is of its element type."""
    for text, wanted in {
        "pl.fillpad(a, pl.PadValue.min)": -math.inf,
        "pl.fillpad(i, pl.PadValue.max)": 2**31 - 1,
        "pl.fillpad(i)": 0,
        "pl.full([1], pl.FP32, 2)": 2.0,
    }.items():
        constant = line(text).last.operands[-1].owner
        assert constant.value.value.data == wanted


def test_a_clamped_load_reads_what_is_there() -> None:
    valid = line("pl.load(t, [3, 8], [4, 64], clamp=True)").last.valid_shape
    assert [v.owner.value.value.data for v in valid] == [1, 56]


def test_a_load_reads_what_is_valid() -> None:
    for text, wanted in {
        "pl.load(pl.set_validshape(t, 3, 32), [2, 16], [2, 64])": [1, 16],
        "pl.load(pl.set_validshape(t, 3, 32), [0, 0], [4, 64], valid_shape=[2, 64])": [2, 32],
        "pld.tile.remote_load(pl.set_validshape(win, 3, 32), 0, [0, 0], [4, 64])": [3, 32],
    }.items():
        assert [known(v) for v in line(text).last.valid_shape] == wanted


def test_each_word_has_a_title_and_says_what_it_does() -> None:
    for module in (arithmetic, memory):
        for name in module.__all__:
            word = getattr(module, name)
            assert isinstance(word, Op)
            assert word.title == f"pl.{name}"
            assert word.__doc__
