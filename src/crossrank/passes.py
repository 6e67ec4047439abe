"""One pass manager for every door: passes, their registry, pipelines.

A pass is a frozen dataclass with a ``name`` and typed options; ``--passes a,b{key=value}`` is read by xDSL's own
pipeline parser. What a pass works on is its door's business (an HLO module, an xDSL module); how passes are named,
given options, run and reported is the same for all.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

from xdsl.utils.arg_spec import ArgSpec, ArgSpecConvertible, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from crossrank.errors import InputError
from crossrank.remarks import Remark, Remarks

IR = TypeVar("IR")
Entry = TypeVar("Entry")

# Each door keeps its passes in one package, which registers them when it is imported.
DOORS = ("crossrank.hlo.passes", "crossrank.instr.passes", "crossrank.program.passes")


@dataclass(frozen=True)
class Pass(ArgSpecConvertible, Generic[IR]):
    """A rewrite (or a check) with a name and typed options.

    Subclasses are frozen dataclasses; their fields are the options, and their docstring says what they match, what
    they make of it and what they decline.
    """

    name: ClassVar[str]
    reassociates: ClassVar[bool] = False
    """Whether the rewrite may change the order of floating-point operations."""
    works_on: ClassVar[str] = ""
    """What it takes, as the class of its modules calls them (``TITLE``); empty: anything."""

    @abstractmethod
    def run(self, module: IR, remarks: Remarks) -> bool:
        """Apply the pass to ``module`` in place; returns whether anything changed."""

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring, on one line."""
        text = " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())
        return text.rstrip(".")


PassClass = type[Pass[Any]]


def option(default: Any, help: str) -> Any:
    """A dataclass field that is an option of a pass, with the sentence that `crossrank passes` shows for it."""
    return dataclasses.field(default=default, metadata={"help": help})


_registry: dict[str, PassClass] = {}
_pipelines: dict[str, str] = {}


def register(cls: type[Any]) -> type[Any]:
    """Class decorator: make a pass known under its ``name``."""
    if _registry.setdefault(cls.name, cls) is not cls:
        raise ValueError(f"two passes are named {cls.name}")
    return cls


def register_pipeline(name: str, passes: str) -> None:
    """Make ``passes`` (pipeline syntax) known under ``name``."""
    if _pipelines.setdefault(name, passes) != passes:
        raise ValueError(f"two pipelines are named {name}")


def _load() -> None:
    for door in DOORS:
        importlib.import_module(door)


def all_passes(works_on: str = "") -> dict[str, PassClass]:
    """Every registered pass by name, sorted; with ``works_on`` those that take modules of that ``TITLE``."""
    _load()
    return {name: cls for name, cls in sorted(_registry.items()) if not works_on or cls.works_on in ("", works_on)}


def all_pipelines(works_on: str = "") -> dict[str, str]:
    """Every named pipeline, as the text of its passes; with ``works_on`` those that take modules of that ``TITLE``."""
    _load()
    known = all_passes(works_on)
    return {name: text for name, text in _pipelines.items() if all(p.name in known for p in parse_passes(text))}


def _registered(registry: Mapping[str, Entry], name: str) -> Entry | None:
    """What is registered under a name, by the first door that has it: the others need not be loaded."""
    for door in DOORS:
        importlib.import_module(door)
        if name in registry:
            return registry[name]
    return None


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def find_pass(name: str) -> PassClass:
    """The pass of that name; an unknown one is an InputError that suggests the nearest."""
    found = _registered(_registry, name)
    if found is None:
        known = all_passes()
        raise InputError(
            f"unknown pass {name}", _nearest(name, known) or "`crossrank passes` lists the passes and pipelines"
        )
    return found


def _build(spec: ArgSpec) -> Pass[Any]:
    cls = find_pass(spec.name)
    options = {f.name for f in dataclasses.fields(cls)}
    for key in spec.normalize_parameter_names().parameters:
        if key not in options:
            remedy = _nearest(key, options) or (
                f"its options are {', '.join(sorted(options))}" if options else "it has no options"
            )
            raise InputError(f"pass {spec.name} has no option {key}", remedy)
    try:
        return cls.from_spec(spec)
    except ValueError:
        takes = ", ".join(f"{o['name']} ({o['type']})" for o in describe_pass(cls)["options"])
        given = str(spec).removeprefix(spec.name)
        raise InputError(f"pass {spec.name}: it cannot take {given}", f"its options are {takes}") from None


def parse_passes(text: str) -> list[Pass[Any]]:
    """Read ``a,b{key=value key=value}``; an unknown pass, option or value is an InputError."""
    try:
        return [_build(spec) for spec in parse_pipeline(text)] if text.strip() else []
    except ArgSpecParseError as error:
        raise InputError(
            f"cannot read the passes {text!r}: {str(error).strip().splitlines()[-1]}", "write a,b{key=value}"
        ) from None


def pipeline(name: str) -> list[Pass[Any]]:
    """The passes of a named pipeline."""
    passes = _registered(_pipelines, name)
    if passes is None:
        known = all_pipelines()
        raise InputError(f"unknown pipeline {name}", _nearest(name, known) or f"there are {', '.join(sorted(known))}")
    return parse_passes(passes)


def skip(passes: Sequence[Pass[Any]], names: Iterable[str]) -> list[Pass[Any]]:
    """``passes`` without the ones in ``names``; a name that no pass has is an InputError."""
    unwanted = {find_pass(n).name for n in names}
    return [p for p in passes if p.name not in unwanted]


def describe_pass(cls: PassClass) -> dict[str, Any]:
    """A pass as data: ``name, summary, text, options [{name, type, default, text}]``."""
    hints = get_type_hints(cls)
    shared = {f.name for base in cls.__mro__[1:] if dataclasses.is_dataclass(base) for f in dataclasses.fields(base)}
    return {
        "name": cls.name,
        "summary": cls.summary(),
        "text": inspect.cleandoc(cls.__doc__ or ""),
        "reassociates": cls.reassociates,
        "works_on": cls.works_on,
        "options": [
            {
                "name": f.name,
                "type": _type_name(hints[f.name]),
                "default": None if f.default is dataclasses.MISSING else f.default,
                "text": f.metadata.get("help", ""),
            }
            for f in sorted(dataclasses.fields(cls), key=lambda f: f.name in shared)  # its own first
        ],
    }


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def check_door(passes: Iterable[Pass[Any]], title: str) -> None:
    """Raise an InputError where a pass does not work on what is called ``title``."""
    wrong = next((p for p in passes if title and p.works_on not in ("", title)), None)
    if wrong is not None:
        raise InputError(
            f"pass {wrong.name} works on {wrong.works_on}, not on {title}",
            "`crossrank passes NAME` says what a pass works on",
        )


@dataclass(frozen=True)
class PassResult:
    """What one pass did to one module."""

    name: str
    spec: str
    changed: bool
    remarks: tuple[Remark, ...]
    seconds: float


def run_passes(
    module: IR, passes: Sequence[Pass[IR]], after: Callable[[PassResult, IR], None] | None = None
) -> list[PassResult]:
    """Run ``passes`` over ``module`` in order.

    Args:
        module: changed in place.
        passes: what to run.
        after: called with each result and the module as that pass left it.
    """
    check_door(passes, getattr(module, "TITLE", ""))
    results = []
    for p in passes:
        remarks = Remarks(p.name)
        start = time.perf_counter()
        changed = p.run(module, remarks)
        result = PassResult(p.name, str(p), changed, tuple(remarks), time.perf_counter() - start)
        results.append(result)
        if after is not None:
            after(result, module)
    return results
