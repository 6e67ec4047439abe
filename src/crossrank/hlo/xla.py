"""The few calls into jaxlib that parse, check and print HLO.

XLA is the one parser and printer of HLO text; what it refuses comes back as a `ValueError` whose text is XLA's own.
"""

from __future__ import annotations

import re
from typing import Any

from jaxlib import _hlo, _jax

from crossrank.hlo.last_words import last_words

# a status that XLA did not look at before use comes as a plain RuntimeError, a C++ out_of_range as an IndexError
_REFUSALS = (_jax.JaxRuntimeError, RuntimeError, IndexError, ValueError)


def text_to_proto(text: str, name: str = "the module") -> bytes:
    """HLO text → serialized module message; ValueError with XLA's message and the faulty line."""
    try:
        with last_words(name):
            return bytes(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    except _REFUSALS as error:
        raise ValueError(_parse_error(str(error))) from None


def proto_to_text(data: bytes) -> str:
    """Serialized module message → text as XLA prints it; ValueError where XLA refuses the module."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    module = _load(data)
    try:
        return str(module.to_string(options))
    except _REFUSALS as error:
        raise ValueError(_first_lines(str(error))) from None


def check_proto(data: bytes, name: str = "the module") -> None:
    """ValueError where XLA refuses the module."""
    with last_words(name):
        _load(data)


def check_made_proto(data: bytes) -> None:
    """ValueError where XLA refuses a module that we made; unlike `check_proto` it leaves the process as it is."""
    _load(data)


def mlir_to_proto(source: str | bytes, name: str = "the module") -> bytes:
    """A StableHLO or MHLO module → serialized module message; ValueError with the parser's message."""
    try:
        with last_words(name):
            computation = _jax.mlir.mlir_module_to_xla_computation(source, use_tuple_args=False, return_tuple=False)
            return bytes(computation.as_serialized_hlo_module_proto())
    except _REFUSALS as error:
        raise ValueError(_first_lines(str(error), most=1)) from None


def proto_to_mlir(data: bytes) -> bytes:
    """Serialized module message → StableHLO, in MLIR bytecode or text as jaxlib gives it."""
    try:
        mlir: Any = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(data))
    except _REFUSALS as error:
        raise ValueError(_first_lines(str(error))) from None
    return mlir if isinstance(mlir, bytes) else str(mlir).encode()


def _load(data: bytes) -> Any:
    try:
        return _hlo.HloModule.from_serialized_hlo_module_proto(data)
    except _REFUSALS as error:
        raise ValueError(_first_lines(str(error))) from None


def _first_lines(message: str, most: int = 2) -> str:
    message = re.sub(r"^(?:Bad StatusOr access: )?[A-Z_]+: ", "", message.strip())
    return "\n".join(message.splitlines()[:most])


def _parse_error(message: str) -> str:
    """The first complaint of XLA's parser, as ``line L, column C: what`` and the line itself."""
    found = re.search(r"was parsing (\d+):(\d+): error: (.*)\n(.*)", message)
    if not found:
        return _first_lines(message)
    line, column, what, source = found.groups()
    source = "" if source.startswith("LINE OUT OF RANGE") else f"\n  {source.strip()[:160]}"
    return f"line {line}, column {column}: {what.split(', error: ')[-1]}{source}"
