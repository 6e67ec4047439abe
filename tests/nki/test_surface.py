"""Every name that kernels written for NKI use is there, and takes what they give it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

from crossrank import nki
from crossrank.nki import collectives, isa, language

EXCHANGE = "srcs dsts replica_group metadata_tensor recv_counts_known=False has_rdispls=False priority name"
COLLECTIVES = {
    "all_reduce": "srcs dsts replica_group op priority name",
    "all_gather": "srcs dsts replica_group collective_dim priority name",
    "reduce_scatter": "srcs dsts replica_group collective_dim op priority name",
    "all_to_all": "srcs dsts replica_group collective_dim priority name",
    "all_to_all_v": EXCHANGE,
    "all_gather_v": EXCHANGE,
    "all_to_all_v_prepare": EXCHANGE,
    "all_gather_v_prepare": EXCHANGE,
    "all_to_all_v_trigger": "prepare_instr name",
    "all_gather_v_trigger": "prepare_instr name",
    "collective_permute": "srcs dsts source_target_pairs priority name",
    "collective_permute_implicit": "srcs_by_channel dsts_by_channel replica_group channel_ids=(0,) priority name",
    "collective_permute_implicit_reduce": "srcs0_by_channel srcs1_by_channel dsts_by_channel replica_group op "
    "channel_ids=(0,) priority name",
    "collective_permute_implicit_current_processing_rank_id": "iteration_id replica_group channel_id=0 name",
    "rank_id": "name",
}
ISA = {
    "dma_copy": "dst src priority oob_mode dge_mode engine name",
    "dma_transpose": "dst src axes priority dge_mode oob_mode name",
    "dma_compute": "dst srcs reduce_op scales unique_indices=True oob_mode name",
    "nc_matmul": "dst stationary moving is_stationary_onezero=False is_moving_onezero=False is_transpose=False "
    "accumulate tile_position=() tile_size=() perf_mode name",
    "nc_transpose": "dst data engine name",
    "tensor_copy": "dst src engine name",
    "tensor_copy_predicated": "dst src predicate reverse_pred=False name",
    "memset": "dst value engine name",
    "tensor_tensor": "dst data1 data2 op engine name",
    "tensor_scalar": "dst data op0 operand0 reverse0=False op1 operand1 reverse1=False engine name",
    "scalar_tensor_tensor": "dst data op0 operand0 op1 operand1 reverse0=False reverse1=False name",
    "tensor_scalar_reduce": "dst data op0 operand0 reduce_op reduce_res reverse0=False reduce_cmd reduce_init name",
    "tensor_scalar_cumulative": "dst src op0 op1 imm0 imm1 reduce_cmd name",
    "nonzero_with_count": "dst src index_offset=0 padding_val=-1",
    "tensor_tensor_scan": "dst data0 data1 initial op0 op1 reverse0=False reverse1=False name",
    "tensor_reduce": "dst op data axis negate=False keepdims=False name",
    "tensor_partition_reduce": "dst op data name",
    "activation": "dst op data bias scale=1.0 reduce_op reduce_res reduce_cmd name",
    "activation_reduce": "dst op data reduce_op reduce_res bias scale=1.0 name",
    "reciprocal": "dst data name",
    "select_reduce": "dst predicate on_true on_false reduce_res reduce_cmd reduce_op reverse_pred=False name",
    "range_select": "dst on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd reduce_res reduce_op range_start=0 "
    "on_false_value name",
    "iota": "dst pattern offset=0 channel_multiplier=0 name",
    "affine_select": "dst pattern channel_multiplier on_true_tile on_false_value cmp_op offset=0 name",
    "max8": "dst src name",
    "nc_find_index8": "dst data vals name",
    "nc_match_replace8": "dst data vals imm dst_idx name",
    "nc_stream_shuffle": "dst src shuffle_mask name",
    "nc_n_gather": "dst data indices",
    "local_gather": "dst src_buffer index num_elem_per_idx=1 num_valid_indices",
    "bn_stats": "dst data",
    "bn_aggr": "dst data",
    "sendrecv": "src dst send_to_rank recv_from_rank pipe_id dma_engine name",
    "core_barrier": "data cores engine name",
    "register_alloc": "x",
    "register_move": "dst src",
    "register_load": "dst src",
    "register_store": "dst src",
    "get_nc_version": "",
}
LANGUAGE = {
    "ndarray": "shape dtype buffer name='' address",
    "zeros": "shape dtype buffer name=''",
    "ones": "shape dtype buffer name=''",
    "full": "shape fill_value dtype buffer name=''",
    "zeros_like": "x dtype buffer name=''",
    "empty_like": "x dtype buffer name=''",
    "affine_range": "start stop step=1",
    "sequential_range": "start stop step=1",
    "static_range": "start stop step=1",
    "dynamic_range": "start stop step=1",
    "fori_loop": "lower upper body_fun step=1",
    "while_loop": "init body_fun",
    "ds": "start size",
    "program_id": "axis=0",
    "num_programs": "axes=0",
    "program_ndim": "",
    "load": "src dtype",
    "store": "dst value",
    "shared_constant": "constant dtype",
    "shared_identity_matrix": "n dtype dst",
    **dict.fromkeys(("sum", "prod", "mean", "var"), "x axis dtype keepdims=False"),
    "all": "x axis dtype",
    "softmax": "x axis=-1 dtype",
    "rms_norm": "x w axis n epsilon=1e-06 dtype compute_dtype",
    "where": "condition x y dtype",
    "expand_dims": "x axis",
    "broadcast_to": "x shape dtype",
    "transpose": "x dtype",
    "matmul": "x y transpose_x=False",
    "load_transpose2d": "src dtype",
    "gather_flattened": "data indices axis=0 dtype",
    "device_print": "print_prefix tensor",
    "no_reorder": "",
    "all_reduce": "x op program_axes dtype mask parallel_reduce=True asynchronous=False",
    "is_hbm": "buffer",
    "is_on_chip": "buffer",
    "is_psum": "buffer",
    "is_sbuf": "buffer",
}
CASES = [
    (module, name, parameters)
    for module, table in ((collectives, COLLECTIVES), (isa, ISA), (language, LANGUAGE))
    for name, parameters in table.items()
]


@pytest.mark.parametrize(("module", "name", "parameters"), CASES, ids=[f"{m.__name__[14:]}.{n}" for m, n, _ in CASES])
def test_parameters(module, name, parameters):
    """In the documented order, by position or by keyword; ours, if there are more, come last."""
    found = list(inspect.signature(getattr(module, name)).parameters.values())
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found)
    for parameter, wanted in zip(found, parameters.split(), strict=False):
        key, _, default = wanted.partition("=")
        assert parameter.name == key
        if default:
            assert repr(parameter.default) == default
    assert len(found) >= len(parameters.split())


NAMES = [
    (language, "sbuf psum hbm private_hbm shared_hbm tile_size NKIObject par_dim"),
    (language, "bool_ int8 int16 int32 uint8 uint16 uint32 float16 float32 bfloat16 tfloat32"),
    (language, "float8_e4m3 float8_e4m3fn float8_e5m2 float8_e5m2_x4 float8_e4m3fn_x4 float8_e8m0fnu float4_e2m1fn_x4"),
    (language, "add subtract multiply divide maximum minimum max min abs abs_max abs_min power invert exp log sqrt"),
    (language, "bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor rsqrt"),
    (language, "equal not_equal less less_equal greater greater_equal square copy bypass logical_not"),
    (language, "silu gelu gelu_apprx_tanh gelu_apprx_sigmoid tanh sigmoid relu average prelu"),
    (language, "cos tan ceil floor trunc negative mod fmod sin arctan"),
    (isa, "engine reduce_cmd dge_mode oob_mode matmul_perf_mode nc_version dma_engine VirtualRegister"),
    (isa, "NkiValidationError tensor_engine vector_engine scalar_engine gpsimd_engine unknown_engine constants"),
    (collectives, "ReplicaGroup rg_partition_op"),
    (nki, "jit simulate install dtype collectives language isa typing"),
]


@pytest.mark.parametrize(("module", "names"), NAMES)
def test_names(module, names):
    assert [n for n in names.split() if not hasattr(module, n)] == []


def test_enums_and_sizes():
    members = {
        isa.engine: "tensor vector scalar gpsimd dma sync unknown",
        isa.reduce_cmd: "idle reset reduce reset_reduce load_reduce",
        isa.dge_mode: "unknown swdge hwdge none",
        isa.oob_mode: "error skip",
        isa.matmul_perf_mode: "none double_row",
        isa.dma_engine: "dma gpsimd_dma",
        isa.nc_version: "gen2 gen3 gen4",
        collectives.rg_partition_op: "bitwise_and div mod",
    }
    assert {e: " ".join(e.__members__) for e in members} == members
    size = language.tile_size
    assert (size.pmax, size.gemm_stationary_fmax, size.gemm_moving_fmax, size.psum_fmax) == (128, 128, 512, 512)
    assert isa.nc_version.gen3 >= 3
    assert isa.nc_version.gen4 > isa.nc_version.gen2
    assert language.hbm is language.private_hbm
    assert np.ones(2, np.float32).astype(language.bfloat16).dtype == language.bfloat16
    assert {language.float8_e4m3: 240.0, language.float8_e5m2: 57344.0}[language.float8_e5m2] == 57344.0


KERNEL = """
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.isa.constants as constants
import nki.language as nl
import nki.typing as nt
from nki.collectives import ReplicaGroup
from nki.isa import oob_mode
from nki.isa.constants import oob_mode as same

@nki.jit(platform_target="trn2")
def kernel(x: nt.tensor, group: ReplicaGroup, dtype: nki.dtype = nl.float32) -> nl.ndarray:
    assert nisa.get_nc_version() == constants.nc_version.gen3 and oob_mode is same
    y = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    ncc.all_reduce(srcs=[x], dsts=[y], replica_group=group, op=nl.add)
    return y
"""


def test_install_answers_imports(tmp_path):
    """In a process of its own: what is imported stays imported."""
    (tmp_path / "written_for_nki.py").write_text(KERNEL)
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np
import crossrank.nki
crossrank.nki.install()
crossrank.nki.install()
import written_for_nki
from neuronxcc.nki.language import float32
import neuronxcc.nki.isa as old
import nki
assert nki is crossrank.nki and old is nki.isa
group = nki.collectives.ReplicaGroup([[0, 1]])
arguments = [(np.full(3, n, np.float32), group) for n in (1, 2)]
print([r.tolist() for r in nki.simulate(written_for_nki.kernel, ranks=2)(arguments)])
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout == "[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]\n", found.stderr


def test_install_leaves_another_nki_alone(tmp_path):
    (tmp_path / "nki.py").write_text("")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import nki, crossrank.nki
try:
    crossrank.nki.install()
except crossrank.errors.InputError as error:
    print(error.what)
assert sys.modules["nki"] is nki and nki is not crossrank.nki
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout == f"another nki is imported already, from {tmp_path / 'nki.py'}\n", found.stderr
