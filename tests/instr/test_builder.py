import inspect
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from crossrank.collective import semantics
from crossrank.collective.groups import parse_groups
from crossrank.collective.kinds import ReduceOp
from crossrank.errors import InputError
from crossrank.instr import AluOp, CollectiveKind, KernelBuilder, parallel_state
from crossrank.instr.grid import ProgramAxis
from crossrank.instr.instructions import InstCollectiveCompute, InstCoreBarrier
from crossrank.instr.kinds import CcTypeHint
from crossrank.instr.op_classes import KIND_OF
from tests.instr.kernels import kernel, run

HBM = "private_hbm"

SIGNATURES = {
    "all_reduce_cc_raw": "op, srcs, dsts, replica_groups, dtype=None, tiled=False, dma_qos=None",
    "all_reduce_cc": "op, srcs, dsts, dtype=None, tiled=False, dma_qos=None",
    "all_gather_cc_raw": "srcs, dsts, replica_groups, all_gather_dim, dtype=None, dma_qos=None",
    "all_gather_cc": "srcs, dsts, all_gather_dim, dtype=None, dma_qos=None",
    "reduce_scatter_cc_raw": "op, srcs, dsts, replica_groups, reduce_scatter_dim, dtype=None, dma_qos=None",
    "reduce_scatter_cc": "op, srcs, dsts, reduce_scatter_dim, dtype=None, dma_qos=None",
    "all_to_all_cc_raw": "srcs, dsts, replica_groups, split_dimension, concat_dimension, dtype=None, dma_qos=None",
    "all_to_all_cc": "srcs, dsts, split_dimension, concat_dimension, dtype=None, dma_qos=None",
    "broadcast_cc_raw": "srcs, dsts, replica_groups, broadcast_sizes, dtype=None, dma_qos=None",
    "broadcast_cc": "srcs, dsts, broadcast_sizes, dtype=None, dma_qos=None",
    "collective_permute_cc_raw": "srcs, dsts, replica_groups, dtype=None, dma_qos=None",
    "collective_permute_cc": "srcs, dsts, dtype=None, dma_qos=None",
    "tiled_collective_permute_cc_raw": "srcs, dsts, src_tgt_pairs, dtype=None, dma_qos=None",
    "tiled_collective_permute_implicit_cc_raw": (
        "srcs, dsts, replica_groups, channel_id, num_channels, dtype=None, dma_qos=None"
    ),
    "tiled_collective_permute_reduce_implicit_cc_raw": (
        "op, srcs, dsts, replica_groups, channel_id, num_channels, dtype=None, dma_qos=None"
    ),
    "send_cc_raw": "srcs, peer_id, dma_qos=None",
    "recv_cc_raw": "dsts, peer_id, dma_qos=None",
    "sendrecv": (
        "dst, src, send_to_rank, recv_from_rank, pipe_id, use_gpsimd_dma=False, dma_qos=None, mask=None, deps=None, "
        "name=None"
    ),
    "sendrecv_cce": (
        "dst, src, send_to_rank, recv_from_ranks, op, pipe_id, dma_qos=None, mask=None, deps=None, name=None"
    ),
    "core_barrier": "wait_target, cores, engine='gpsimd', name=None",
    "rank_id": "dst=None, world_size=None, mask=None, name=None",
    "insert_raw_cc": "inst",
    "sync_program": "axes=None",
    "post_process_allreduce_result": "program_axes=(), reduce_axes=(), parallel_axes=(), is_async=False",
    "post_process_spmd_grid": "grid",
}


EXTENSIONS = {
    "all_to_all_v_cc_raw": (
        "srcs, dsts, replica_groups, metadata, recv_counts_known=False, has_rdispls=False, phase='', dtype=None, "
        "dma_qos=None"
    ),
    "collective_permute_reduce_cc_raw": "op, srcs, dsts, src_tgt_pairs, dtype=None, dma_qos=None",
    "cur_processing_rank_id": "iteration_id, replica_groups, channel_id=0, num_channels=1, name=None",
}


@pytest.mark.parametrize("method", [*SIGNATURES, *EXTENSIONS])
def test_signatures(method):
    said = (SIGNATURES | EXTENSIONS)[method]
    wanted = inspect.signature(eval(f"lambda self, {said}: 0")).parameters.values()
    given = inspect.signature(getattr(KernelBuilder, method)).parameters.values()
    plain = [(p.name, p.default) for p in given if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert plain == [(p.name, p.default) for p in wanted]


class Recording(KernelBuilder):
    """Notes which way each op goes into the program."""

    def __init__(self, **options):
        super().__init__(**options)
        self.ways = []

    def insert_raw_cc(self, inst):
        self.ways.append((type(inst).__name__, "insert_raw_cc"))
        return super().insert_raw_cc(inst)

    def insert(self, inst):
        self.ways.append((type(inst).__name__, "insert"))
        return super().insert(inst)


class Made:
    """A builder of 4 ranks of 2 cores, with tensors to work on."""

    def __init__(self, **options):
        self.b = Recording(**{"world_size": 4, "lnc": 2} | options)
        self.x, self.y = (self.b.tensor((8, 4), "f32", HBM, name) for name in "xy")
        self.wide = self.b.tensor((32, 4), "f32", HBM)
        self.part = self.b.tensor((2, 4), "f32", HBM)
        self.shared = self.b.tensor((8, 4), "f32", "shared_hbm")
        self.s, self.t = (self.b.tensor((8, 4), "f32", "sbuf") for _ in range(2))

    def do(self, method, *args, **kwargs):
        """Call a method; a word is a tensor of that name, in a list too."""

        def of(value):
            return [of(v) for v in value] if isinstance(value, list) else getattr(self, str(value), value)

        return getattr(self.b, method)(*map(of, args), **{k: of(v) for k, v in kwargs.items()})


ALL, HALVES, RING = ((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2, 3, 1),)
K = CollectiveKind
CALLS = [
    # method, arguments, op class, kind, way, routing
    ("all_reduce_cc_raw", ["add", ["x"], ["y"], HALVES], "AllReduceOp", K.ALL_REDUCE, {"replica_groups": HALVES}),
    ("all_reduce_cc_raw", ["max", ["x"], ["y"], ALL, None, True], "TiledAllReduceOp", K.ALL_REDUCE, {"op": AluOp.MAX}),
    ("all_reduce_cc", ["average", ["x"], ["y"]], "AllReduceOp", K.ALL_REDUCE, {"replica_groups": ALL}),
    ("all_gather_cc_raw", [["x"], ["wide"], ALL, 0], "AllGatherOp", K.ALL_GATHER, {"cc_dim": 0}),
    ("all_gather_cc", [["x"], ["wide"], 0], "AllGatherOp", K.ALL_GATHER, {"replica_groups": ALL}),
    ("reduce_scatter_cc_raw", ["min", ["x"], ["part"], ALL, 0], "ReduceScatterOp", K.REDUCE_SCATTER, {"cc_dim": 0}),
    ("reduce_scatter_cc", ["min", ["x"], ["part"], 0], "ReduceScatterOp", K.REDUCE_SCATTER, {"op": AluOp.MIN}),
    ("collective_permute_cc_raw", [["x"], ["y"], RING], "CollectivePermuteOp", K.PERMUTE_IMPLICIT, {"channel_id": -1}),
    ("collective_permute_cc", [["x"], ["y"]], "CollectivePermuteOp", K.PERMUTE_IMPLICIT, {"replica_groups": ALL}),
    (
        *("tiled_collective_permute_cc_raw", [["s"], ["t"], [(0, 1), (2, 3)]], "TiledCollectivePermuteOp", K.PERMUTE),
        {"src_target_pairs": ((0, 1), (2, 3)), "replica_groups": ()},
    ),
    (
        *("tiled_collective_permute_implicit_cc_raw", [["s"], ["t"], RING, 1, 2]),
        *("TiledCollectivePermuteOp", K.PERMUTE_IMPLICIT),
        {"channel_id": 1, "num_channels": 2, "replica_groups": RING, "src_target_pairs": ()},
    ),
    (
        *("tiled_collective_permute_reduce_implicit_cc_raw", ["mult", ["s", "t"], ["t"], RING, 3, 4]),
        *("TiledCollectivePermuteReduceOp", K.PERMUTE_REDUCE_IMPLICIT),
        {"channel_id": 3, "num_channels": 4, "op": AluOp.MULT},
    ),
    ("broadcast_cc_raw", [["x"], ["y"], HALVES, [2, 4]], "BroadcastOp", K.BROADCAST, {"broadcast_sizes": (2, 4)}),
    ("broadcast_cc", [["x"], ["y"], []], "BroadcastOp", K.BROADCAST, {"replica_groups": ALL}),
    (
        *("all_to_all_cc_raw", [["x"], ["y"], ALL, 0, 0], "AlltoAllOp", K.ALL_TO_ALL),
        {"cc_dim": 0, "concat_dim": 0, "split_count": 4},
    ),
    ("all_to_all_cc", [["x"], ["y"], 0, 0], "AlltoAllOp", K.ALL_TO_ALL, {"replica_groups": ALL}),
    ("send_cc_raw", [["x"], 3], "SendOp", None, {"peer_id": 3}),
    ("recv_cc_raw", [["y"], 3], "RecvOp", None, {"peer_id": 3}),
    (
        *("sendrecv", ["t", "s", 1, 1, 5, True], "SendRecvOp", K.SEND_RECV),
        {"send_to_rank": 1, "recv_from_ranks": (1,), "pipe_id": 5, "use_gpsimd_dma": True}
        | {"is_local": True, "initial_core_barrier": True},
    ),
    (
        *("sendrecv_cce", ["t", "s", 1, [1], "add", 5], "SendRecvCCEOp", K.SEND_RECV_CCE),
        {"recv_from_ranks": (1,), "op": AluOp.ADD, "is_local": True, "use_gpsimd_dma": False},
    ),
    ("core_barrier", ["shared", [0, 1], "vector"], "CoreBarrierOp", None, {"cores": (0, 1), "engine": "vector"}),
]
LOCAL_STREAM = ("sendrecv", "sendrecv_cce", "core_barrier")
NUMBERS = {"send_cc_raw": 49, "recv_cc_raw": 50, "core_barrier": 87}


@pytest.mark.parametrize(("method", "args", "op_class", "kind", "routing"), CALLS)
def test_each_method(method, args, op_class, kind, routing):
    made = Made()
    inst = made.do(method, *args)
    way = "insert" if method in LOCAL_STREAM else "insert_raw_cc"
    assert made.b.ways == [(op_class, way)]
    assert made.b.has_collectives == (way == "insert_raw_cc")
    assert NUMBERS.get(method, 48) == inst.NUMBER
    for name, value in routing.items():
        assert getattr(inst.fields, name) == value, name
    if kind is not None:
        assert (inst.fields.kind, inst.fields.op_class) == (kind, op_class)
        assert KIND_OF[op_class] in (kind, None)


def test_every_method_of_the_roster_is_here():
    tested_by_themselves = {"rank_id", "insert_raw_cc", "sync_program"}
    assert {call[0] for call in CALLS} | tested_by_themselves | {m for m in SIGNATURES if m.startswith("post_")} == set(
        SIGNATURES
    )
    assert len(SIGNATURES) == 25


def test_kinds():
    assert [k.name for k in sorted(K)] == [
        *("SEND_RECV", "SEND_RECV_CCE", "ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "ALL_TO_ALL", "ALL_TO_ALL_V"),
        *("PERMUTE", "PERMUTE_REDUCE", "PERMUTE_IMPLICIT", "PERMUTE_REDUCE_IMPLICIT", "BROADCAST"),
    ]
    assert [k for k in K if k.is_extension] == [K.ALL_TO_ALL_V, K.PERMUTE_REDUCE, K.BROADCAST]
    assert {o: int(AluOp.of(o)) for o in ("add", "multiply", "maximum", "min", "average")} == {
        "add": 4,
        "multiply": 6,
        "maximum": 8,
        "min": 9,
        "average": 24,
    }


def test_labels():
    made = Made()
    labels = [made.do("all_reduce_cc", "add", ["x"], ["y"]).label for _ in range(2)]
    labels += [made.do("collective_permute_cc", ["x"], ["y"]).label]
    labels += [made.do("tiled_collective_permute_cc_raw", ["x"], ["y"], [(0, 1)]).label]
    labels += [made.do("sendrecv", "t", "s", 1, 1, 0).label]
    labels += [made.do("sendrecv_cce", "t", "s", 1, [1], "add", 0).label]
    labels += [made.do("all_reduce_cc_raw", "add", ["x"], ["y"], ((0, 1),), is_local=True, name="mine").label]
    labels += [made.do("send_cc_raw", ["x"], 1).label]
    assert labels == [
        *("AllReduce-0", "AllReduce-1", "CollectivePermuteImplicit-0", "CollectivePermute-0"),
        *("LocalSendRecv-0", "LocalSendRecvCCE-0", "mine", "Send-0"),
    ]


def test_operands():
    """Groups and tiles take any elements; permutes take whole tensors in HBM; a barrier's semaphore is in and out."""
    made = Made()
    b = made.b
    inst = b.all_reduce_cc("add", [made.x[::2, 1:3], made.y[0:4, 0:2]], [made.y[4:8, 0:2], made.wide[4:8, ::2]])
    assert [a.fields.pattern for a in inst.in_accesses] == [((8, 4), (1, 2)), ((4, 4), (1, 2))]
    assert [(a.of.fields.name, a.fields.offset) for a in inst.out_accesses] == [("y", 16), (made.wide.name, 16)]
    assert b.all_gather_cc([made.s], [made.b.tensor((8, 16), "f32")], 1).in_accesses[0].type.space == "sbuf"
    barrier = b.core_barrier(made.shared, [0, 1])
    assert barrier.in_accesses == barrier.out_accesses
    assert barrier.in_accesses[0].of.type.space == "sbuf"
    assert b.program_barriers == [barrier.label]


def test_qos_dtype_and_dependences():
    made = Made()
    first = made.do("all_reduce_cc", "add", ["x"], ["y"], "f32", False, 3)
    assert first.fields.dma_qos == 3
    second = made.do("sendrecv", "t", "s", 1, 1, 0, deps=[first.label])
    assert second.deps == ("AllReduce-0",)
    assert made.do("sendrecv", "t", "s", 1, 1, 0, mask=False) is None
    assert made.do("sendrecv_cce", "t", "s", 1, [1], "add", 0, mask=np.bool_(False)) is None
    kernel(made.b)


def test_fields_that_are_carried_through():
    made = Made()
    inst = made.do("all_gather_cc", ["x"], ["wide"], 0)
    carried = {"stream_id": 1, "cc_type_hint": CcTypeHint.FSDP, "permute_chain": (1, 2), "unique_tensors_type": 3}
    inst.fields = replace(inst.fields, **carried)
    (again,) = kernel(made.b).programs[0].instructions()
    assert again.fields == inst.fields


ERRORS = [
    (["core_barrier", "s", [0, 1]], "core_barrier can only wait for HBM Tensor."),
    (
        ["core_barrier", "tile", [0, 1]],
        "core_barrier can only wait for full HBM Tensor, but tile of HBM Tensor is passed in.",
    ),
    (["core_barrier", "shared", [1]], "CoreBarrier-0: core 0 waits at a barrier of the cores [1]"),
    (["core_barrier", "shared", [0, 2]], "core 2 is none of the 2 cores of a rank"),
    (["rank_id", None, None, np.ones(2)], "rank_id can only support scalar mask"),
    (["sendrecv", "t", "s", 1, 1, 0, False, None, np.ones(2)], "sendrecv can only support scalar mask"),
    (
        ["post_process_allreduce_result", [0]],
        "program_axes of all_reduce must be program_id! Consider use loop_reduce or reduce instead.",
    ),
    (
        ["post_process_allreduce_result", [], [ProgramAxis(0, 0, 2)]],
        "reduce_axes of all_reduce cannot be program_id!",
    ),
    (["all_to_all_cc", ["x"], ["y"], None, 0], "Illegal AlltoAll without split_dimension"),
    (["all_to_all_cc", ["x"], ["y"], 0, None], "Illegal AlltoAll without concat_dimension"),
    (["all_to_all_cc", ["x", "x"], ["y", "y"], 0, 0], "Expect single alltoall buffer"),
    (["collective_permute_cc", ["x", "x"], ["y", "y"]], "Expect single CollectivePermute"),
    (["tiled_collective_permute_cc_raw", ["s", "s"], ["t"], [(0, 1)]], "Expect single CollectivePermute"),
    (["broadcast_cc", ["x", "x"], ["y", "y"], []], "Expect single broadcast buffer"),
    (["broadcast_cc", ["x"], ["y"], [9, 4]], "broadcast_sizes [9, 4] are no extents within [8, 4]"),
    (["all_to_all_v_cc_raw", ["x"], ["y"], ALL, "part"], "the metadata is uint32 of shape [3, 4], and"),
    (["all_to_all_v_cc_raw", ["x"], ["y"], ALL, "part", False, False, "soon"], "'prepare', 'trigger' or empty"),
    (
        ["tiled_collective_permute_reduce_implicit_cc_raw", "add", ["s"], ["t"], ALL, 0, 1],
        "Expect 2 input buffers and 1 output buffer",
    ),
    (
        ["tiled_collective_permute_reduce_implicit_cc_raw", "median", ["s", "s"], ["t"], ALL, 0, 1],
        "err_instruction_unsupported_op",
    ),
    (["collective_permute_cc", ["tile"], ["y"]], "Cannot legalize strided load/store!"),
    (["collective_permute_cc", ["s"], ["y"]], "a permute takes tensors in HBM, and"),
    (["sendrecv", "t", "s", 1.5, 1, 0], "The sendToRank must be a integer"),
    (["sendrecv", "t", "s", 1, True, 0], "The recvFromRank must be a integer"),
    (["sendrecv_cce", "t", "s", 1, [None], "add", 0], "The recvFromRank must be a integer"),
    (["sendrecv", "t", "s", 1, 1, "a"], "The pipeId must be a integer"),
    (["sendrecv", "t", "s", 1, 0, 0], "SendRecv instruction on core 0 is receiving from itself!"),
    (["sendrecv", "t", "s", 0, 1, 0], "SendRecv instruction on core 0 is sending to itself!"),
    (["sendrecv", "t", "s", 2, 1, 0], "core 2 is none of the 2 cores of a rank"),
    (["sendrecv", "t", "s", 1, 1, 0, False, None, None, ["later"]], "there is no instruction later before this one"),
    (["all_reduce_cc", "add", ["x"], ["y"], None, False, 4], "dma_qos is 0, 1, 2, 3 or None, not 4"),
    (["all_reduce_cc", "add", ["x"], ["y"], "bf16"], "dtype is bf16, and x[8, 4] has elements of f32"),
    (["all_reduce_cc", "median", ["x"], ["y"]], "no reduction is called 'median'"),
    (["all_reduce_cc", "add", "x", ["y"]], "operands are lists of tensors, not x[8, 4]"),
    (["all_reduce_cc", "add", [np.ones(2)], ["y"]], "an operand is a tensor of the kernel, not ndarray"),
    (["all_reduce_cc", "add", ["x"], ["x", "y"]], "AllReduce-0: 1 sources, but 2 destinations"),
    (["all_reduce_cc", "add", [], []], "AllReduce-0: sources and destinations are needed"),
    (["all_reduce_cc_raw", "add", ["x"], ["y"], [0, 1]], "replica groups are lists of integers, not [0, 1]"),
    (["all_reduce_cc_raw", "add", ["x"], ["y"], []], "replica groups are needed, and none may be empty"),
    (["all_reduce_cc_raw", "add", ["x"], ["y"], [[0], [1, 2]]], "replica groups must have one size"),
    (["all_reduce_cc_raw", "add", ["x"], ["y"], [[0, 1], [1, 2]]], "rank 1 is in more than one list"),
    (["all_reduce_cc_raw", "add", ["x"], ["y"], [[0, 4]]], "rank 4 is none of the 4 ranks"),
    (["all_gather_cc", ["x"], ["y"], 0], "AllGather-0: from a source of shape [8, 4] the destination gets [32, 4]"),
    (["all_gather_cc", ["x"], ["wide"], 2], "a collective's dimension is 0 (partition) or 1 (free), not 2"),
    (["reduce_scatter_cc_raw", "add", ["part"], ["x"], ALL, 0], "dimension 0 of extent 2 cannot be split among 4"),
    (["tiled_collective_permute_cc_raw", ["x"], ["y"], [(0, 1), (2, 1)]], "a rank is the target of two pairs"),
    (["tiled_collective_permute_cc_raw", ["x"], ["y"], []], "source-target pairs are needed"),
    (["tiled_collective_permute_implicit_cc_raw", ["x"], ["y"], ALL, 0, 3], "num_channels is 1, 2 or 4, not 3"),
    (["tiled_collective_permute_implicit_cc_raw", ["x"], ["y"], ALL, 2, 2], "channel_id 2 is none of the 2 channels"),
    (["send_cc_raw", ["x"], 4], "peer 4 is none of the 4 ranks"),
    (["tensor", (129, 2), "f32", "sbuf"], "runs over at most 128 partitions"),
    (["tensor", (-1,), "f32", HBM], "has a negative extent: [-1]"),
    (["tensor", 4, "f32"], "shapes are lists of integers"),
    (["tensor", (4,), "f33"], "'f33' is no element type"),
    (["tensor", (4,), "f32", "dram"], "there is no memory 'dram'"),
    (["tensor", (4,), "f32", HBM, "sbuf-0"], "two are named sbuf-0"),
    (["output", "tile"], "an output is a whole tensor"),
]
VERBATIM = {
    "core_barrier can only wait for HBM Tensor.",
    "core_barrier can only wait for full HBM Tensor, but tile of HBM Tensor is passed in.",
    "rank_id can only support scalar mask",
    "program_axes of all_reduce must be program_id! Consider use loop_reduce or reduce instead.",
    "reduce_axes of all_reduce cannot be program_id!",
    "Illegal AlltoAll without split_dimension",
    "Illegal AlltoAll without concat_dimension",
    "The sendToRank must be a integer",
    "The recvFromRank must be a integer",
    "The pipeId must be a integer",
    "SendRecv instruction on core 0 is receiving from itself!",
    "SendRecv instruction on core 0 is sending to itself!",
    "Expect single alltoall buffer",
    "Expect single CollectivePermute",
    "Expect single broadcast buffer",
    "Cannot legalize strided load/store!",
    "err_instruction_unsupported_op",
}
"""The texts that are the source's: nothing is added to them."""
assert {text for _, text in ERRORS} >= VERBATIM


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda r: r + 0.5, "registers compute with whole numbers of 32 bits, and not with 0.5"),
        (lambda r: r + (1 << 40), "1099511627776 does not fit into the 32 bits of a register"),
        (lambda r: r << 40, "a register has 32 bits, and cannot be shifted by 40"),
    ],
)
def test_what_a_register_cannot_compute(compute, text):
    with pytest.raises(InputError, match=re.escape(text)):
        compute(KernelBuilder(world_size=2).rank_id())


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text[:40] for _, text in ERRORS])
def test_errors(call, text):
    made = Made()
    made.tile = made.shared[0:4]
    with pytest.raises(InputError) as caught:
        made.do(*call)
    said = caught.value.what
    assert said == text if text in VERBATIM else text in said
    assert str(caught.value).count("\n") <= 1


def test_permute_reduce_along_pairs_is_refused_unless_asked_for():
    b = KernelBuilder(world_size=2)
    x, y = b.input("x", (2,), "s32"), b.tensor((2,), "s32", HBM)
    call = "add", [x, x], [y], [(0, 1)]
    with pytest.raises(InputError, match=r"^Collective PermuteReduce is not supported for now$"):
        b.collective_permute_reduce_cc_raw(*call)
    made = b.collective_permute_reduce_cc_raw(*call, extension=True)
    assert (made.fields.kind, made.fields.op_class) == (K.PERMUTE_REDUCE, "CollectivePermuteReduceOp")
    b.output(y)
    assert [r[0].tolist() for r in run(kernel(b), [[np.array([1, 2], np.int32)]] * 2)] == [[-1, -1], [2, 4]]


def test_cores_meet_from_level_30_on():
    Made(arch=30).do("core_barrier", "shared", [0, 1])
    with pytest.raises(InputError, match="core_barrier needs architecture level 30 or more, not 20"):
        Made(arch=20).do("core_barrier", "shared", [0, 1])


def test_groups_nobody_gave():
    assert parallel_state.gen_all_worker_group(3) == ((0, 1, 2),)
    assert parallel_state.gen_all_collective_permute_config(3) == ((0, 1, 2),)


# The grid


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,3},{1,2}}", ((0, 3), (1, 2))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'x'}", ((0, 2), (1, 3))),
    ],
)
def test_groups_in_the_forms_of_hlo(text, groups):
    b = KernelBuilder(world_size=4)
    x = b.tensor((4, 4), "f32")
    assert b.all_reduce_cc_raw("add", [x], [x], parse_groups(text)).fields.replica_groups == groups


def test_a_grid_lies_over_the_cores():
    for core, ids in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        b = KernelBuilder(lnc=4, core=core, grid=(2, 2))
        assert (b.program_id(0), b.program_id(1)) == ids
        assert [a.extent for a in b.program_axes] == [2, 2]
    assert KernelBuilder().post_process_spmd_grid(None) == ()
    with pytest.raises(InputError, match=r"a grid of \[3\] has 3 programs, and a rank has 2 cores"):
        KernelBuilder(lnc=2, grid=(3,))
    with pytest.raises(InputError, match="the launch grid has 1 axes, and so no axis 1"):
        KernelBuilder(lnc=2, grid=(2,)).program_id(1)


@pytest.mark.parametrize(("axes", "cores"), [(None, (0, 1, 2, 3)), ([0], (1, 3)), ([1], (2, 3)), ([], None)])
def test_sync_program(axes, cores):
    b = KernelBuilder(lnc=4, core=3, grid=(2, 2))
    barriers = b.sync_program(axes)
    assert [i.fields.cores for i in barriers] == ([] if cores is None else [cores])
    assert b.program_barriers == [i.label for i in barriers]
    assert not b.has_collectives
    with pytest.raises(InputError, match=r"the grid \[2, 2\] has no axis 2"):
        b.sync_program([2])


def test_post_process_allreduce_result():
    b = KernelBuilder(lnc=4, grid=(2, 2))
    along = [b.program_id(0)], [3], [b.program_id(1)]
    assert b.post_process_allreduce_result(*along, is_async=True) == []
    assert b.post_process_allreduce_result() == []
    (one,) = b.post_process_allreduce_result(along[0], along[1])
    (all_of_them,) = b.post_process_allreduce_result(*along)
    assert isinstance(one, InstCoreBarrier)
    assert (one.fields.cores, all_of_them.fields.cores) == ((0, 2), (0, 1, 2, 3))


# Values


def drawn(ranks, shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    return [(random.standard_normal(shape) * 8).astype(dtype) for _ in range(ranks)]


def ring(inputs):
    return [inputs[n - 1] for n in range(len(inputs))]


def halves(n):
    """Two groups, out of order; ranks between them are left out from 8 on."""
    used = n if n < 8 else n - 2
    return [list(range(used // 2))[::-1], list(range(used // 2, used))]


def per_group(groups, inputs, function, fresh):
    """What the members of each group get; who is in none keeps fresh memory."""
    results = [fresh] * len(inputs)
    for group in groups:
        for rank, result in zip(group, function([inputs[r] for r in group]), strict=True):
            results[rank] = result
    return results


VALUES = {
    "all_reduce_cc": (lambda b, x, y, n: b.all_reduce_cc("add", x, y), lambda v: semantics.all_reduce(v, ReduceOp.ADD)),
    "all_gather_cc": (lambda b, x, y, n: b.all_gather_cc(x, y, 0), lambda v: semantics.all_gather(v, 0)),
    "reduce_scatter_cc": (
        lambda b, x, y, n: b.reduce_scatter_cc("max", x, y, 1),
        lambda v: semantics.reduce_scatter(v, ReduceOp.MAXIMUM, 1),
    ),
    "all_to_all_cc": (lambda b, x, y, n: b.all_to_all_cc(x, y, 1, 0), lambda v: semantics.all_to_all(v, 1, 0)),
    "broadcast_cc": (lambda b, x, y, n: b.broadcast_cc(x, y, []), semantics.collective_broadcast),
    "collective_permute_cc": (lambda b, x, y, n: b.collective_permute_cc(x, y), ring),
    "tiled_collective_permute_cc_raw": (
        lambda b, x, y, n: b.tiled_collective_permute_cc_raw(x, y, [(r, (r + 1) % n) for r in range(n)]),
        ring,
    ),
    "tiled_collective_permute_implicit_cc_raw": (
        lambda b, x, y, n: b.tiled_collective_permute_implicit_cc_raw(x, y, [range(n)], 1, 2),
        lambda v: [*v[1:], v[0]],
    ),
    "tiled_collective_permute_reduce_implicit_cc_raw": (
        lambda b, x, y, n: b.tiled_collective_permute_reduce_implicit_cc_raw("min", [*x, *x], y, [range(n)], 0, 1),
        ring,
    ),
}
TYPES = {2: ("float32", ml_dtypes.bfloat16, "int32"), 4: (ml_dtypes.bfloat16,), 8: ("int32",), 64: ("float32",)}


@pytest.mark.parametrize(("ranks", "dtype"), [(n, t) for n, types in TYPES.items() for t in types])
@pytest.mark.parametrize("method", VALUES)
def test_values(method, ranks, dtype):
    call, meaning = VALUES[method]
    inputs = drawn(ranks, (3, 2 * ranks), dtype)
    expected = meaning(inputs)
    b = KernelBuilder(world_size=ranks)
    x, y = b.input("x", inputs[0].shape, dtype), b.tensor(expected[0].shape, dtype, HBM)
    call(b, [x], [y], ranks)
    b.output(y)
    for got, wanted in zip(run(kernel(b), [[v] for v in inputs]), expected, strict=True):
        assert got[0].tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("ranks", [4, 8])
def test_values_of_groups(ranks):
    """Coalesced operands, groups out of order, ranks left out, an in-place all-reduce."""
    groups, inputs = halves(ranks), drawn(ranks, (4, 6), np.int32)
    size = len(groups[0])
    b = KernelBuilder(world_size=ranks)
    x, y, z = b.input("x", (4, 6), "s32"), b.tensor((4, 6), "s32", HBM), b.tensor((4, 6 * size), "s32", HBM)
    b.all_gather_cc_raw([x], [z], groups, 1)
    b.collective_permute_cc_raw([x], [y], groups)
    b.all_reduce_cc_raw("xor", [x[:, 0:2], x[:, 2:6]], [x[:, 0:2], x[:, 2:6]], groups)
    for view in (z, y, x):
        b.output(view)
    results = run(kernel(b), [[v] for v in inputs])
    joined = per_group(groups, inputs, lambda v: semantics.all_gather(v, 1), np.full((4, 6 * size), -1, np.int32))
    moved = per_group(groups, inputs, ring, np.full((4, 6), -1, np.int32))
    for rank, (all_of_them, mine, reduced) in enumerate(results):
        group = next((g for g in groups if rank in g), [rank])
        assert np.array_equal(all_of_them, joined[rank])
        assert np.array_equal(mine, moved[rank])
        assert np.array_equal(reduced, np.bitwise_xor.reduce([inputs[r] for r in group]))


def test_values_of_local_collectives():
    """Among the cores of each rank; groups are of cores."""
    groups, cores = [[2, 0], [1, 3]], 4
    builders = []
    for core in range(cores):
        b = KernelBuilder(world_size=2, lnc=cores, core=core)
        x = b.input("x", (4, 2), "f32")
        mine = [b.tensor(shape, "f32", HBM) for shape in ((4, 2), (8, 2), (2, 2), (4, 2), (4, 2), (4, 2), (4, 2))]
        scaled = b.tensor((4, 2), "f32")
        b.compute("tensor_scalar", [scaled], [x], op0="multiply", operand0=float(core + 1), tensors=("data",))
        b.all_reduce_cc_raw("add", [scaled], mine[:1], groups, is_local=True)
        b.all_gather_cc_raw([scaled], mine[1:2], groups, 0, is_local=True)
        b.reduce_scatter_cc_raw("add", [scaled], mine[2:3], groups, 0, is_local=True)
        b.all_to_all_cc_raw([scaled], mine[3:4], groups, 0, 0, is_local=True)
        b.broadcast_cc_raw([scaled], mine[4:5], groups, [], is_local=True)
        b.tiled_collective_permute_implicit_cc_raw([scaled], mine[5:6], groups, 0, 1, is_local=True)
        b.compute("memset", mine[6:7], value=-1)
        b.tiled_collective_permute_cc_raw([scaled], mine[6:7], [(1, 0), (3, 2)], is_local=True)
        for at, view in enumerate(mine):
            one = b.tensor((cores, *view.shape), "f32", "shared_hbm", f"all-{at}")
            b.dma_copy(one[core], view)
            b.output(one)
        builders.append(b)
    inputs = drawn(2, (4, 2), np.float32)
    for (x,), got in zip([[v] for v in inputs], run(kernel(*builders), [[v] for v in inputs]), strict=True):
        values = [x * np.float32(core + 1) for core in range(cores)]
        meanings = [
            lambda v: semantics.all_reduce(v, ReduceOp.ADD),
            lambda v: semantics.all_gather(v, 0),
            lambda v: semantics.reduce_scatter(v, ReduceOp.ADD, 0),
            lambda v: semantics.all_to_all(v, 0),
            semantics.collective_broadcast,
            ring,
        ]
        for result, meaning in zip(got, meanings, strict=False):
            assert np.array_equal(result, np.stack(per_group(groups, values, meaning, None)))
        assert np.array_equal(got[-1], np.stack([values[1], np.full_like(x, -1), values[3], np.full_like(x, -1)]))


def test_rank_id():
    b = KernelBuilder(world_size=3)
    y = b.tensor((4,), "u32", HBM)
    registers = [b.rank_id(), b.rank_id(mask=False), b.rank_id(mask=b.rank_id() - 1), b.rank_id(y[0:1], 3)]
    for n, register in enumerate(registers[:3]):
        b.register_store(y[n + 1 : n + 2], register)
    b.output(y)
    assert not b.has_collectives
    assert [r[0].tolist() for r in run(kernel(b), [[]] * 3)] == [[0, 0, 0, 0], [1, 1, 0, 0], [2, 2, 0, 2]]


def test_collectives_by_hand():
    """What goes in by `insert_raw_cc` marks the kernel, whoever made it."""
    b = KernelBuilder(world_size=2)
    assert not kernel(KernelBuilder(world_size=2)).has_collectives
    x = b.input("x", (2,), "s32")
    b.all_reduce_cc("add", [x], [x])
    made = kernel(b)
    assert made.has_collectives
    assert [type(i) for i in made.programs[0].instructions()] == [InstCollectiveCompute]


@pytest.mark.parametrize(
    ("options", "text"), [({"world_size": "a"}, "world_size is 'a'"), ({"lnc": 2.5}, "lnc is 2.5")]
)
def test_numbers_of_ranks_and_cores_are_whole(options, text):
    with pytest.raises(InputError, match=f"{text}, not a whole number"):
        KernelBuilder(**options)


def test_a_builder_makes_one_program_and_loops_by_registers():
    b = KernelBuilder()
    with pytest.raises(InputError, match="a loop goes on by a register, not by 1"), b.loop(lambda: 1):
        pass
    b = KernelBuilder()
    b.finish()
    with pytest.raises(InputError, match="the program was finished already"):
        b.finish()
    x = (b := KernelBuilder()).tensor((4, 4), "f32")
    with pytest.raises(InputError, match="extents are lists of integers"):
        b.broadcast_cc([x], [x], 24)
