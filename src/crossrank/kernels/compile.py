"""C++ to shared libraries, by the system's compiler, each once: what was built stays in a cache of the user's own.

A library is found again by everything that it was made from: source, headers, flags, compiler and CPU. It is written
under a name of its own and then renamed, so that builders may race. The cache holds code that we shall run, so a
folder that others could write is refused.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from crossrank.errors import InputError, RunError
from crossrank.kernels.render import INCLUDE, render_unit
from crossrank.kernels.variant import Variant

Progress = Callable[[int, int], None]

_FLAGS = ("-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-fvisibility-inlines-hidden")
_QUIET = ("-Wno-psabi",)  # vectors wider than the machine's registers are passed inline only
_ABANDONED_S = 3600.0  # no build takes that long
_FIRST_LINES = 12


@dataclass(frozen=True)
class Unit:
    """One library to build.

    Attributes:
        name: for people who look into the cache.
        source: the C++ text.
        includes: folders of headers of ours; what is in them is part of what the library was made from.
        system_includes: folders of others' headers, for which ``stamp`` speaks.
        flags: further flags, the level of optimisation among them.
        stamp: the version of whatever else went in.
    """

    name: str
    source: str
    includes: tuple[Path, ...] = (INCLUDE,)
    system_includes: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ("-O3",)
    stamp: str = ""


@dataclass(frozen=True)
class Toolchain:
    """A compiler: its command, what it says of itself, and the flags that it takes to build for this very CPU."""

    command: tuple[str, ...]
    version: str
    native: tuple[str, ...]


def cache_dir() -> Path:
    """The folder of built libraries, made where there is none.

    It is ``$CROSSRANK_CACHE``, else ``crossrank`` in the user's cache folder (``$XDG_CACHE_HOME``, else ``~/.cache``).

    Raises:
        InputError: others could write there, or it cannot be made.
    """
    chosen = os.environ.get("CROSSRANK_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "crossrank"
    remedy = "name another folder in CROSSRANK_CACHE"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise InputError(f"the kernel cache {path} cannot be made: {error.strerror}", remedy) from None
    if status.st_uid != os.getuid():
        raise InputError(f"the kernel cache {path} belongs to another user", remedy)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(f"the kernel cache {path} can be written by other users", f"chmod go-w {path}, or {remedy}")
    return path


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, stdin=subprocess.DEVNULL
    )


@cache
def _toolchain(cxx: str | None) -> Toolchain:
    remedy = "install one (Debian and Ubuntu: apt install g++), or name it in CXX"
    if cxx:
        command = tuple(shlex.split(cxx))
        if not shutil.which(command[0]):
            raise InputError(f"the C++ compiler that CXX names, {command[0]}, is not there", remedy)
    else:
        found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
        if found is None:
            raise InputError("there is no C++ compiler (c++, g++ or clang++), which the kernels need", remedy)
        command = (found,)
    version = _run([*command, "--version"]).stdout
    native = ("-march=native",)
    accepted = _run([*command, *native, "-x", "c++", "-fsyntax-only", os.devnull]).returncode == 0
    return Toolchain(command, version, native if accepted else ())


def toolchain() -> Toolchain:
    """The compiler that ``$CXX`` names, else the first of c++, g++ and clang++; InputError where there is none."""
    return _toolchain(os.environ.get("CXX"))


@cache
def _cpu() -> str:
    """What tells one CPU from another, as far as compiled code goes."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(x for x in lines if x.split("\t")[0].strip() in ("model name", "flags", "Features", "CPU part"))


@cache
def _headers(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _target(unit: Unit, tools: Toolchain) -> Path:
    made_from = [unit.source, *map(_headers, unit.includes), unit.stamp, *unit.flags, *_FLAGS, *_QUIET]
    made_from += [*tools.command, tools.version, *tools.native, _cpu()]
    key = hashlib.sha256("\0".join(made_from).encode()).hexdigest()
    return cache_dir() / f"{unit.name}-{key[:24]}.so"


def build(unit: Unit) -> Path:
    """The library of ``unit``, built unless it is in the cache.

    Raises:
        InputError: no compiler, or a cache that cannot be used.
        RunError: the compiler failed; the message has the first lines of what it said.
    """
    tools = toolchain()
    target = _target(unit, tools)
    if target.exists() and target.stat().st_size:
        return target
    _sweep(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{unit.name}-") as work:
        source, output = Path(work) / f"{unit.name}.cc", Path(work) / target.name
        source.write_text(unit.source, encoding="utf-8")
        includes = [f"-I{p}" for p in unit.includes] + [x for p in unit.system_includes for x in ("-isystem", str(p))]
        command = [
            *tools.command,
            *_FLAGS,
            *_QUIET,
            *tools.native,
            *unit.flags,
            *includes,
            str(source),
            "-o",
            str(output),
        ]
        done = _run(command)
        if done.returncode:
            said = "\n".join(done.stderr.splitlines()[:_FIRST_LINES])
            raise RunError(f"{tools.command[0]} could not compile {unit.name}:\n{said or 'it did not say why'}")
        if not output.exists():
            raise RunError(f"{tools.command[0]} made no library of {unit.name}, and did not say why")
        output.replace(target)
    return target


def load(path: Path, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a built library; RunError where it is damaged, and then it is gone, to be built again."""
    try:
        return ctypes.CDLL(str(path), mode=mode)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise RunError(f"a library in the kernel cache was damaged and is removed; run again ({error})") from None


def _sweep(folder: Path) -> None:
    """Remove what builds that were killed have left behind."""
    for path in folder.iterdir():
        try:
            if path.is_dir() and time.time() - path.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:  # another process swept it
            continue


def build_all(units: Sequence[Unit], progress: Progress | None = None) -> list[Path]:
    """The libraries of ``units``, in their order, compiled side by side.

    ``progress`` is told how many of how many are there, after each.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = [pool.submit(build, unit) for unit in units]
        try:
            for done, job in enumerate(as_completed(jobs), 1):
                job.result()
                if progress is not None:
                    progress(done, len(jobs))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [job.result() for job in jobs]


def compile_variants(variants: Iterable[Variant], progress: Progress | None = None) -> dict[Variant, Path]:
    """The libraries that export ``variants`` (under their ``symbol``), compiled where the cache has them not.

    Args:
        variants: what is needed; variants that share their code share a library.
        progress: called with the libraries that are there and those that are needed, after each.
    """
    wanted = list(variants)
    codes = list(dict.fromkeys(v.code for v in wanted))
    units = [Unit("-".join(code) if code else "move", render_unit(code)) for code in codes]
    paths = dict(zip(codes, build_all(units, progress), strict=True))
    return {v: paths[v.code] for v in wanted}
