"""A plain end where XLA ends the process.

XLA answers most bad input with a message, and some with an abort (a failed `CHECK`) or a crash: a reshape that
changes the number of elements, a gap in the parameter numbers. Nothing can be caught then, but the process can still
say in one line what XLA did not like, and leave with the status of bad input instead of a stack trace.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGABRT, signal.SIGSEGV)
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_BAD_INPUT = 2


@contextmanager
def last_words(what: str) -> Iterator[None]:
    """While XLA reads ``what``: should it end the process, leave with one line on standard error and status 2.

    What XLA writes to standard error meanwhile is its own log, and is dropped.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # there is no standard error to save, nor to speak on
        yield
        return
    libc: Any = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    with tempfile.TemporaryFile() as said:

        def end(number: int) -> None:
            os.lseek(said.fileno(), 0, os.SEEK_SET)
            text = os.read(said.fileno(), 1 << 16).decode(errors="replace")
            check = re.search(r"Check failed: ([^\n]*)", text)
            why = f"its check failed: {check[1].strip()[:200]}" if check else signal.Signals(number).name
            os.write(stderr, f"crossrank: {what}: XLA gives up on it: {why}\n".encode())
            os._exit(_BAD_INPUT)

        handler = _Handler(end)  # kept alive as long as it is installed
        sys.stderr.flush()
        os.dup2(said.fileno(), 2)
        before = [(s, libc.signal(s, ctypes.cast(handler, ctypes.c_void_p))) for s in _SIGNALS]
        try:
            yield
        finally:
            for number, old in before:
                libc.signal(number, old)
            os.dup2(stderr, 2)
            os.close(stderr)
