"""HLO's protobuf messages as Python classes, made from ``hlo.proto`` when this module is imported.

No package has XLA's schema, and a generated ``_pb2.py`` pins one version of the protobuf runtime. So the small schema
beside this file is read here and handed to protobuf as a descriptor. One pool holds all of it: classes of two pools do
not mix.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _FieldProto.TYPE_INT32,
    "int64": _FieldProto.TYPE_INT64,
    "uint32": _FieldProto.TYPE_UINT32,
    "uint64": _FieldProto.TYPE_UINT64,
    "float": _FieldProto.TYPE_FLOAT,
    "double": _FieldProto.TYPE_DOUBLE,
    "bool": _FieldProto.TYPE_BOOL,
    "string": _FieldProto.TYPE_STRING,
    "bytes": _FieldProto.TYPE_BYTES,
}
_FIELD = re.compile(r"(repeated )?(?:map<(\w+), (\w+)>|(\w+)) (\w+) = (\d+);")


def _add_field(
    message: descriptor_pb2.DescriptorProto, package: str, name: str, number: int, kind: str, repeated: bool
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _FieldProto.LABEL_REPEATED if repeated else _FieldProto.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _FieldProto.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


def read_schema(text: str, file_name: str) -> descriptor_pb2.FileDescriptorProto:
    """A descriptor of a ``.proto`` file made of messages with scalar, message, repeated and map fields."""
    text = re.sub(r"//[^\n]*", "", text)
    package = re.search(r"package ([\w.]+);", text)
    assert package is not None
    file = descriptor_pb2.FileDescriptorProto(name=file_name, package=package[1], syntax="proto3")
    for name, body in re.findall(r"message (\w+) \{([^}]*)\}", text):
        message = file.message_type.add(name=name)
        for repeated, key, value, kind, field_name, number in _FIELD.findall(body):
            if key:
                entry_name = field_name.title().replace("_", "") + "Entry"
                entry = message.nested_type.add(name=entry_name)
                entry.options.map_entry = True
                _add_field(entry, package[1], "key", 1, key, repeated=False)
                _add_field(entry, package[1], "value", 2, value, repeated=False)
                _add_field(message, package[1], field_name, int(number), f"{name}.{entry_name}", repeated=True)
            else:
                _add_field(message, package[1], field_name, int(number), kind, repeated=bool(repeated))
    return file


_pool = descriptor_pool.DescriptorPool()
_file = read_schema((resources.files(__package__) / "hlo.proto").read_text(encoding="utf-8"), "crossrank/hlo.proto")
_pool.Add(_file)


def _message(name: str) -> type[Any]:
    cls: type[Message] = message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_file.package}.{name}"))
    return cls


# Messages are typed as Any on purpose: their fields are those of hlo.proto, which no type checker reads.
ModuleProto = _message("Module")
ComputationProto = _message("Computation")
InstructionProto = _message("Instruction")
ShapeProto = _message("Shape")
WrappedProto = _message("Wrapped")
ModuleWithConfigProto = _message("ModuleWithConfig")
