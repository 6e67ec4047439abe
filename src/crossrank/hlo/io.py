"""Reading and writing HLO modules: text, protobuf in three wrappings, StableHLO and MHLO; gzipped or not.

What a file is, its content tells, not its name. A module that was not touched is written as the bytes it came in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from google.protobuf.message import DecodeError

from crossrank.errors import InputError
from crossrank.files import as_text, read_bytes, write_bytes
from crossrank.hlo import xla
from crossrank.hlo.config import PREFIX, ModuleConfig
from crossrank.hlo.guard import check_message, check_text
from crossrank.hlo.module import Module
from crossrank.hlo.schema import ModuleProto, ModuleWithConfigProto, WrappedProto

Form = Literal["text", "module", "wrapped", "with-config", "mlir"]

DUMP_REMEDY = (
    "dump the partitioned module: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=spmd.* --xla_dump_hlo_as_text "
    "--xla_dump_large_constants=true'"
)
ELIDED_REMEDY = "dump it again with XLA_FLAGS=--xla_dump_large_constants=true"
_ELIDED = re.compile(r"^([ \t]*(?:ROOT )?%?[\w.\-]+ = [^\n]*? constant\(\{\.\.\.\}\))([^\n]*)", re.M)
_ELIDED_MARK = "crossrank_elided"
_NUM_RANKS = {
    "num_partitions": re.compile(r"mhlo\.num_partitions = (\d+)"),
    "replica_count": re.compile(r"mhlo\.num_replicas = (\d+)"),
}
_UNPARTITIONED = re.compile(r"\bsdy\.(?!inlinable)|mhlo\.sharding\s*=\s*\"\{(?!manual|replicated|maximal)")


@dataclass
class ModuleFile:
    """A module and how it came.

    Attributes:
        module: the module.
        path: the file's name as the user gave it (``-``: standard input).
        form: what the file was.
        elided: names of constants whose numbers the file left out (``{...}``): such a module can be looked at, not run.
    """

    module: Module
    path: str
    form: Form
    elided: tuple[str, ...] = ()
    _elided_origins: frozenset[int] = field(default=frozenset(), repr=False)
    _wrapper: Any = field(default=None, repr=False)
    _raw: bytes = field(default=b"", repr=False)


def read_module(path: str) -> ModuleFile:
    """Read a module from a file, or from standard input (``-``).

    Raises:
        InputError: what the file is not, with XLA's own message where XLA refuses it.
    """
    return parse_module(read_bytes(path), path)


def parse_module(data: bytes, path: str = "<bytes>") -> ModuleFile:
    """A module from the (gunzipped) content of a file called ``path``."""
    try:
        file = _parse(data, path)
    except DecodeError:
        raise InputError(f"{path}: its shapes are nested deeper than a message can hold") from None
    config = file.module.config
    if config.replica_count < 1 or config.num_partitions < 1:
        counts = f"{config.replica_count} replicas and {config.num_partitions} partitions"
        raise InputError(f"{path} is a module for {counts}", "there is at least one of each")
    return file


def _parse(data: bytes, path: str) -> ModuleFile:
    if data.startswith(b"ML\xefR"):
        return _from_mlir(data, path)
    text = as_text(data)
    if text is None:
        return _from_pb(data, path)
    if re.match(r"(?s)(?:\s+|//[^\n]*\n|/\*.*?\*/)*HloModule\b", text):
        return _from_text(text, path)
    if re.search(r"^\s*(?:builtin\.)?module\b|\b(?:stablehlo|mhlo|func)\.", text, re.M):
        return _from_mlir(text, path)
    if path.endswith(".py") or re.search(r"^(?:from \w[\w.]* )?import \w", text, re.M):
        raise InputError(f"{path} is a Python program", "this command reads HLO text, an HLO .pb or StableHLO")
    raise InputError(
        f"{path} is no HLO: it does not begin with 'HloModule', and is neither a .pb nor StableHLO",
        "give HLO text, an HLO .pb or StableHLO (.mlir); or a kernel or a program, as Python or as its text",
    )


def _from_text(text: str, path: str) -> ModuleFile:
    header = re.search(r"^\s*(HloModule\b[^\n]*)", text, re.M)
    assert header is not None
    try:
        check_text(text)
        text, marks = _ELIDED.subn(_mark, text) if "{...}" in text else (text, 0)
        data = xla.text_to_proto(text, path)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    elided: dict[int, str] = {}
    if marks:
        data, elided = _take_marks(data)
    module = Module(data, ModuleConfig.from_header(header[1]))
    return ModuleFile(module, path, "text", tuple(elided.values()), frozenset(elided))


def _mark(found: re.Match[str]) -> str:
    line, rest = found.groups()
    if "frontend_attributes={" in rest:
        return line + rest.replace("frontend_attributes={", f'frontend_attributes={{{_ELIDED_MARK}="",', 1)
    return f'{line}, frontend_attributes={{{_ELIDED_MARK}=""}}{rest}'


def _take_marks(data: bytes) -> tuple[bytes, dict[int, str]]:
    """The module without marks, and name by id of the constants that had one (XLA renames where two names agree)."""
    proto, elided = ModuleProto.FromString(data), {}
    for c in proto.computations:
        for i in c.instructions:
            if i.opcode == "constant" and _ELIDED_MARK in i.frontend_attributes.map:
                elided[i.id] = i.name
                del i.frontend_attributes.map[_ELIDED_MARK]
                if not i.frontend_attributes.map:
                    i.ClearField("frontend_attributes")
    return proto.SerializeToString(deterministic=True), elided


def _from_mlir(source: str | bytes, path: str) -> ModuleFile:
    # bytecode keeps its strings as they are, so that one search serves both forms
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    if _UNPARTITIONED.search(text):
        raise InputError(f"{path} still has shardings to be partitioned", DUMP_REMEDY)
    if "dense_resource<__elided__>" in text:
        raise InputError(f"{path} has constants without their numbers (__elided__)", "print it without elision")
    try:
        data = xla.mlir_to_proto(source, path)
    except ValueError as error:
        raise InputError(f"{path}: {error}", "it must be StableHLO or MHLO that this jaxlib reads") from None
    fields = {k: m[1] for k, pattern in _NUM_RANKS.items() if (m := pattern.search(text)) and m[1] != "1"}
    return ModuleFile(Module(data, ModuleConfig(fields)), path, "mlir")


def _from_pb(data: bytes, path: str) -> ModuleFile:
    forms: tuple[tuple[Form, Any], ...] = (
        ("with-config", ModuleWithConfigProto),
        ("wrapped", WrappedProto),
        ("module", ModuleProto),
    )
    for form, cls in forms:
        try:
            message = cls.FromString(data)
            inner = message if form == "module" else message.hlo_module
            named = bool(inner.entry_computation_name) and any(
                c.id == inner.entry_computation_id for c in inner.computations
            )
            # a HloProto keeps other things where the configuration would be, and none of them is a rank count
            if form == "with-config" and not message.HasField("config"):
                continue
        except (DecodeError, UnicodeDecodeError):
            continue
        if named:
            raw = data if form == "module" else bytes(inner.SerializeToString(deterministic=True))
            try:
                check_message(inner)
                xla.check_proto(raw, path)
            except ValueError as error:
                raise InputError(f"{path}: XLA does not accept the module: {error}") from None
            module = Module(raw, _config_of(message, inner, form))
            elided = {
                i.id: i.name
                for i in module.instructions()
                if i.opcode == "constant" and not i.proto.HasField("literal")
            }
            wrapper = None if form == "module" else message
            return ModuleFile(module, path, form, tuple(elided.values()), frozenset(elided), wrapper, data)
    raise InputError(
        f"{path} is no HLO module: neither text, nor HloModuleProto, HloProto or HloModuleProtoWithConfig, nor MLIR",
        "give HLO text, an HLO .pb or StableHLO (.mlir); or a kernel or a program, as Python or as its text",
    )


def _config_of(message: Any, inner: Any, form: Form) -> ModuleConfig:
    attributes = inner.frontend_attributes.map
    fields = {k[len(PREFIX) :]: v for k, v in sorted(attributes.items()) if k.startswith(PREFIX)}
    if form == "with-config":
        if message.config.replica_count:
            fields["replica_count"] = str(message.config.replica_count)
        if message.config.num_partitions:
            fields["num_partitions"] = str(message.config.num_partitions)
    return ModuleConfig(fields)


# -- writing -----------------------------------------------------------------------------------------------------------
def to_text(file: ModuleFile) -> str:
    """The module as HLO text: XLA's own printing, under the header it came with."""
    module = file.module
    data = module.serialize()
    if any(k.startswith(PREFIX) for k in module.proto.frontend_attributes.map):
        bare = ModuleProto.FromString(data)
        for key in [k for k in bare.frontend_attributes.map if k.startswith(PREFIX)]:
            del bare.frontend_attributes.map[key]
        data = bare.SerializeToString()
    try:
        text = xla.proto_to_text(data)
    except ValueError as error:
        raise InputError(f"{file.path}: XLA does not accept the module: {error}") from None
    printed, newline, rest = text.partition("\n")
    text = module.config.header_line(printed) + newline + _callees_first(module, rest)
    if file.elided:  # numbers that were never there must not come out as if they had been
        lost = file._elided_origins
        names = {i.name for i in module.instructions() if i.opcode == "constant" and i.origin in lost}
        text = re.sub(
            r"^(\s*(?:ROOT )?%?([\w.\-]+) = [^\n]*? constant\()\{[^\n]*?\}(\)(?:,|$))",
            lambda m: f"{m[1]}{{...}}{m[3]}" if m[2] in names else m[0],
            text,
            flags=re.M,
        )
    return text.rstrip("\n") + "\n"


_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.\-]+) [^\n]*\{\n.*?^\}[^\n]*\n", re.M | re.S)
_FIRST_LINE = re.compile(r"\n(?:ENTRY )?%([\w.\-]+) ")


def _callees_first(module: Module, text: str) -> str:
    """Mend the order of computations where it needs it: XLA may print a caller first, and then not read its text."""
    place = {name: n for n, name in enumerate(_FIRST_LINE.findall(text))}
    order = [c for c in module.reachable() if c.name in place]
    if all(place[c.name] < place[i.computation.name] for c in order for i in c.callers if i.computation.name in place):
        return text
    blocks = {m[1]: m for m in _COMPUTATION.finditer(text)}
    names = {c.name: None for c in order}
    moved = iter([*(n for n in blocks if n not in names), *names])
    return _COMPUTATION.sub(lambda _: blocks[next(moved)][0], text)


def to_pb(file: ModuleFile) -> bytes:
    """The module as protobuf, in the wrapping it came in; the bytes it came as where nothing was touched."""
    module = file.module
    if file.elided:
        raise InputError(
            f"{file.path}: constant %{file.elided[0]} has no numbers ({{...}}), which a .pb cannot say", ELIDED_REMEDY
        )
    if file._raw and not module.modified:
        return file._raw
    data = module.serialize()
    if file._wrapper is not None:
        file._wrapper.hlo_module.ParseFromString(data)
        return bytes(file._wrapper.SerializeToString(deterministic=True))
    proto = ModuleProto.FromString(data)
    for key, value in module.config.fields.items():
        proto.frontend_attributes.map[PREFIX + key] = value
    return bytes(proto.SerializeToString(deterministic=True))


def write_module(file: ModuleFile, path: str) -> None:
    """Write by suffix: ``.pb`` is protobuf, all else text; ``.gz`` on top of either."""
    is_pb = path.removesuffix(".gz").endswith(".pb")
    write_bytes(path, to_pb(file) if is_pb else to_text(file).encode())


def write_program(files: Sequence[ModuleFile], folder: str) -> list[str]:
    """Write the modules of several ranks into a folder under the names that they have; returns the paths.

    Where two have one name, the rank goes before it.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    names = ["stdin.hlo" if f.path == "-" else Path(f.path).name for f in files]
    paths = []
    for rank, (file, name) in enumerate(zip(files, names, strict=True)):
        name = f"rank{rank}-{name}" if names.count(name) > 1 else name
        paths.append(str(Path(folder) / name))
        write_module(file, paths[-1])
    return paths
