"""The cache of built kernels: each is compiled once, races are harmless, and nobody else may have a hand in it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crossrank.collective.dtypes import F32, dtype
from crossrank.collective.kinds import Kind, ReduceOp
from crossrank.errors import InputError, RunError
from crossrank.kernels import Variant, compile_variants
from crossrank.kernels import compile as compiling
from crossrank.kernels.compile import Unit, build, build_all, cache_dir, load
from crossrank.kernels.render import render_unit

UNIT = Unit("answer", 'extern "C" int answer() { return 42; }', flags=("-O0",))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("CROSSRANK_CACHE", str(path))
    return path


def test_second_use_compiles_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(UNIT)
    assert first.parent == cache
    ran = []
    monkeypatch.setattr(compiling, "_run", lambda command: ran.append(command))
    assert build(UNIT) == first
    assert not ran


@pytest.mark.parametrize(
    "other",
    [
        Unit("answer", 'extern "C" int answer() { return 43; }', flags=("-O0",)),
        Unit("answer", UNIT.source, flags=("-O1",)),
        Unit("answer", UNIT.source, flags=("-O0",), stamp="another library"),
    ],
)
def test_what_it_is_made_from_tells_libraries_apart(cache: Path, other: Unit) -> None:
    assert build(UNIT) != build(other)
    assert len(list(cache.iterdir())) == 2, "nothing else is left behind"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_folder_that_others_can_write_is_refused(cache: Path, mode: int) -> None:
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(InputError, match="can be written by other users"):
        build(UNIT)


def test_folder_is_made_for_the_user_alone(cache: Path) -> None:
    assert cache_dir().stat().st_mode & 0o777 == 0o700


def test_folder_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(InputError, match="belongs to another user"):
        cache_dir()


def test_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CROSSRANK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "crossrank"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "crossrank"


def test_builders_race(cache: Path) -> None:
    program = f"from crossrank.kernels.compile import *\nprint(build(Unit('answer', {UNIT.source!r}, flags=('-O0',))))"
    command = [sys.executable, "-c", program]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(subprocess.run, command, capture_output=True, text=True, check=True) for _ in range(4)]
    assert len({run.result().stdout for run in runs}) == 1
    assert len(list(cache.iterdir())) == 1


def test_compiler_errors_are_shown(cache: Path) -> None:
    with pytest.raises(RunError, match=r"could not compile broken:\n.*broken.cc:1"):
        build(Unit("broken", "int f( {", flags=()))
    assert not list(cache.iterdir())
    with pytest.raises(RunError):
        build_all([UNIT, Unit("broken", "int f( {", flags=())])


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    with pytest.raises(InputError, match=r"that CXX names, no-such-compiler.*\n.*apt install g\+\+"):
        build(UNIT)
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(cache))
    compiling._toolchain.cache_clear()
    with pytest.raises(InputError, match=r"no C\+\+ compiler"):
        build(UNIT)


def test_variants_share_libraries() -> None:
    told: list[tuple[int, int]] = []
    wanted = [
        Variant(Kind.ALL_REDUCE, ReduceOp.ADD, dtype("s32")),
        Variant(Kind.REDUCE_SCATTER, ReduceOp.ADD, dtype("u32")),
        Variant(Kind.ALL_REDUCE, ReduceOp.ADD, F32),
        Variant(Kind.ALL_REDUCE, ReduceOp.ADD, F32),
    ]
    paths = compile_variants(wanted, lambda *numbers: told.append(numbers))
    assert set(paths) == set(wanted)
    assert paths[wanted[0]] == paths[wanted[1]] != paths[wanted[2]]
    assert told == [(1, 2), (2, 2)]


def test_signs_matter_where_values_are_compared() -> None:
    assert Variant(Kind.ALL_REDUCE, ReduceOp.ADD, dtype("s8")).symbol == "crossrank_all_reduce_add_u8"
    assert Variant(Kind.ALL_REDUCE, ReduceOp.MAXIMUM, dtype("s8")).symbol == "crossrank_all_reduce_maximum_s8"
    assert Variant(Kind.ALL_REDUCE, ReduceOp.MINIMUM, dtype("pred")).symbol == "crossrank_all_reduce_and_u8"


def test_portable_source_compiles_for_a_plain_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any extension of the CPU: the sources need none."""
    flags = ("-O1", "-march=x86-64") if os.uname().machine == "x86_64" else ("-O1",)
    build(Unit("plain", render_unit((ReduceOp.ADD, "bf16")) + render_unit(None), flags=flags))


def test_a_damaged_library_is_removed_and_built_again(cache: Path) -> None:
    built = build(UNIT)
    built.write_bytes(built.read_bytes()[:100])
    with pytest.raises(RunError, match="damaged and is removed; run again"):
        load(built)
    assert not built.exists()
    built.write_bytes(b"")
    load(build(UNIT))
