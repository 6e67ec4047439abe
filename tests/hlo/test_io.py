"""Reading and writing in every form, and what is said of what cannot be read."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from crossrank.errors import InputError
from crossrank.hlo import xla
from crossrank.hlo.io import ModuleFile, parse_module, read_module, to_pb, to_text, write_module
from crossrank.hlo.schema import ModuleProto, ModuleWithConfigProto, WrappedProto

from ..support import apply, find, hlo, opcodes, parse, reducer

ENTRY = """
  p = f32[8,4] parameter(0)
  q = f32[8,4] all-reduce(p), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=add_f32
  c = s32[12] constant({1,2,3,4,5,6,7,8,9,10,11,12})
  ROOT r = (f32[8,4], s32[12]) tuple(q, c)"""
TEXT = hlo(
    ENTRY, reducer(), header="num_partitions=8, replica_count=2, allow_spmd_sharding_propagation_to_output={true}"
)
# an unknown field (number 900, a string) of a newer XLA
UNKNOWN = b"\xa2\x38\x05later"


@cache
def module_bytes() -> bytes:
    return xla.text_to_proto(TEXT) + UNKNOWN


def wrapped() -> bytes:
    message = WrappedProto(hlo_module=ModuleProto.FromString(module_bytes()))
    return bytes(message.SerializeToString()) + UNKNOWN


def with_config() -> bytes:
    message = ModuleWithConfigProto(hlo_module=ModuleProto.FromString(module_bytes()))
    message.config.replica_count, message.config.num_partitions = 2, 8
    return bytes(message.SerializeToString()) + UNKNOWN


@cache
def mlir(dialect: str) -> str:
    import jax
    import jax.numpy as jnp

    lowered = jax.jit(lambda x: jnp.sin(x) + 1).lower(jnp.ones((8, 4)))
    if dialect == "stablehlo":
        return str(lowered.as_text())
    return """module @m attributes {mhlo.num_partitions = 8 : i32} {
  func.func @main(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = mhlo.add %arg0, %arg0 : tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}
"""


def bytecode() -> bytes:
    from jax._src.interpreters import mlir as jax_mlir
    from jax._src.lib.mlir import ir

    with jax_mlir.make_ir_context():
        out = BytesIO()
        ir.Module.parse(mlir("stablehlo")).operation.write_bytecode(out)
    return out.getvalue()


FORMS: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (TEXT.encode, "text"),
    "module": (module_bytes, "module"),
    "wrapped": (wrapped, "wrapped"),
    "with-config": (with_config, "with-config"),
    "stablehlo": (lambda: mlir("stablehlo").encode(), "mlir"),
    "mhlo": (lambda: mlir("mhlo").encode(), "mlir"),
    "bytecode": (bytecode, "mlir"),
}
each_form = pytest.mark.parametrize("form", FORMS)
each_pb = pytest.mark.parametrize("form", ["module", "wrapped", "with-config"])


@each_form
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_form_is_known_by_its_content(tmp_path: Path, form: str, suffix: str) -> None:
    make, expected = FORMS[form]
    path = tmp_path / f"no_telling_name{suffix}"
    path.write_bytes(gzip.compress(make()) if suffix else make())
    file = read_module(str(path))
    assert file.form == expected
    assert file.path == str(path)
    again = parse_module(to_text(file).encode())
    assert opcodes(again.module) == opcodes(file.module)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(TEXT.encode())))
    assert read_module("-").module.name == "test"


@each_pb
def test_an_untouched_pb_comes_out_byte_for_byte(form: str) -> None:
    data = FORMS[form][0]()
    assert to_pb(parse_module(data)) == data


@each_pb
def test_an_edited_pb_keeps_its_wrapping_and_what_we_do_not_know(form: str) -> None:
    file = parse_module(FORMS[form][0]())
    find(file.module, "q").set_frontend_attribute("note", "edited")
    data = to_pb(file)
    again = parse_module(data)
    assert again.form == form
    assert find(again.module, "q").frontend_attributes == {"note": "edited"}
    assert UNKNOWN in data


def test_ranks_of_a_module_with_config() -> None:
    config = parse_module(with_config()).module.config
    assert (config.num_partitions, config.replica_count) == (8, 2)


def test_the_header_survives_a_pb() -> None:
    first = parse_module(TEXT.encode())
    data = to_pb(first)
    kept = dict(ModuleProto.FromString(data).frontend_attributes.map)
    assert kept == {
        "crossrank.num_partitions": "8",
        "crossrank.replica_count": "2",
        "crossrank.allow_spmd_sharding_propagation_to_output": "{true}",
    }
    second = parse_module(data)
    assert second.module.config.fields == first.module.config.fields
    text = to_text(second)
    assert "crossrank." not in text
    assert parse_module(text.encode()).module.config.fields == first.module.config.fields
    assert to_pb(second) == data


def test_text_comes_out_under_its_own_header_and_stays() -> None:
    text = to_text(parse_module(TEXT.encode()))
    assert text.splitlines()[0] == TEXT.splitlines()[0]
    assert to_text(parse_module(text.encode())) == text


def test_a_scheduled_module_stays_scheduled() -> None:
    file = parse(ENTRY, reducer(), header="is_scheduled=true, num_partitions=8")
    again = parse_module(to_pb(file))
    assert again.module.proto.HasField("schedule")
    assert "is_scheduled=true" in to_text(again).splitlines()[0]


@pytest.mark.parametrize("name", ["out.pb", "out.hlo", "out.txt", "out.pb.gz", "out.hlo.gz"])
def test_write_by_suffix(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    file = parse_module(TEXT.encode())
    write_module(file, path)
    data = Path(path).read_bytes()
    assert (data[:2] == b"\x1f\x8b") == name.endswith(".gz")
    assert read_module(path).form == ("module" if ".pb" in name else "text")
    write_module(file, path)
    assert Path(path).read_bytes() == data  # neither the time nor the order of a hash table is in it


def test_where_nothing_can_be_written() -> None:
    with pytest.raises(InputError, match="cannot write /no/such/folder/x"):
        write_module(parse_module(TEXT.encode()), "/no/such/folder/x")


# -- constants without their numbers -----------------------------------------------------------------------------------
ELIDED = """
  %c = s32[4] constant({1,2,3,4})
  %e = f32[8,4]{1,0} constant({...})
  %t = f32[8,4]{1,0} constant({...}), frontend_attributes={a="b"}, metadata={op_name="x"}
  %note = f32[] constant(1), frontend_attributes={n="constant({...})"}
  ROOT %r = (s32[4], f32[8,4], f32[8,4], f32[]) tuple(%c, %e, %t, %note)"""


def test_elided_constants_are_never_numbers() -> None:
    file = parse(ELIDED)
    assert file.elided == ("e", "t")
    text = to_text(file)
    lines = {line.split(" = ")[0].strip(): line for line in text.splitlines() if " constant(" in line}
    assert "constant({...})" in lines["%e"]
    assert 'constant({...}), frontend_attributes={a="b"}, metadata={op_name="x"}' in lines["%t"]
    assert "{1, 2, 3, 4}" in lines["%c"]
    assert parse_module(text.encode()).elided == ("e", "t")
    with pytest.raises(InputError, match=r"constant %e has no numbers.*\n.*xla_dump_large_constants=true"):
        to_pb(file)


def test_elided_constants_of_one_name_in_two_computations() -> None:
    body = "body {\n  c = f32[4] constant({...})\n  ROOT b = f32[4] copy(c)\n}"
    file = parse("  c = f32[4] constant({...})\n  x = f32[4] call(), to_apply=body\n  ROOT r = f32[4] add(c, x)", body)
    assert sorted(file.elided) == ["c", "c.1"]
    assert to_text(file).count("constant({...})") == 2
    apply(file.module, "inline-calls")
    text = to_text(file)
    assert text.count("constant({...})") == text.count(" constant(") == 2
    assert "elided" not in text


def test_elided_constants_stay_so_under_a_new_name() -> None:
    file = parse(ELIDED)
    copy = file.module.entry.clone_in(find(file.module, "e"), [])
    file.module.entry.set_root(copy)
    file.module.entry.remove_dead([i for i in file.module.entry if i is not copy and not i.users])
    line = next(x for x in to_text(file).splitlines() if "ROOT" in x)
    assert "constant({...})" in line


def test_a_large_constant_is_written_out() -> None:
    numbers = ", ".join(map(str, range(2000)))
    assert "1999}" in to_text(parse(f"  ROOT c = s32[2000] constant({{{numbers}}})"))


# -- bad input ---------------------------------------------------------------------------------------------------------
UNPARTITIONED = """module @m attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
    return %arg0 : tensor<8xf32>
  }
}
"""


BAD: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "there is no file .*missing"),
    "empty": (b"", "empty is empty"),
    "blank": (b" \n\n", "blank is empty"),
    "folder": (None, "folder is a folder"),
    "binary": (bytes(range(256)) * 20, "binary is no HLO module: neither text"),
    "zeros": (bytes(100), "zeros is no HLO module"),
    "damaged.gz": (gzip.compress(TEXT.encode())[:100], "damaged.gz is a damaged gzip file"),
    "prose.txt": (b"Hello, world\n", "prose.txt is no HLO: it does not begin with 'HloModule'"),
    "script.py": (b"import jax\nprint(1)\n", "script.py is a Python program"),
    "shards.mlir": (UNPARTITIONED.encode(), "(?s)shards.mlir still has shardings.*xla_dump_hlo_pass_re=spmd"),
    "broken.mlir": (b"module {\n  func.func @main(\n}", "broken.mlir: "),
    "typo.hlo": (TEXT.replace("tuple(q, c)", "tuple(q, zz)").encode(), "typo.hlo: line 14, column .*\\n.*zz"),
    "opcode.hlo": (TEXT.replace("all-reduce(", "all-reduced(").encode(), "opcode.hlo: line 12, .*all-reduced"),
    "cut.hlo": (TEXT[: len(TEXT) // 2].encode(), "cut.hlo: "),
    "header.hlo": (b"HloModule", "header.hlo: "),
    "cut.pb": (module_bytes()[:200], "cut.pb is no HLO module"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_or_two_plain_lines(tmp_path: Path, name: str) -> None:
    content, complaint = BAD[name]
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=complaint) as caught:
        read_module(str(path))
    lines = str(caught.value).splitlines()
    assert len(lines) <= 2
    assert str(path) in lines[0]


def test_a_module_that_was_spoilt_by_an_edit_is_named() -> None:
    file: ModuleFile = parse(ENTRY, reducer())
    find(file.module, "q").edit().opcode = "no-such-opcode"
    with pytest.raises(InputError, match=r"test.hlo: XLA does not accept the module: .*no-such-opcode"):
        to_text(file)
