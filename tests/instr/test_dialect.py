import dataclasses
import io
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.parser import Parser
from xdsl.printer import Printer

from crossrank.errors import InputError
from crossrank.instr import Kernel, KernelBuilder, read_kernel
from crossrank.instr.dialect import context
from crossrank.instr.fields import CollectiveFields, ComputeFields, CopyFields, parse_fields, print_fields
from crossrank.instr.instructions import INSTRUCTIONS
from crossrank.instr.kinds import AluOp, CcTypeHint, CollectiveDimension, CollectiveKind
from tests.instr.kernels import TENSORS, kernel, text

EVERY = (
    TENSORS
    + """
%t = instr.tensor {name = "odd \\22name\\5C, ü", written_by_peer = true} : !instr.tensor<[2, 4], bf16, sbuf>
%u = instr.tensor {name = "x_remote_1", core = 1, of = "x"} : !instr.tensor<[4], s32, private_hbm>
%h = instr.tensor {name = "s"} : !instr.tensor<[1], s32, private_hbm>
%m = instr.tensor {name = "m"} : !instr.tensor<[3, 2], u32, private_hbm>
%c = instr.access %h {offset = 0, pattern = [[1, 1]]}
%d = instr.access %t {offset = 7, pattern = [[-4, 2], [-1, 4]]}
%ma = instr.access %m {offset = 0, pattern = [[2, 3], [1, 2]]}
%r = instr.get_global_rank_id "rank" {world_size = 2} : !instr.register
%q = instr.get_cur_processing_rank_id "ring" {iteration_id = 1, replica_groups = [[1, 0]]} : !instr.register
%n = instr.register_alu "n" reg(%r, %q) {op = "add"} : !instr.register
%o = instr.register_alu "o" reg(%n) {op = "subtract", left = 1} at "k.py:1" : !instr.register
%l = instr.register_load "l" in(%c) : !instr.register
instr.register_store "st" out(%c) reg(%l)
%e = instr.access %y[%n, %o] {offset = 0, pattern = [[1, 1]], scale = [2, -1]}
%f = instr.access %y index %c {offset = 0, pattern = [[0, 1], [1, 2]], index_scale = 2, skip_outside = true}
%g = instr.access %x {offset = 0, pattern = [[1, 8]], dtype = "bf16"}
instr.collective_compute "AllReduce-0" out(%b) in(%a) {kind = all_reduce, replica_groups = [[0, 1]], op = add}
  after("n", "o") at "kernel.py:7"
instr.collective_compute "v" out(%b, %ma) in(%a, %ma) {kind = all_to_all_v, replica_groups = [[0, 1]],
  phase = "prepare"}
instr.send "send" in(%a) {peer_id = 1, dma_qos = 2}
instr.recv "recv" out(%b) {peer_id = 1}
instr.core_barrier "meet" out(%c) in(%c) {cores = [1, 0], engine = "vector", barrier_id = 3}
instr.dma_copy "copy" out(%e) in(%c)
instr.dma_copy "gather" out(%f) in(%f)
instr.gpsimd_sb2sb "sb2sb" out(%d) in(%d) {to_core = 1, pipe_id = 2}
instr.tensor_completion "x-PTCOM" in(%a)
instr.compute "fill" out(%b) {function = "memset", params = [["value", -0.5]], engine = "vector"}
instr.branch %n, ^one, ^two
^one:
instr.jump ^two
^two:
instr.end"""
)
OTHER_CORE = 'instr.tensor {name = "x", input = 0} : !instr.tensor<[4], s32, private_hbm>\ninstr.end'


def generic(made: Kernel) -> str:
    out = io.StringIO()
    Printer(out, print_generic_format=True).print_op(made.module)
    return out.getvalue()


def test_every_instruction_is_written_and_read():
    made = read_kernel(text(EVERY, OTHER_CORE))
    written = str(made)
    assert str(read_kernel(written)) == written
    assert str(read_kernel(generic(made))) == written
    classes = {type(i) for p in made.programs for i in p.instructions()}
    assert classes == set(INSTRUCTIONS)
    assert {c.__name__: c.NUMBER for c in classes if c.NUMBER >= 0} == {
        "InstCollectiveCompute": 48,
        "InstSend": 49,
        "InstRecv": 50,
        "InstCoreBarrier": 87,
        "InstDMACopy": 32,
        "InstGPSIMDSB2SB": 33,
        "InstTensorCompletion": 94,
        "InstGetGlobalRankId": 11,
        "InstGetCurProcessingRankID": 66,
    }


def test_a_kernel_in_full():
    b = KernelBuilder(world_size=2)
    x, y = b.input("x", (128, 512), "f32"), b.tensor((128, 512), "f32", "private_hbm", "y")
    b.all_reduce_cc_raw("add", [x], [y], [[0, 1]])
    b.output(y)
    assert str(kernel(b)).splitlines()[1:-1] == [
        "  instr.program @core0 on 0 {",
        '    %x = instr.tensor {name = "x", input = 0} : !instr.tensor<[128, 512], f32, private_hbm>',
        '    %y = instr.tensor {name = "y", outputs = [0]} : !instr.tensor<[128, 512], f32, private_hbm>',
        "    %0 = instr.access %y {offset = 0, pattern = [[512, 128], [1, 512]]}",
        "    %1 = instr.access %x {offset = 0, pattern = [[512, 128], [1, 512]]}",
        '    instr.collective_compute "AllReduce-0" out(%0) in(%1) {kind = all_reduce, op_class = "AllReduceOp", '
        f'replica_groups = [[0, 1]], op = add}} at "test_dialect.py:{WHERE}"',
        "    instr.end",
        "  }",
    ]


WHERE = 1 + Path(__file__).read_text().splitlines().index('    b.all_reduce_cc_raw("add", [x], [y], [[0, 1]])')

small = st.integers(-(2**40), 2**40)
lists = st.lists(st.lists(small, max_size=3).map(tuple), max_size=3).map(tuple)
values = st.recursive(
    st.none() | st.booleans() | small | st.floats() | st.text(st.characters(codec="utf-8"), max_size=6),
    lambda v: st.lists(v, max_size=3).map(tuple),
    max_leaves=5,
)
collectives = st.builds(
    CollectiveFields,
    kind=st.sampled_from(CollectiveKind),
    op=st.none() | st.sampled_from(AluOp),
    cc_dim=st.none() | st.sampled_from(CollectiveDimension),
    cc_type_hint=st.sampled_from(CcTypeHint),
    replica_groups=lists,
    src_target_pairs=lists,
    channel_id=small,
    is_local=st.booleans(),
    phase=st.sampled_from(["", "prepare"]),
    permute_chain=st.lists(small, max_size=2).map(tuple),
)
computations = st.builds(
    ComputeFields,
    function=st.text(st.characters(codec="utf-8"), max_size=5),
    params=st.lists(st.tuples(st.text("abc", max_size=2), values), max_size=3).map(tuple),
)


@given(collectives | computations | st.builds(CopyFields, small, small))
@settings(max_examples=150, deadline=None)
def test_fields_are_read_as_they_were_written(fields):
    out = io.StringIO()
    print_fields(Printer(out), fields)
    parser = Parser(context(), out.getvalue())
    again = parse_fields(parser, type(fields))
    assert parser.parse_optional_identifier() is None
    assert repr(again) == repr(fields)  # by repr, for nan is not equal to itself
    assert all(type(getattr(again, f.name)) is type(getattr(fields, f.name)) for f in dataclasses.fields(fields))


def test_floats_that_are_no_numbers():
    fields = ComputeFields("f", (("a", math.inf), ("b", -math.inf), ("c", "inf"), ("d", -0.0), ("e", 1e300)))
    out = io.StringIO()
    print_fields(Printer(out), fields)
    assert '["a", inf], ["b", neg_inf], ["c", "inf"]' in out.getvalue()
    assert repr(parse_fields(Parser(context(), out.getvalue()), ComputeFields)) == repr(fields)


def cc(fields: str, out: str = "%b", ins: str = "%a") -> str:
    return TENSORS + f'instr.collective_compute "c" out({out}) in({ins}) {{{fields}}}\ninstr.end'


GROUPS = "replica_groups = [[0, 1]]"
PEER = "is_local = true, pipe_id = 0"
TEXTS = [
    (cc(f"kind = permute, src_target_pairs = [[0, 1]], {GROUPS}"), "Permute should not contain replica_groups"),
    (
        cc(f"kind = permute_implicit, src_target_pairs = [[0, 1]], {GROUPS}"),
        "PermuteImplicit should not contain src_target_pairs",
    ),
    (
        cc(f"kind = permute_reduce_implicit, op = add, {GROUPS}"),
        "PermuteReduceImplicit must have 2 inputs and 1 output",
    ),
    (
        cc("kind = permute_reduce, op = add, src_target_pairs = [[0, 1]]"),
        "PermuteReduce must have 2 inputs and 1 output",
    ),
    (
        cc(f"kind = permute_reduce_implicit, op = xor, {GROUPS}", ins="%a, %a"),
        "Unsupported OP type for Permute Reduce Implicit",
    ),
    (
        cc(f"kind = permute_implicit, {GROUPS}", out="%b, %b", ins="%a, %a"),
        "c: one source and one destination are needed",
    ),
    (
        cc(f'kind = permute_implicit, op_class = "TiledCollectivePermuteOp", {GROUPS}'),
        "c: a channel id is needed",
    ),
    (cc(f"kind = permute_reduce_implicit, op = add, {GROUPS}", ins="%a, %a"), "c: a channel id is needed"),
    (cc("kind = permute"), "c: source-target pairs are needed"),
    (cc("kind = permute, src_target_pairs = [[0, 1, 1]]"), "c: a source-target pair is two ranks"),
    (cc("kind = permute, src_target_pairs = [[0, 2]]"), "core 0: c: rank 2 is none of the 2 ranks"),
    (cc("kind = all_reduce, op = add"), "c: replica groups are needed, and none may be empty"),
    (cc(f"kind = all_reduce, {GROUPS}"), "c: a reduce op is needed"),
    (
        cc("kind = all_reduce, op = add, replica_groups = [[0], [2]], is_local = true"),
        "core 0: c: core 2 is none of the 2 cores of a rank",
    ),
    (cc(f"kind = all_gather, {GROUPS}"), "c: a dimension is needed: 0 (partition) or 1 (free)"),
    (cc(f"kind = all_to_all, cc_dim = partition, {GROUPS}"), "c: a dimension to join is needed"),
    (cc(f"kind = all_gather, cc_dim = free, {GROUPS}"), "c: the source of shape [4] has no dimension 1"),
    (cc(f"kind = all_gather, cc_dim = 2, {GROUPS}"), "identifier expected"),
    (cc(f"kind = all_reduce, op = add, dma_qos = 4, {GROUPS}"), "c: dma_qos is 0, 1, 2, 3 or not given"),
    (cc(f"kind = all_reduce, op = add, cc_type_hint = tp, {GROUPS}"), "c: AllReduce has no cc_type_hint"),
    (cc(f"kind = all_reduce, op = add, channel_id = 1, {GROUPS}"), "c: AllReduce has no channel_id"),
    (cc(f"kind = all_reduce, op = add, cc_dim = partition, {GROUPS}"), "c: AllReduce has no cc_dim"),
    (cc(f"kind = all_reduce, op = add, has_rdispls = true, {GROUPS}"), "c: AllReduce has no has_rdispls"),
    (cc(f"kind = permute_implicit, op = add, {GROUPS}"), "c: PermuteImplicit has no op"),
    (
        cc(f"kind = send_recv, send_to_rank = 1, recv_from_ranks = [1], {PEER}, {GROUPS}"),
        "c: SendRecv has no replica_groups",
    ),
    (cc(f"kind = all_reduce, op = add, split_count = 2, {GROUPS}"), "c: AllReduce has no split_count"),
    (cc(f"kind = all_reduce, op = add, initial_core_barrier = true, {GROUPS}"), "has no initial_core_barrier"),
    (cc(f"kind = all_to_all_v, {GROUPS}"), "c: one source and its metadata are needed"),
    (cc(f"kind = all_to_all_v, {GROUPS}", out="%b, %b", ins="%a, %a"), "c: the metadata is uint32 of shape [3, 2]"),
    (cc(f'kind = all_to_all_v, phase = "soon", {GROUPS}'), "c: the phase is prepare, trigger or empty"),
    (cc(f"kind = send_recv, recv_from_ranks = [1], {PEER}"), "The sendToRank must be a integer"),
    (cc(f"kind = send_recv, send_to_rank = 1, {PEER}"), "The recvFromRank must be a integer"),
    (
        cc("kind = send_recv, send_to_rank = 1, recv_from_ranks = [1], is_local = true"),
        "The pipeId must be a integer",
    ),
    (
        cc(f"kind = send_recv, send_to_rank = 1, recv_from_ranks = [0], {PEER}"),
        "SendRecv instruction on core 0 is receiving from itself!",
    ),
    (
        "instr.end",
        cc(f"kind = send_recv, send_to_rank = 1, recv_from_ranks = [0], {PEER}"),
        "SendRecv instruction on core 1 is sending to itself!",
    ),
    (cc(f"kind = send_recv, send_to_rank = 1, recv_from_ranks = [1, 1], {PEER}"), "c: it receives twice from one core"),
    (cc("kind = send_recv, send_to_rank = 1, recv_from_ranks = [1], pipe_id = 0"), "c: it stays within a rank"),
    (TENSORS + 'instr.send "s" in(%a) {peer_id = 2}\ninstr.end', "core 0: s: rank 2 is none of the 2 ranks"),
    (TENSORS + 'instr.send "s" out(%a) {peer_id = 1}\ninstr.end', "s: instr.send has 0 outs, not 1"),
    (TENSORS + 'instr.send "s" in(%x) {peer_id = 1}\ninstr.end', "s: an operand is an access, made by instr.access"),
    (TENSORS + 'instr.send "s" in(%z) {peer_id = 1}\ninstr.end', "the text:8:19: %z is used before it is made"),
    (TENSORS + 'instr.send "s" in(%a)\ninstr.end', "the field peer_id is missing"),
    (
        TENSORS + 'instr.send "s" in(%a) {peer = 1}\ninstr.end',
        "there is no field peer here; there are dma_qos, peer_id",
    ),
    (TENSORS + 'instr.send "s" in(%a) {peer_id = "1"}\ninstr.end', '"1" cannot be the field peer_id'),
    (TENSORS + 'instr.core_barrier "m" {cores = [1]}\ninstr.end', "m: core 0 waits at a barrier of the cores [1]"),
    (TENSORS + 'instr.core_barrier "m" {cores = [0, 5]}\ninstr.end', "m: core 5 is none of the 2 cores of a rank"),
    (TENSORS + 'instr.dma_copy "d" out(%b)\ninstr.end', "d: instr.dma_copy has 1 ins, not 0"),
    (TENSORS + 'instr.register_alu "r" {op = "add", left = 1}\ninstr.end', "r: instr.register_alu has 1 result, not 0"),
    (
        TENSORS + '%r = instr.register_alu "r" {op = "add", left = 1} : !instr.register\ninstr.end',
        "r: add has another number of operands",
    ),
    (
        TENSORS + '%r = instr.register_alu "r" {op = "sine", left = 1} : !instr.register\ninstr.end',
        "r: there is no op 'sine' on registers",
    ),
    (
        TENSORS + '%r = instr.register_load "r" in(%a) : !instr.register\ninstr.end',
        "r: a register holds one element, and the access has 4",
    ),
    (TENSORS + 'instr.compute "f" out(%b) {function = "juggle"}\ninstr.end', "there is no computation 'juggle'"),
    (TENSORS + "instr.juggle\ninstr.end", "instr.juggle is not registered"),
    (TENSORS.replace("[1, 4]", "[1, 5]") + "instr.end", "reaches elements 0 to 4 of tensor x, which has 4"),
    (TENSORS.replace("[1, 4]", "[1]") + "instr.end", "a pattern is [stride, extent] of each dimension"),
    (TENSORS.replace("[4]", "[-4]") + "instr.end", "tensor x has a negative extent: [-4]"),
    (TENSORS.replace("s32", "s33") + "instr.end", "no element type is named 's33'"),
    (TENSORS.replace("private_hbm", "attic") + "instr.end", "'attic' is not a valid Space"),
    (TENSORS.replace('"y"', '"x"') + "instr.end", "core 0: two are named x"),
    (
        TENSORS.replace("input = 0", "input = 1") + "instr.end",
        "the inputs of the kernel are numbered [1], not from 0 on",
    ),
    (TENSORS.replace("outputs = [0]", "of = 'q'") + "instr.end", "Unexpected character: '"),
    (
        TENSORS.replace("outputs = [0]", 'core = 1, of = "q"') + "instr.end",
        "instr.end",
        "core 0: y is an alias of q on core 1, which has no such tensor",
    ),
    (TENSORS + "instr.jump ^gone", "gone"),
    (TENSORS, "nothing says where it goes on"),
    ("instr.jump ^a\n^a:\ninstr.end\n^a:\ninstr.end", "two blocks are named ^a"),
    (
        TENSORS + 'instr.dma_copy "d" out(%b) in(%a) after("later")\ninstr.dma_copy "later" out(%b) in(%a)\ninstr.end',
        "core 0: d comes after later, which does not stand before it",
    ),
]
VERBATIM = ("Permute", "Unsupported OP", "The ", "SendRecv")
"""How the texts begin that are the source's: nothing is added to them."""


@pytest.mark.parametrize("case", TEXTS, ids=[case[-1][:45] for case in TEXTS])
def test_bad_text_gives_one_plain_line(case):
    *programs, wanted = case
    with pytest.raises(InputError) as caught:
        read_kernel(text(*programs, lnc=2))
    said = caught.value.what
    assert said == wanted if wanted.startswith(VERBATIM) else wanted in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", "the text:1:1: "),
        ("builtin.module {}", "the programs are for the cores [], and a rank has 0"),
        (text("instr.end", ranks=0), "a kernel is for one rank or more, not 0"),
        (text("instr.end", "instr.end", lnc=1), "the programs are for the cores [0, 1], and a rank has 1"),
        ("instr.program @core0 on 0 {", "the text:1:"),
        (
            text('instr.core_barrier "m" {cores = [0]}\ninstr.end').replace(
                "instr.lnc", "instr.arch = #builtin.int<20>, instr.lnc"
            ),
            "core 0: m: core_barrier needs architecture level 30 or more, not 20",
        ),
        (
            text('%r = instr.get_global_rank_id "r" {world_size = 3} : !instr.register\ninstr.end'),
            "core 0: r: it is of 3 ranks, and 2 run",
        ),
        (generic(read_kernel(text(EVERY, OTHER_CORE))).replace("CopyFields", "PeerFields", 1), "peer_id is missing"),
        (
            generic(read_kernel(text(EVERY, OTHER_CORE))).replace("CopyFields {to_core = 1, pipe_id = 2}", "Fields "),
            "instr.gpsimd_sb2sb has the fields CopyFields, not Fields()",
        ),
        (
            generic(read_kernel(text(EVERY, OTHER_CORE))).replace("[[1, 8]], dtype", "[[1, 7]], dtype"),
            "an access of tensor x gives",
        ),
    ],
)
def test_a_bad_module_gives_one_plain_line(given, wanted):
    with pytest.raises(InputError) as caught:
        read_kernel(given)
    assert wanted in caught.value.what
    assert "\n" not in caught.value.what


def test_what_stands_outside_of_the_programs():
    """Values are of the program that makes them, and a module has nothing but programs."""
    tensor = '%x = instr.tensor {name = "x", input = 0} : !instr.tensor<[2], f32, private_hbm>'
    access = "%a = instr.access %x {offset = 0, pattern = [[1, 2]]}"
    outside = f"builtin.module {{ {tensor}\n instr.program @p on 0 {{ instr.end }} }}"
    with pytest.raises(InputError, match=r"instr.tensor stands outside of the programs"):
        read_kernel(outside)
    first, second = (f"instr.program @p{n} on {n} {{ {what}\n instr.end }}" for n, what in enumerate((tensor, access)))
    with pytest.raises(InputError, match="%x is used before it is made"):
        read_kernel(f"builtin.module attributes {{instr.lnc = #builtin.int<2>}} {{ {first}\n {second} }}")
