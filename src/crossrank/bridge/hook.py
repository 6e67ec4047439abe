"""The hook in JAX: while it is installed, what `jax.jit` compiles for CPU devices has its collectives on our kernels.

XLA:CPU shows every module to a transformation that `jax.extend.xla` registers, after its own passes and before it
schedules. There `crossrank.bridge.rewrite` takes over; whatever goes wrong in it leaves that module as it was.

Compiled modules carry ids that mean something in this process only. So neither may the persistent compilation cache
keep them, nor may it answer in XLA's place: it is off, and its key another, as long as there is a hook. JAX's own
caches are emptied when a hook comes and when it goes.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import jax
from jax._src import cache_key, compiler, xla_bridge
from jax.experimental.compilation_cache import compilation_cache
from jax.extend import xla as jax_xla

from crossrank.bridge.hook_report import Report
from crossrank.bridge.rewrite import Left, Rewritten, may_communicate, read, rewrite
from crossrank.errors import InputError, RunError
from crossrank.hlo.collectives import collectives
from crossrank.hlo.execute.backends import KernelBackend
from crossrank.hlo.ffi.native import Native
from crossrank.hlo.module import Module
from crossrank.passes import Pass, parse_passes

LIMIT_S = 60.0
"""Seconds that a rank may wait for another."""
_LONGEST_S = 86_400.0

_PLAIN = (InputError, RunError)  # their text says all
_NAME = "crossrank"
_SEVERAL = "the program runs in several processes, and the hook serves one"


class _Hook:
    """One installed hook: its settings and its report."""

    def __init__(self, passes: Sequence[Pass[Module]], limit_s: float) -> None:
        self.passes = passes
        self.limit_s = limit_s
        self.native = Native.load()
        self.backend = KernelBackend(self.native)
        self.native.reset()
        self.report = Report(native=self.native)
        self.refused: set[str] = set()  # modules that XLA compiles once more as they are

    def activate(self) -> None:
        """Let the native side work by these settings."""
        self.native.set_limit(self.limit_s)
        self.native.set_option("flush_subnormals", 1)  # as XLA's own collectives do

    def transform(self, data: bytes) -> bytes | None:
        """What XLA calls with each module; None leaves it as it is."""
        if not may_communicate(data):
            self.report.count()
            return None
        name = "a module"
        try:
            module = read(data)
            name = module.name
            if name in self.refused:
                return None
            self.report.count()
            made = _left_alone(module) if jax.process_count() > 1 else rewrite(module, self.passes, self.backend)
        except BaseException as error:  # nothing of ours may end the user's program
            self.fail(name, str(error) if isinstance(error, _PLAIN) else f"{type(error).__name__}: {error}")
            return None
        if made.given or made.left or made.data:
            self.report.add(made)
        return made.data

    def made(self, name: str) -> bool:
        """Whether XLA goes on with something of ours in the place of a module of that name."""
        return any(m.name == name and m.data is not None for m in self.report.modules)

    def fail(self, name: str, reason: str) -> None:
        """Say that a module stays as it is."""
        print(f"crossrank: {name} stays as it is: {reason}", file=sys.stderr, flush=True)
        self.report.fail(name, reason)


def _left_alone(module: Module) -> Rewritten:
    left = [Left(info.kind, f"%{i.name}", _SEVERAL, i.where) for i, info in collectives(module)]
    return Rewritten(module.name, module.world, left=left)


class _Patches:
    """What is different in JAX as long as there is a hook.

    The persistent cache is away; and where XLA does not compile what became of a module, the module is compiled as it
    was.
    """

    def __init__(self, hooks: _Hooks) -> None:
        self._cached = jax.config.jax_enable_compilation_cache
        self._key = cache_key.custom_hook
        self._compile = compiler.backend_compile_and_load
        token = uuid.uuid4().hex
        jax.config.update("jax_enable_compilation_cache", False)
        # should the program turn it on again: nobody else ever finds what it keeps
        cache_key.custom_hook = lambda: f"{self._key()} crossrank {token}"
        compilation_cache.reset_cache()

        def compile(backend: Any, module: Any, *rest: Any, **named: Any) -> Any:
            hooks.register()
            try:
                return self._compile(backend, module, *rest, **named)
            except jax.errors.JaxRuntimeError as error:
                with hooks.refused(module.operation.attributes["sym_name"].value, error) as again:
                    if not again:
                        raise
                    return self._compile(backend, module, *rest, **named)

        compiler.backend_compile_and_load = compile

    def undo(self) -> None:
        """Put everything back."""
        jax.config.update("jax_enable_compilation_cache", self._cached)
        cache_key.custom_hook = self._key
        compiler.backend_compile_and_load = self._compile
        compilation_cache.reset_cache()


class _Hooks:
    """The hooks of this process: the one that was installed last is at work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack: list[_Hook] = []
        self._patches: _Patches | None = None
        self._registered = False

    def register(self) -> None:
        """Let XLA call us; not before JAX has its devices, for newer versions of it would make them for that."""
        with self._lock:
            if self._stack and not self._registered:
                jax_xla.register_hlo_module_transformation(self._transform, name=_NAME, platforms="cpu")
                self._registered = True

    def push(self, hook: _Hook) -> None:
        """Put one to work."""
        with self._lock:
            hook.activate()
            if not self._stack:
                self._patches = _Patches(self)
            self._stack.append(hook)
        try:
            if xla_bridge.backends_are_initialized():
                self.register()
            jax.clear_caches()
        except BaseException:
            self.pop()
            raise

    def pop(self) -> _Hook:
        """Take the last one away; the one before is at work again."""
        with self._lock:
            if not self._stack:
                raise InputError("no hook is installed", "crossrank.jax.install() comes first")
            hook = self._stack.pop()
            if self._stack:
                self._stack[-1].activate()
            elif self._patches is not None:
                if self._registered:
                    jax_xla.clear_hlo_module_transformation(_NAME, platforms="cpu")
                self._registered = False
                self._patches.undo()
        jax.clear_caches()
        return hook

    def _transform(self, data: bytes) -> bytes | None:
        last = self._stack[-1:]
        return last[0].transform(data) if last else None

    @contextmanager
    def refused(self, name: str, error: Exception) -> Iterator[bool]:
        """XLA did not compile module ``name``: yields whether it may be for what we made of it.

        As long as the block lasts, a module of that name stays as it is; where it is not compiled then either, it is
        not for us.
        """
        last = self._stack[-1:]
        if not last or not last[0].made(name):
            yield False
            return
        last[0].refused.add(name)
        try:
            yield True
        except jax.errors.JaxRuntimeError as its_own:
            last[0].fail(name, f"XLA does not compile it, with us or without: {_first_line(its_own)}")
            raise its_own from None
        else:
            last[0].fail(name, f"XLA does not compile what became of it: {_first_line(error)}")
        finally:
            last[0].refused.discard(name)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].removesuffix("{").rstrip()


_hooks = _Hooks()


def install(passes: str | Sequence[Pass[Module]] = (), limit: float = LIMIT_S) -> Report:
    """From here on, let what JAX compiles for CPU devices have its collectives on our kernels.

    Args:
        passes: HLO passes that run over each module before, as ``a,b{key=value}`` or as they are.
        limit: seconds that a rank may wait for another; then the run fails, and says who did not come.

    Returns:
        What is done, a report that fills as modules compile and run.

    Raises:
        InputError: a pass that there is not, a limit that is no time, no compiler, a kernel cache that cannot be used.
        RunError: the compiler failed.
    """
    seconds = _seconds(limit)
    chosen = parse_passes(passes) if isinstance(passes, str) else passes
    if not isinstance(chosen, Sequence) or not all(isinstance(p, Pass) for p in chosen):
        raise InputError(f"passes {passes!r} are none", "write a,b{key=value}")
    hook = _Hook(chosen, seconds)
    _hooks.push(hook)
    return hook.report


def _seconds(limit: Any) -> float:
    seconds = float(limit) if isinstance(limit, Real) else 0.0
    if not 0 < seconds <= _LONGEST_S:
        remedy = f"it is a number of seconds above 0, {_LONGEST_S:.0f} at the most"
        raise InputError(f"limit {limit!r} is no time to wait", remedy)
    return seconds


def uninstall() -> Report:
    """Take away the hook that was installed last; returns its report. InputError where there is none."""
    return _hooks.pop().report


@contextmanager
def hook(passes: str | Sequence[Pass[Module]] = (), limit: float = LIMIT_S) -> Iterator[Report]:
    """`install` for the length of a ``with`` block; yields the report."""
    report = install(passes, limit)
    try:
        yield report
    finally:
        uninstall()
