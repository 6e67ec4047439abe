"""A Python script as `python SCRIPT …` runs it, with the hook installed as soon as it imports JAX.

`crossrank jax` starts this module in a fresh interpreter, in which nothing has been imported: a script sets XLA's flags
and JAX's environment before it imports JAX, and must find that it still counts. Its arguments, its `__main__`, its
tracebacks and its exit status are the script's own; the report comes when all of it has ended.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn


def command(
    script: str, arguments: Sequence[str], *, passes: str, limit: float, report: str | None, remarks: bool
) -> list[str]:
    """The command line that runs a script.

    Args:
        script: the file.
        arguments: its own.
        passes: in pipeline syntax.
        limit: seconds that a rank may wait for another.
        report: a file for the report's JSON, or None.
        remarks: whether to show what the passes say.
    """
    path = report and str(Path(report).absolute())
    settings = json.dumps({"passes": passes, "limit": limit, "report": path, "remarks": remarks})
    return [sys.executable, "-m", "crossrank.bridge.script", settings, script, *arguments]


def main() -> NoReturn:
    """Run the script that the command line names; ends the process."""
    settings = json.loads(sys.argv[1])
    sys.argv = sys.argv[2:]
    ending = _Ending(settings["report"], settings["remarks"])
    atexit.register(ending)  # the first to be registered, so the last to be called
    _when_imported("jax", lambda: ending.watch(settings["passes"], settings["limit"]))
    path = os.path.abspath(sys.argv[0])
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = _new_main(path)
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        own = error.__traceback__ and error.__traceback__.tb_next  # without this frame
        sys.excepthook(type(error), error.with_traceback(own), own)
        ending.interrupted = isinstance(error, KeyboardInterrupt)
        sys.exit(1)
    sys.exit(0)


def _new_main(path: str) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=builtins, __cached__=None, __spec__=None)
    module.__loader__ = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = module
    return module


class _Ending:
    """What is said at the very end."""

    def __init__(self, path: str | None, remarks: bool) -> None:
        self.path = path
        self.remarks = remarks
        self.report: Any = None
        self.interrupted = False

    def watch(self, passes: str, limit: float) -> None:
        """Install the hook; without it the script runs all the same."""
        from crossrank.bridge.hook import install
        from crossrank.bridge.hook_report import Report
        from crossrank.errors import InputError, RunError

        try:
            self.report = install(passes, limit)
        except (InputError, RunError) as error:
            self.report = Report(error=str(error))

    def __call__(self) -> None:
        from crossrank.bridge.hook_report import Report

        report = self.report or Report(error="the script did not import jax")
        for line in report.lines(self.remarks):
            print(f"crossrank: {line}", file=sys.stderr)
        if self.path is not None:
            try:
                Path(self.path).write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
            except OSError as error:
                print(f"crossrank: cannot write {self.path}: {error.strerror}", file=sys.stderr)
        if self.interrupted:  # as Python itself ends then
            sys.stdout.flush()
            sys.stderr.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


def _when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` once the module has been imported for the first time, before its importer goes on."""
    sys.meta_path.insert(0, _Finder(name, then))


class _Finder(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.then)
        return spec


class _Loader(Loader):
    """The module's own loader, and something to do afterwards."""

    def __init__(self, own: Loader, then: Callable[[], None]) -> None:
        self.own = own
        self.then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        self.then()


if __name__ == "__main__":
    main()
