"""Calls of functions of the program: arguments checked against parameters, whatever is left away made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Attribute, SSAValue

from crossrank.errors import counted
from crossrank.program.dialect.calls import CallOp
from crossrank.program.dialect.tensors import CreateTensorOp, shaped
from crossrank.program.kinds import Direction, FunctionType, Level
from crossrank.program.language.builder import Builder
from crossrank.program.language.control import Callee, Launch, NoDep, blocks
from crossrank.program.language.op import BODIES
from crossrank.program.language.operands import is_number, of_rank, said
from crossrank.program.language.parse.expressions import Expressions
from crossrank.program.program import Function, Param
from crossrank.program.types import ANY_TENSOR, DistTensorType, ShapedType, TensorType, is_scalar, spelled

if TYPE_CHECKING:
    from crossrank.program.language.parse.program import ProgramParser

LAUNCH = ("device", "core_num", "sync_start")
"""Keywords of a call that are no parameters."""


class Method(Callee):
    """A function of a program, as another one's ``self.f``."""

    def __init__(self, program: ProgramParser, name: str) -> None:
        self.program = program
        self.name = name

    def __repr__(self) -> str:
        return f"self.{self.name}"

    def launch(
        self, b: Builder, arguments: Sequence[Any], keywords: Mapping[str, Any], deps: Sequence[SSAValue], how: Launch
    ) -> tuple[list[SSAValue], SSAValue]:
        """Insert a call."""
        function = self.program.declared(self.name)
        self._check_level(b, function)
        names = [p.name for p in function.params]
        launch = {k: keywords[k] for k in LAUNCH if k in keywords and k not in names}
        device = launch.get("device")
        b.ask(device is None or is_number(device), f"{self}: device is a number, and this is {said(device)}")
        bound = self._bound(b, function, arguments, {k: v for k, v in keywords.items() if k not in launch})
        no_dep = [p.name for p, v in zip(function.params, bound, strict=True) if isinstance(v, NoDep)]
        values = [self._adapted(b, p, v) for p, v in zip(function.params, bound, strict=True)]
        how = self._how(b, function, launch, how)
        call = CallOp(
            self.name,
            values,
            self._returned(function, values),
            device=None if device is None else b.index(device),
            core_num=None if how.core_num is None else b.index(how.core_num),
            sync_start=how.sync_start,
            manual=how.manual,
            deps=deps,
            no_dep=no_dep,
        )
        b.insert(call)
        return list(call.returned), call.task

    def _check_level(self, b: Builder, function: Function) -> None:
        """Who calls whom: HOST calls chip functions and sub-workers, CHIP calls kernels; kernels call nobody."""
        is_launched = function.is_kernel or function.type in (FunctionType.Group, FunctionType.Spmd)
        calls = {Level.HOST: function.is_chip or function.is_worker, Level.CHIP: is_launched}
        if calls.get(b.level, False):
            return
        remedies = {
            Level.HOST: "a HOST orchestrator calls functions of type Orchestration, and these call kernels",
            Level.CHIP: "a CHIP orchestration calls kernels: functions of type InCore",
            Level.CORE_GROUP: "call one kernel after the other from a CHIP orchestration",
        }
        b.fail(f"{BODIES[b.level]} cannot call {self.name}, which is {_kind(function)}", remedies[b.level])

    def _how(self, b: Builder, function: Function, launch: Mapping[str, Any], how: Launch) -> Launch:
        """How the call becomes a task, by its own keywords and by the scopes that it stands in."""
        scope = b.launch if isinstance(b, Expressions) and b.level is Level.CHIP else Launch()
        if "device" in launch:
            b.ask(function.is_chip, f"{self}: device= says where a chip function runs, and it is {_kind(function)}")
        if "core_num" in launch or "sync_start" in launch:
            b.ask(b.level is Level.CHIP, f"{self}: core_num= and sync_start= are for kernels")
            core_num = launch.get("core_num")
            given = None if core_num is None else blocks(b, core_num)
            how = Launch(given, bool(launch.get("sync_start", False)))
        return scope.within(how)

    def _bound(
        self, b: Builder, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> list[Any]:
        """An argument for each parameter; Out parameters that are left away are made."""
        params = function.params
        wanted = f"it has {counted(len(params), 'parameter')}: {', '.join(p.name for p in params)}"
        b.ask(len(arguments) <= len(params), f"{self} is given {counted(len(arguments), 'argument')}", wanted)
        given = dict(zip([p.name for p in params], arguments, strict=False))
        for name, value in keywords.items():
            b.ask(any(p.name == name for p in params), f"{self} has no parameter {name}", wanted)
            b.ask(name not in given, f"{self} is given {name} twice", wanted)
            given[name] = value
        missing = [p for p in params if p.name not in given]
        for param in missing:
            if param.direction is not Direction.Out or not isinstance(param.type, TensorType):
                b.fail(f"{self} is not given {param.name}, which is {spelled(param.type)}", wanted)
            given[param.name] = self._made(b, param.name, param.type)
        return [given[p.name] for p in params]

    def _made(self, b: Builder, name: str, type: TensorType) -> SSAValue:
        """A tensor for an Out parameter that is left away."""
        b.ask(
            type.is_static,
            f"{self} is not given {name}, which is {spelled(type)}",
            "only Out parameters whose extents are numbers can be left away",
        )
        made = b.insert(CreateTensorOp(b.indices(type.extents), type)).result
        made.name_hint = name
        return made

    def _adapted(self, b: Builder, param: Param, value: Any) -> SSAValue:
        """An argument as its parameter wants it; refused where it cannot be."""
        if isinstance(value, NoDep):
            value = value.value
        theirs = f"{self}: {param.name} is {spelled(param.type)}, and is given {said(value)}"
        if is_scalar(param.type):
            b.ask(is_number(value), theirs)
            return b.scalar(value, param.type)
        if isinstance(value, SSAValue) and isinstance(value.type, ANY_TENSOR) and isinstance(param.type, ShapedType):
            if isinstance(param.type, TensorType) or isinstance(value.type, DistTensorType):
                handle = _of_rank(b, value, param.type)
                if param.type.fits(param.type.new(shaped(handle).data)):
                    return handle
            elif isinstance(param.type, DistTensorType):
                b.fail(theirs, "a view of a window is wanted: pld.window(buffer, shape, dtype=…)")
        if not isinstance(value, SSAValue) or value.type != param.type:
            b.fail(theirs)
        return value

    def _returned(self, function: Function, arguments: Sequence[SSAValue]) -> list[Attribute]:
        """The types of what the call gives: an argument that is given back keeps its own."""
        whole = self.program.parsed(self.name)
        parameters = self.program.returned(self.name)
        return [type if n is None else arguments[n].type for n, type in zip(parameters, whole.returned, strict=True)]


def _of_rank(b: Builder, value: SSAValue, wanted: ShapedType) -> SSAValue:
    """A tensor with as many dimensions as are wanted, where only leading extents of 1 are missing."""
    shape, other = shaped(value).shape, wanted.shape
    missing = len(other) - len(shape)
    return of_rank(b, "call", value, len(other)) if other[: max(missing, 0)] == (1,) * missing else value


def _kind(function: Function) -> str:
    """What a function is, in words."""
    if function.is_worker:
        return "a host sub-worker"
    if function.is_host:
        return BODIES[Level.HOST]
    return f"of type {function.type}"
