"""Files as bytes: read, written, gzipped or not; what is in them is their door's business."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import tokenize
import zlib
from pathlib import Path

from crossrank.errors import InputError


def read_bytes(path: str) -> bytes:
    """The content of a file or of standard input (``-``), gunzipped; InputError where that fails."""
    if not path:
        raise InputError("the name of the file is empty")
    if path == "-" and sys.stdin is None:
        raise InputError("standard input is closed", "name a file")
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", "name a file in it") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise InputError(f"{path} is a damaged gzip file", "copy or dump it again") from None
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise InputError(f"{path} is empty", "give a module, a kernel or a program")
    return data


def as_text(data: bytes) -> str | None:
    """What a file says, where it is text; else None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or re.search(r"[\x01-\x08\x0e-\x1f]", text[:4096]) else text


def python_text(data: bytes) -> str | None:
    """What a file of Python says, in the encoding that its first lines name; None where it is none."""
    try:
        return data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return None


def write_bytes(path: str, data: bytes) -> None:
    """Write a file, gzipped where its name ends in ``.gz``; InputError where that fails."""
    if path.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
