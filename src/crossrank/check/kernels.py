"""What is wrong with a kernel, found without running it."""

from __future__ import annotations

from crossrank.doors import Source
from crossrank.errors import InputError
from crossrank.findings import Finding
from crossrank.instr.files import kernel_from_text, line_of
from crossrank.nki.files import read_kernel_file


def check_kernel(source: Source, ranks: int | None, lnc: int | None = None) -> list[Finding]:
    """What the verifier finds in a kernel's text.

    Raises:
        InputError: the text cannot be read, or what the Python of a kernel cannot do, with its line: that is found
            when the kernel is traced.
    """
    if source.python:
        read_kernel_file(source, ranks, lnc)
        return []
    file = kernel_from_text(source.data, source.path, ranks, lnc, verify=False)
    try:
        file.kernel.verify()
    except InputError as error:
        line = line_of(error.what, source.data.decode()).replace(":", "line ")
        return [Finding("verifier", "", f"{line}: {error.what}" if line else error.what, error.remedy)]
    return []
