import pytest

from crossrank.collective.dtypes import ALL, dtype
from crossrank.collective.kinds import Kind, ReduceOp, is_collective_class, is_neuron_collective


def test_a_kind_is_its_opcode():
    assert Kind("reduce-scatter") is Kind.REDUCE_SCATTER
    assert f"{Kind.RAGGED_ALL_TO_ALL}" == "ragged-all-to-all"
    assert [k.value for k in Kind if k.reduces] == ["all-reduce", "reduce-scatter"]
    assert [k.value for k in Kind if k.has_pairs] == ["collective-permute", "send", "recv", "send-recv"]
    assert [k.value for k in Kind if k.has_tokens] == ["send", "recv", "send-recv"]


def test_the_two_predicates():
    opcodes = [*Kind, "add", "all-reduce-start", "send-done", ""]
    assert {o for o in opcodes if is_neuron_collective(o)} == {
        *("all-gather", "all-reduce", "all-to-all", "collective-permute", "recv", "reduce-scatter", "send")
    }
    assert {o for o in opcodes if is_collective_class(o)} == {
        *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "ragged-all-to-all", "reduce-scatter")
    }


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("pred", "add multiply maximum minimum and or xor"),
        ("s4", "add multiply maximum minimum and or xor"),
        ("u64", "add multiply maximum minimum and or xor"),
        ("bf16", "add multiply maximum minimum"),
        ("f8e4m3fn", "add multiply maximum minimum"),
        ("c64", "add multiply"),
        ("token", ""),
    ],
)
def test_which_op_is_defined_on_what(name, ops):
    assert [op.value for op in ReduceOp if op.valid_for(dtype(name))] == ops.split()


def test_add_is_defined_on_every_array():
    assert all(ReduceOp.ADD.valid_for(t) == (t.numpy is not None) for t in ALL)
