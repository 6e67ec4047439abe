from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from crossrank.errors import InputError, RunError
from crossrank.instr import Kernel, KernelBuilder, read_kernel, run_kernel
from crossrank.instr.interpret import Machine
from tests.instr.kernels import TENSORS, counted, kernel, run, text

HBM, SHARED = "private_hbm", "shared_hbm"


def lists(results, output=0):
    return [rank[output].tolist() for rank in results]


def cores(count, body, **options):
    """A kernel whose cores each do ``body(builder, core)``."""
    builders = [KernelBuilder(lnc=count, core=core, **options) for core in range(count)]
    for core, builder in enumerate(builders):
        body(builder, core)
    return kernel(*builders)


# Memory


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f8e5m2", "f8e4m3fn", "f64", "c64", "s32", "pred"])
def test_fresh_memory_shows(dtype):
    b = KernelBuilder()
    y = b.tensor((2, 3), dtype, HBM)
    b.output(y)
    (result,) = run(kernel(b), [[]])[0]
    wanted = {"s32": result == -1, "pred": result}.get(dtype, result != result)
    assert wanted.all()


def test_gather_and_scatter():
    table, rows = np.arange(8, dtype=np.int32).reshape(4, 2), np.array([2, 7, 0, -1], np.int32)

    def made(skip, scatter):
        b = KernelBuilder()
        x, i, y = b.input("x", (4, 2), "s32"), b.input("i", (4,), "s32"), b.tensor((4, 2), "s32", HBM)
        b.compute("memset", [y], value=9)
        some = replace((y if scatter else x).ap([[2, 4], [1, 2]], vector_offset=i), skip_outside=skip)
        b.dma_copy(*((some, x) if scatter else (y, some)), name="move")
        b.output(y)
        return kernel(b)

    assert lists(run(made(True, False), [[table, rows]])) == [[[4, 5], [9, 9], [0, 1], [9, 9]]]
    assert lists(run(made(True, True), [[table, rows]])) == [[[4, 5], [9, 9], [0, 1], [9, 9]]]
    for scatter in (False, True):
        with pytest.raises(RunError, match=r"^rank 0: move \(test_interpret.py:\d+\): row 1 has an index outside of "):
            run_kernel(made(False, scatter), [[table, rows]])


def test_an_offset_in_a_register_is_checked_when_it_is_used():
    b = KernelBuilder(world_size=4)
    x, y = b.input("x", (4,), "s32"), b.tensor((2,), "s32", HBM)
    b.dma_copy(y, x.ap([[1, 2]], scalar_offset=b.rank_id()), name="part")
    b.output(y)
    made = kernel(b)
    assert lists(run(made, counted(3), ranks=[0, 1, 2])) == [[0, 1], [101, 102], [202, 203]]
    with pytest.raises(RunError, match=r"^rank 3: part \(.*\): it reaches elements 3 to 4 of tensor x, which has 4$"):
        run_kernel(made, counted(4))


# Registers, jumps and branches

SUM = """instr.collective_compute "sum" out(%b) in(%a)
  {kind = all_reduce, replica_groups = [[0, 1]], op = add} at "k.py:9"
"""

LOOP = """
%c = instr.tensor {{name = "c"}} : !instr.tensor<[1], s32, private_hbm>
%ca = instr.access %c {{offset = 0, pattern = [[1, 1]]}}
%r = instr.get_global_rank_id "r" {{world_size = 2}} : !instr.register
%n = instr.register_alu "n" reg(%r) {{op = "add", right = 2}} : !instr.register
instr.register_store "store" out(%ca) reg(%n)
instr.jump ^turn
^turn:
%l = instr.register_load "load" in(%ca) : !instr.register
{body}
%m = instr.register_alu "m" reg(%l) {{op = "subtract", right = 1}} : !instr.register
instr.register_store "again" out(%ca) reg(%m)
instr.branch %m, ^turn, ^out
^out:
instr.end"""


def test_a_loop_goes_round_as_often_as_its_register_says():
    body = """
%s = instr.access %x[%l] {offset = 0, pattern = [[1, 1]], scale = [1]}
%t = instr.access %y[%l] {offset = 0, pattern = [[1, 1]], scale = [1]}
instr.dma_copy "copy" out(%t) in(%s)"""
    made = read_kernel(text(TENSORS + LOOP.format(body=body)))
    machine = Machine(made)
    assert lists(machine.run(counted(2))) == [[-1, 1, 2, -1], [-1, 101, 102, 103]]
    assert machine.executed["instr.dma_copy"] == 2 + 3


def test_ranks_that_go_round_a_different_number_of_times_do_not_meet():
    with pytest.raises(RunError) as caught:
        run_kernel(read_kernel(text(TENSORS + LOOP.format(body=SUM))), counted(2))
    assert str(caught.value).splitlines() == [
        "deadlock: 1 of 2 cores wait and none can go on",
        "rank 1 waits in sum (k.py:9) for rank 0 (which has ended)",
    ]


@pytest.mark.parametrize(
    ("alu", "wanted"),
    [
        ("{op = 'add', left = 2147483647, right = 1}", -(2**31)),
        ("{op = 'multiply', left = 65536, right = 65537}", 65536),
        ("{op = 'divide', left = -7, right = 2}", -4),
        ("{op = 'mod', left = -7, right = 3}", 2),
        ("{op = 'shift_left', left = 1, right = 31}", -(2**31)),
        ("{op = 'shift_right', left = -8, right = 1}", -4),
        ("{op = 'lt', left = -1, right = 0}", 1),
        ("{op = 'move', left = 5}", 5),
        ("reg(%r) {op = 'subtract', left = 3}", 3),
        ("reg(%r, %r) {op = 'eq'}", 1),
    ],
)
def test_register_arithmetic(alu, wanted):
    program = f"""
%r = instr.get_global_rank_id "r" {{world_size = 1}} : !instr.register
%v = instr.register_alu "v" {alu.replace("'", '"')} : !instr.register
%c = instr.access %y {{offset = 1, pattern = [[1, 1]]}}
instr.register_store "store" out(%c) reg(%v)
instr.end"""
    made = read_kernel(text(TENSORS + program, ranks=1))
    assert run_kernel(made, counted(1))[0][0].tolist() == [-1, wanted, -1, -1]


RANK = '%r = instr.get_global_rank_id "r" {world_size = 2} : !instr.register\n'
FAILURES = [
    (
        RANK + '%v = instr.register_alu "v" reg(%r) {op = "mod", left = 3} : !instr.register\ninstr.end',
        "rank 0: v: mod by zero in a register",
    ),
    (
        RANK
        + 'instr.branch %r, ^one, ^two\n^one:\n%v = instr.register_alu "v" {op = "move", left = 3} : !instr.register\n'
        "instr.jump ^two\n^two:\n%c = instr.access %y[%v] {offset = 0, pattern = [[1, 1]], scale = [1]}\n"
        'instr.register_store "s" out(%c) reg(%r)\ninstr.end',
        "rank 0: s: nothing has set the register %v on the way here",
    ),
    (
        "instr.jump ^turn\n^turn:\ninstr.jump ^turn",
        "rank 0 goes round for 0.5 s and neither waits nor ends: a loop without end?",
    ),
    (
        'instr.compute "c" out(%b) in(%a) {function = "tensor_tensor", params = [["op", "add"]]}\ninstr.end',
        "rank 0: c: tensor_tensor: ",
    ),
]


@pytest.mark.parametrize(("program", "wanted"), FAILURES)
def test_failures_name_rank_and_instruction(program, wanted):
    with pytest.raises(RunError) as caught:
        run_kernel(read_kernel(text(TENSORS + program)), counted(2), limit=0.5)
    assert str(caught.value).startswith(wanted)


# Deadlocks

MEET = 'instr.core_barrier "meet" {cores = [0, 1]} at "k.py:4"\n'
RECV = 'instr.recv "recv" out(%b) {peer_id = 0} at "k.py:6"\n'
BACK = 'instr.recv "back" out(%b) {peer_id = 1} at "k.py:7"\n'


def by_rank(zero: str, one: str) -> str:
    """A program that goes two ways."""
    return f"{RANK}instr.branch %r, ^one, ^zero\n^zero:\n{zero}instr.end\n^one:\n{one}instr.end"


DEADLOCKS = [
    (
        [MEET + "instr.end", "instr.end"],
        [
            "2 of 4 cores wait",
            "rank 0 core 0 waits in meet (k.py:4) for rank 0 core 1 (which has ended)",
            "rank 1 core 0 waits in meet (k.py:4) for rank 1 core 1 (which has ended)",
        ],
    ),
    (
        [by_rank("", RECV)],
        ["1 of 2 cores wait", "rank 1 waits in recv (k.py:6) for rank 0 (which has ended)"],
    ),
    (
        [by_rank(BACK, RECV)],
        [
            "2 of 2 cores wait",
            "rank 0 waits in back (k.py:7) for rank 1 (which waits in recv (k.py:6))",
            "rank 1 waits in recv (k.py:6) for rank 0 (which waits in back (k.py:7))",
        ],
    ),
    (
        [by_rank(SUM, RECV)],
        [
            "2 of 2 cores wait",
            "rank 0 waits in sum (k.py:9) for rank 1 (which waits in recv (k.py:6))",
            "rank 1 waits in recv (k.py:6) for rank 0 (which waits in sum (k.py:9))",
        ],
    ),
    (
        [RANK + "instr.branch %r, ^one, ^two\n^one:\n" + SUM + "instr.jump ^two\n^two:\ninstr.end"],
        ["1 of 2 cores wait", "rank 1 waits in sum (k.py:9) for rank 0 (which has ended)"],
    ),
]


@pytest.mark.parametrize(("programs", "lines"), DEADLOCKS)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_deadlocks_say_who_waits_for_whom(programs, lines, seed):
    made = read_kernel(text(*(TENSORS + p for p in programs)))
    with pytest.raises(RunError) as caught:
        run_kernel(made, counted(2), seed=seed)
    first, *rest = str(caught.value).splitlines()
    assert first == f"deadlock: {lines[0]} and none can go on"
    assert rest == lines[1:]


def test_what_collectives_work_on_tells_those_of_one_line_apart():
    """Two cores share tensors and come to two all-reduces, named alike, in different orders."""
    programs = []
    for core in range(2):
        b = KernelBuilder(2, 2, core)
        x, *results = (b.tensor((4,), "f32", "shared_hbm", name) for name in "xyz")
        for result in results[:: 1 - 2 * core]:
            b.all_reduce_cc("add", [x], [result])
        programs.append(b.finish())
    with pytest.raises(RunError, match=r"core 0 waits in AllReduce-0 \S* x → y for .*AllReduce-0 \S* x → z"):
        run_kernel(Kernel.of(programs, world_size=2, lnc=2, has_collectives=True), [[], []])


def test_a_deadlock_of_many_is_cut_short():
    b = KernelBuilder(world_size=100)
    b.recv_cc_raw([b.tensor((4,), "s32", HBM)], 0)
    with pytest.raises(RunError) as caught:
        run_kernel(kernel(b), [[]] * 100)
    first, *rest = str(caught.value).splitlines()
    assert first == "deadlock: 100 of 100 cores wait and none can go on"
    assert len(rest) <= 9
    assert rest[-1] == "and 99 more wait"


def test_ranks_that_are_not_there_are_waited_for():
    b = KernelBuilder(world_size=2)
    x = b.input("x", (4,), "s32")
    b.all_reduce_cc("add", [x], [x])
    with pytest.raises(RunError, match=r"rank 1 waits in AllReduce-0 .* for rank 0 \(which is not there\)$"):
        run_kernel(kernel(b), counted(1), ranks=[1])


# Between ranks


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_sends_go_before_their_receives(seed):
    """Everyone sends twice before anyone receives; what was sent is what was there then."""
    b = KernelBuilder(world_size=2)
    x = b.input("x", (4,), "s32")
    first, second = (b.tensor((4,), "s32", HBM) for _ in range(2))
    for peer in (0, 1):
        b.send_cc_raw([x], peer)
    b.compute("memset", [x], value=5)
    for peer in (0, 1):
        b.send_cc_raw([x], peer)
    for out in (first, second):
        b.recv_cc_raw([out], 1)
        b.output(out)
    result = run(kernel(b), counted(2), seed=seed)
    assert lists(result, 0) == [[100, 101, 102, 103]] * 2
    assert lists(result, 1) == [[5] * 4] * 2


def test_what_is_received_is_what_was_sent():
    b = KernelBuilder(world_size=2)
    b.send_cc_raw([b.input("x", (4,), "s32")], 0)
    b.recv_cc_raw([b.tensor((2,), "f32", HBM)], 0)
    with pytest.raises(RunError, match=r"int32\[4\] was sent, and float32\[2\] is received"):
        run_kernel(kernel(b), counted(2))


def test_pairs_in_several_chains():
    """Pairs that have nothing to do with each other; who is no target keeps what it has."""
    b = KernelBuilder(world_size=6)
    x, y = b.input("x", (2,), "s32"), b.tensor((2,), "s32", HBM)
    b.tiled_collective_permute_cc_raw([x], [y], [(3, 2), (0, 1), (5, 5)])
    b.output(y)
    assert lists(run(kernel(b), counted(6, 2))) == [[-1, -1], [0, 1], [300, 301], [-1, -1], [-1, -1], [500, 501]]


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("channel", [0, 1, 3])
def test_rings_agree_with_the_processing_rank(ranks, channel):
    """After i hops a rank holds the data of the rank that the instruction names."""
    group = [2, 0, 3, 1][-ranks:] if ranks > 1 else [0]
    b = KernelBuilder(world_size=ranks)
    x = b.input("x", (2,), "s32")
    named = b.tensor((ranks + 1,), "s32", HBM)
    b.register_store(named[0:1], b.cur_processing_rank_id(0, [group], channel))
    b.output(named)
    for step in range(1, ranks + 1):
        b.register_store(named[step : step + 1], b.cur_processing_rank_id(step, [group], channel))
        y = b.tensor((2,), "s32", HBM)
        b.tiled_collective_permute_implicit_cc_raw([x], [y], [group], channel, 4)
        b.output(y)
        x = y
    for rank, (who, *held) in enumerate(run(kernel(b), counted(ranks, 2))):
        assert who[0] == rank
        assert [h[0] // 100 for h in held] == who[1:].tolist()


@pytest.mark.parametrize(
    "dtype", ["float32", ml_dtypes.bfloat16, "int8", "uint64", "complex64", ml_dtypes.float8_e4m3fn]
)
def test_average(dtype):
    """The sum in f32 or 64 bits, divided once; integers are rounded down."""
    values = np.array([[1, 100, 5], [2, 100, -4], [4, 120, 0]]).astype(dtype)
    b = KernelBuilder(world_size=3)
    x = b.input("x", (3,), values.dtype)
    b.all_reduce_cc("average", [x], [x])
    b.output(x)
    (result,) = run(kernel(b), [[v] for v in values])[2]
    if np.issubdtype(np.dtype(dtype), np.integer):
        wide = np.int64 if np.dtype(dtype).kind == "i" else np.uint64
        wanted = (values.astype(wide).sum(0) // wide(3)).astype(dtype)
    else:
        wanted = (values.astype(np.promote_types(np.float32, dtype)).sum(0) / np.float32(3)).astype(dtype)
    assert result.tobytes() == wanted.tobytes()


def test_a_reduction_that_a_type_does_not_have():
    for op, dtype, message in (("average", "pred", "average is not defined on pred"), ("max", "c64", "maximum is not")):
        b = KernelBuilder(world_size=2)
        x = b.input("x", (3,), dtype)
        b.all_reduce_cc(op, [x], [x])
        with pytest.raises(RunError, match=rf"^rank 1: AllReduce-0 \(.*\): {message}"):
            run_kernel(kernel(b), [[np.zeros(3, x.dtype)]] * 2)


@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e5m2", "f64", "c64", "c128", "pred", "s4", "u16"])
def test_other_types(dtype):
    """Moved as they are; reduced as `collective.semantics` says (the two backends agree)."""
    b = KernelBuilder(world_size=3)
    x = b.input("x", (2, 3), dtype)
    y, z = b.tensor((2, 9), dtype, HBM), b.tensor((2, 3), dtype, HBM)
    b.all_gather_cc([x], [y], 1)
    b.all_reduce_cc("add", [x], [z])
    b.output(y)
    b.output(z)
    values = [(np.arange(6).reshape(2, 3) % 2 + rank).astype(x.dtype) for rank in range(3)]
    joined, total = run(kernel(b), [[v] for v in values])[1]
    assert joined.tobytes() == np.concatenate(values, 1).tobytes()
    if dtype not in ("pred", "s4"):
        assert np.array_equal(total.astype(np.complex128), sum(v.astype(np.complex128) for v in values))


@pytest.mark.parametrize("ranks", [1, 65, 512])
def test_many_ranks(ranks):
    b = KernelBuilder(world_size=ranks)
    x, y, z = b.input("x", (2,), "s32"), b.tensor((2,), "s32", HBM), b.tensor((2,), "s32", HBM)
    b.all_reduce_cc("max", [x], [y])
    b.collective_permute_cc([x], [z])
    b.output(y)
    b.output(z)
    results = run(kernel(b), counted(ranks, 2))
    assert lists(results) == [[100 * (ranks - 1), 100 * (ranks - 1) + 1]] * ranks
    assert [z[0] for _, z in results] == [100 * ((rank - 1) % ranks) for rank in range(ranks)]


def test_groups_of_one_and_nothing_at_all():
    b = KernelBuilder(world_size=2)
    x, empty = b.input("x", (4,), "s32"), b.input("e", (0, 4), "f32")
    y, wide, some = b.tensor((4,), "s32", HBM), b.tensor((0, 8), "f32", HBM), b.tensor((0, 4), "f32", HBM)
    b.all_reduce_cc_raw("add", [x], [y], [[0], [1]])
    b.all_gather_cc([empty], [wide], 1)
    b.reduce_scatter_cc("add", [empty], [some], 0)
    b.all_to_all_cc([empty], [some], 0, 0)
    b.collective_permute_cc([empty], [some])
    for view in (y, wide, some):
        b.output(view)
    results = run(kernel(b), [[v, np.zeros((0, 4), np.float32)] for (v,) in counted(2)])
    assert lists(results) == [[0, 1, 2, 3], [100, 101, 102, 103]]
    assert [a.shape for a in results[0][1:]] == [(0, 8), (0, 4)]


def test_views_that_overlap():
    """All is read before anything is written."""
    b = KernelBuilder(world_size=2)
    x = b.input("x", (4, 4), "s32")
    b.all_reduce_cc("add", [x[0:3, ::2]], [x.permute([1, 0])[0:3, 1:3]])
    b.output(x)
    inputs = [np.arange(16, dtype=np.int32).reshape(4, 4) * (rank + 1) for rank in range(2)]
    for rank, (result,) in enumerate(run(kernel(b), [[v] for v in inputs])):
        wanted = inputs[rank].copy()
        wanted.T[0:3, 1:3] = sum(v[0:3, ::2] for v in inputs)
        assert np.array_equal(result, wanted)


# Variable exchanges

COUNTS = [[[1, 2], [0, 1], [7, 7]], [[3, 0], [2, 0], [7, 7]]]


def exchange(tables, **options):
    """Two ranks of 8 integers each; a destination of 8 too."""
    b = KernelBuilder(world_size=2)
    x, m, y = b.input("x", (8,), "s32"), b.input("m", np.shape(tables[0]), "u32"), b.tensor((8,), "s32", HBM)
    phases = options.pop("phases", [""])
    for phase in phases:
        b.all_to_all_v_cc_raw([x], [y], [[0, 1]], m, phase=phase, **options)
        if phase == "prepare":
            b.compute("memset", [m], value=0)  # it was taken already
            b.all_reduce_cc("max", [m], [m])  # and others may come between
    b.output(y)
    b.output(m)
    inputs = [[np.arange(8, dtype=np.int32) + 10 * rank, np.array(t, np.uint32)] for rank, t in enumerate(tables)]
    results = run(kernel(b), inputs)
    return lists(results, 0), [r[1][2].tolist() for r in results]


def placed(**chunks):
    result = np.full(8, -1)
    for place, values in chunks.items():
        result[int(place[1:]) : int(place[1:]) + len(values)] = values
    return result.tolist()


def test_all_to_all_v():
    wanted = [placed(_0=[0], _4=[12, 13, 14]), placed(_0=[1, 2])]
    assert exchange(COUNTS) == (wanted, [[1, 3], [2, 0]])
    assert exchange(COUNTS, recv_counts_known=True) == (wanted, [[7, 7], [7, 7]])
    assert exchange(COUNTS, phases=["prepare", "trigger"]) == (wanted, [[1, 3], [2, 0]])
    assert exchange(COUNTS, uniform_send=True) == ([placed(_0=[0], _4=[12, 13, 14])] * 2, [[1, 3], [1, 3]])
    with_places = [[*table, places] for table, places in zip(COUNTS, ([0, 5], [1, 0]), strict=True)]
    assert exchange(with_places, has_rdispls=True)[0] == [placed(_0=[0], _5=[12, 13, 14]), placed(_1=[1, 2])]


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (
            [[[1, 5], [0, 0], [0, 0]], COUNTS[1]],
            {},
            "^rank 0: AllToAllV-0.*: rank 0 sends 5 .* from 0 on of 8 to rank 1, .* room for 4",
        ),
        ([[[1, 2], [0, 7], [0, 0]], COUNTS[1]], {}, "rank 0 sends 2 elements from 7 on of 8 to rank 1"),
        ([[[1, 2**32 - 1], [0, 0], [0, 0]], COUNTS[1]], {}, "rank 0 sends 4294967295 elements"),
        (COUNTS, {"phases": ["trigger"]}, "nothing was prepared that could be triggered"),
        (COUNTS, {"phases": ["prepare"]}, "it was prepared and never triggered"),
        (COUNTS, {"phases": ["prepare", "prepare"]}, "another exchange was prepared and not triggered yet"),
    ],
)
def test_variable_exchanges_that_cannot_be(tables, options, message):
    with pytest.raises(RunError, match=message):
        exchange(tables, **options)


def test_what_is_triggered_is_what_was_prepared():
    b = KernelBuilder(world_size=4)
    x, many, few = b.input("x", (8,), "s32"), b.tensor((3, 4), "u32", HBM), b.tensor((3, 2), "u32", HBM)
    b.all_to_all_v_cc_raw([x], [x], [[0, 1, 2, 3]], many, phase="prepare")
    b.all_to_all_v_cc_raw([x], [x], [[0, 1], [2, 3]], few, phase="trigger")
    with pytest.raises(RunError, match="another exchange was prepared than is triggered"):
        run_kernel(kernel(b), counted(4, 8))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "c64"])
def test_a_register_cannot_hold_what_nobody_wrote(dtype):
    b = KernelBuilder()
    b.register_load(b.tensor((1,), dtype, HBM))
    with pytest.raises(RunError, match=r"RegisterLoad-0 .*: a register cannot hold "):
        run_kernel(kernel(b), [[]])


# Cores


def test_shared_memory_is_the_rank_s_and_private_memory_the_core_s():
    """On shared HBM the cores do one collective together; on their own memory each does its own."""

    def body(b, core):
        x = b.input("x", (4,), "s32", SHARED)
        one = b.tensor((4,), "s32", SHARED, "one")
        b.all_reduce_cc("add", [x], [one])
        mine, back = b.tensor((4,), "s32", HBM), b.tensor((2, 4), "s32", SHARED, "back")
        b.compute("memset", [mine], value=core + 1)
        b.all_reduce_cc("add", [mine], [mine])
        b.dma_copy(back[core], mine)
        b.output(one)
        b.output(back)

    made = cores(2, body, world_size=2)
    results = run(made, counted(2))
    assert lists(results, 0) == [[100, 102, 104, 106]] * 2
    assert lists(results, 1) == [[[2] * 4, [4] * 4]] * 2
    machine = Machine(made)
    machine.run(counted(2))
    assert machine.executed["instr.collective_compute"] == 8


@pytest.mark.parametrize("seed", [None, 3, 4])
def test_what_cores_do_together_is_done_once(seed):
    """A send, a receive, a prepare and a trigger of both cores: one message, one exchange."""

    def body(b, core):
        x, m = b.input("x", (4,), "s32", SHARED), b.input("m", (3, 2), "u32", SHARED)
        got, y = (b.tensor((4,), "s32", SHARED, name) for name in ("got", "y"))
        b.send_cc_raw([x], 0)
        b.send_cc_raw([x], 1)
        b.recv_cc_raw([got], 1)
        for _ in range(2):
            for phase in ("prepare", "trigger"):
                b.all_to_all_v_cc_raw([x], [y], [[0, 1]], m, phase=phase)
        b.output(got)
        b.output(y)

    table = np.array([[1, 1], [0, 1], [0, 0]], np.uint32)
    results = run(cores(2, body, world_size=2), [[x, table] for (x,) in counted(2)], seed=seed)
    assert lists(results, 0) == [[100, 101, 102, 103]] * 2
    assert lists(results, 1) == [[0, -1, 100, -1], [1, -1, 101, -1]]


def test_a_core_alone_sends_to_both_of_a_rank():
    """What cores do together is spoken for by the first of them."""

    def body(b, core):
        x, y = b.input("x", (4,), "s32", SHARED), b.tensor((4,), "s32", SHARED, "y")
        if core == 0:
            b.send_cc_raw([x], 1)
            b.send_cc_raw([x], 0)
        b.recv_cc_raw([y], 1)
        b.output(y)

    assert lists(run(cores(2, body, world_size=2), counted(2))) == [[100, 101, 102, 103]] * 2


@pytest.mark.parametrize("seed", [None, 5, 6])
def test_cores_wait_at_barriers(seed):
    """Core 0 writes, all meet, core 1 reads and writes, all meet, core 0 reads."""

    def body(b, core):
        x, y = b.input("x", (4,), "s32", SHARED), b.tensor((4,), "s32", SHARED, "y")
        z = b.tensor((4,), "s32", SHARED, "z")
        if core == 0:
            b.dma_copy(y, x)
        b.core_barrier(y, [0, 1])
        if core == 1:
            b.compute("tensor_tensor", [z], [y, y], op="add")
        b.core_barrier(z, [0, 1])
        if core == 0:
            b.dma_copy(x, z)
        b.output(x)

    made = cores(2, body, world_size=2)
    assert lists(run(made, counted(2), seed=seed)) == [[0, 2, 4, 6], [200, 202, 204, 206]]


def test_a_seed_shows_a_race():
    """Core 1 reads what core 0 writes, and nobody waits."""

    def body(b, core):
        x, y = b.input("x", (4,), "s32", SHARED), b.tensor((4,), "s32", SHARED, "y")
        z = b.tensor((4,), "s32", SHARED, "z")
        b.dma_copy(*((y, x) if core == 0 else (z, y)))
        b.output(z)

    made = cores(2, body)
    results = {tuple(run_kernel(made, counted(1), seed=seed)[0][0].tolist()) for seed in range(20)}
    assert results == {(0, 1, 2, 3), (-1, -1, -1, -1)}


def exchanged(*routes, cce=None, in_place=False):
    """Cores that send and receive on one pipe, given ``(send_to, recv_from)`` of each."""

    def body(b, core):
        mine = b.tensor((1, 4), "s32")
        got = mine if in_place else b.tensor((1, 4), "s32")
        b.compute("memset", [mine], value=10**core)
        to, source = routes[core]
        if cce:
            b.sendrecv_cce(got, mine, to, source, cce, 7)
        else:
            b.sendrecv(got, mine, to, source, 7)
        out = b.tensor((len(routes), 4), "s32", SHARED, "out")
        b.dma_copy(out[core : core + 1], got)
        b.output(out)

    return run(cores(len(routes), body), [[]])[0][0][:, 0].tolist()


def test_cores_exchange_tiles():
    assert exchanged((1, 1), (0, 0)) == [10, 1]
    assert exchanged((1, 2), (2, 0), (0, 1)) == [100, 1, 10]
    assert exchanged((1, 2), (2, 0), (0, 1), in_place=True) == [100, 1, 10]
    assert exchanged((1, [1]), (0, [0]), cce="max") == [10, 1]
    assert exchanged((1, [2, 1]), (2, [0, 2]), (0, [0, 1]), cce="add") == [110, 101, 11]
    assert exchanged((1, [2, 1]), (2, [0]), (0, [1, 0]), cce="average") == [55, 1, 5]


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        (((1, 1), (2, 0), (0, 1)), "core 0 receives from core 1, which sends to core 2"),
        (((1, 1), (0, 0), (0, 1)), "core 2 receives from core 1, which sends to core 0"),
    ],
)
def test_exchanges_that_do_not_fit(routes, message):
    with pytest.raises(RunError, match=message):
        exchanged(*routes)


def test_local_collectives_must_agree():
    def body(b, core):
        x = b.tensor((1, 4), "s32")
        b.all_reduce_cc_raw("add" if core else "max", [x], [x], [[0, 1]], is_local=True)

    with pytest.raises(RunError, match="rank 0 core 0 asks for AllReduce otherwise than rank 0 core 1"):
        run_kernel(cores(2, body), [[]])


# Whole machines


def test_inputs_are_checked_and_may_be_written():
    b = KernelBuilder(world_size=2)
    x = b.input("x", (4,), "s32")
    b.all_reduce_cc("add", [x], [x])
    made: Kernel = kernel(b)
    machine = Machine(made)
    given = counted(2)
    machine.run(given)
    assert lists(machine.input_contents()) == [[100, 102, 104, 106]] * 2
    assert lists(given) == [[0, 1, 2, 3], [100, 101, 102, 103]]
    for inputs, message in (
        (counted(1), "there are inputs for 1 rank, and 2 run"),
        ([[], []], "rank 0: 0 inputs are given, and the kernel takes 1"),
        (counted(2, 3), r"rank 0: input x is int32\[3\], and the kernel takes int32\[4\]"),
    ):
        with pytest.raises(InputError, match=message):
            run_kernel(made, inputs)
    with pytest.raises(InputError, match="there is no backend gpu"):
        Machine(made, backend="gpu")
    for ranks in ([0, 0], [2]):
        with pytest.raises(InputError, match="are not among the 2 that the kernel is for"):
            Machine(made, ranks)


def test_memory_is_given_back_after_its_last_use():
    b = KernelBuilder(world_size=2)
    x = b.input("x", (4,), "s32")
    for _ in range(5):
        y = b.tensor((4,), "s32", HBM)
        b.all_reduce_cc("max", [x], [y])
        x = y
    b.output(y)
    machine = Machine(kernel(b))
    machine.run(counted(2))
    for core in machine.cores.values():
        assert core.memory.held == {"x", y.name}
