"""Calls of one function by another, and the scopes around them.

A call of a chip function by the host is a dispatch to a device; a call of a kernel by a chip function is a task; a call
of a host sub-worker runs plain Python. Each gives what its callee returns, and the task that it became.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FlatSymbolRefAttrConstr,
    IndexType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i32,
)
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, SingleBlockImplicitTerminator
from xdsl.utils.exceptions import VerifyException

from crossrank.program.dialect.tensors import Values, ask
from crossrank.program.kinds import ArgDirection
from crossrank.program.types import TaskType

PARALLEL = "program.parallel"
"""The attribute of an ``scf.for`` whose turns do not depend on one another."""


@irdl_op_definition
class CallOp(IRDLOperation):
    """A call; its last result is the task.

    Operands and properties:
        arguments: as many as the callee has parameters.
        device: the device of a dispatch.
        core_num: how many blocks a launch has (one, where there is none).
        deps: tasks that it comes after, as the author says.
        auto_deps: tasks that it comes after, as `auto-derive-task-dependencies` found out.
        arg_directions: an `ArgDirection` for each argument; set by `derive-call-directions`.
        no_dep: the callee's parameters, by name, whose arguments are ordered by the author.
        sync_start: all blocks are to be resident together.
        manual: it comes after nothing but ``deps``.
    """

    name = "program.call"
    callee = prop_def(FlatSymbolRefAttrConstr)
    arguments = var_operand_def(Attribute)
    device = opt_operand_def(IndexType)
    core_num = opt_operand_def(IndexType)
    deps = var_operand_def(TaskType)
    auto_deps = var_operand_def(TaskType)
    arg_directions = opt_prop_def(ArrayAttr[StringAttr])
    no_dep = opt_prop_def(ArrayAttr[StringAttr])
    sync_start = opt_prop_def(UnitAttr)
    manual = opt_prop_def(UnitAttr)
    returned = var_result_def(Attribute)
    task = result_def(TaskType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$callee `(` $arguments `)` (`device` $device^)? (`core_num` $core_num^)? (`sync_start` $sync_start^)? "
        "(`manual` $manual^)? (`deps` `[` $deps^ `]`)? (`auto_deps` `[` $auto_deps^ `]`)? "
        "(`directions` $arg_directions^)? (`no_dep` $no_dep^)? attr-dict `:` `(` type($arguments) `)` `->` "
        "`(` type($returned) `)`"
    )

    def __init__(
        self,
        callee: str,
        arguments: Values,
        returned: Sequence[Attribute],
        *,
        device: SSAValue | None = None,
        core_num: SSAValue | None = None,
        sync_start: bool = False,
        manual: bool = False,
        deps: Values = (),
        auto_deps: Values = (),
        arg_directions: Sequence[ArgDirection] | None = None,
        no_dep: Sequence[str] = (),
    ) -> None:
        super().__init__(
            operands=[arguments, device, core_num, deps, auto_deps],
            properties={
                "callee": SymbolRefAttr(callee),
                "sync_start": UnitAttr() if sync_start else None,
                "manual": UnitAttr() if manual else None,
                "arg_directions": None if arg_directions is None else directions_attr(arg_directions),
                "no_dep": ArrayAttr([StringAttr(n) for n in no_dep]) if no_dep else None,
            },
            result_types=[returned, TaskType()],
        )

    @property
    def function(self) -> str:
        """The callee's name."""
        return self.callee.root_reference.data

    def give(self, *, arguments: Values | None = None, auto_deps: Values | None = None) -> None:
        """Say other arguments, or other tasks that it comes after; what is not named stays."""
        groups = [
            self.arguments if arguments is None else arguments,
            [] if self.device is None else [self.device],
            [] if self.core_num is None else [self.core_num],
            self.deps,
            self.auto_deps if auto_deps is None else auto_deps,
        ]
        self.operands = [v for group in groups for v in group]
        sizes = DenseArrayBase.from_list(i32, [len(group) for group in groups])
        self.properties[AttrSizedOperandSegments.attribute_name] = sizes

    @property
    def ordered_by_author(self) -> frozenset[str]:
        """The names that `no_dep` has."""
        return frozenset() if self.no_dep is None else frozenset(n.data for n in self.no_dep)

    @property
    def directions(self) -> list[ArgDirection] | None:
        """What it does to each argument; None before that is derived."""
        return None if self.arg_directions is None else [ArgDirection(d.data) for d in self.arg_directions]

    @directions.setter
    def directions(self, directions: Sequence[ArgDirection]) -> None:
        self.arg_directions = directions_attr(directions)

    def verify_(self) -> None:
        """A direction for each argument, where there are any."""
        if self.arg_directions is not None:
            ask(
                len(self.arg_directions) == len(self.arguments),
                f"call of {self.function}: a direction for each argument",
            )
            for said in self.arg_directions:
                ask(said.data in set(ArgDirection), f"call of {self.function}: {said.data!r} is no direction")


def directions_attr(directions: Sequence[ArgDirection]) -> ArrayAttr[StringAttr]:
    """Directions as an attribute."""
    return ArrayAttr([StringAttr(d) for d in directions])


@irdl_op_definition
class JoinOp(IRDLOperation):
    """A task that does nothing, and is over when others are."""

    name = "program.join"
    deps = var_operand_def(TaskType)
    task = result_def(TaskType)
    assembly_format = "`[` $deps `]` attr-dict"

    def __init__(self, deps: Values) -> None:
        super().__init__(operands=[deps], result_types=[TaskType()])


@irdl_op_definition
class ScopeYieldOp(IRDLOperation):
    """What a scope gives."""

    name = "program.yield"
    values = var_operand_def(Attribute)
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, values: Values = ()) -> None:
        super().__init__(operands=[values])


@irdl_op_definition
class CommDomainScopeOp(IRDLOperation):
    """A communication domain, alive while its body runs: who is in it, and the windows that its devices share.

    ``devices`` are numbers, or ``all``. ``windows`` are the names of its buffers.
    """

    name = "program.comm_domain"
    sym_name = prop_def(StringAttr)
    devices = prop_def(StringAttr)
    windows = prop_def(ArrayAttr[StringAttr])
    body = region_def("single_block")
    results_ = var_result_def(Attribute)
    traits = traits_def(SingleBlockImplicitTerminator(ScopeYieldOp))
    assembly_format = (
        "$sym_name `devices` $devices `windows` $windows attr-dict-with-keyword `->` `(` type($results_) `)` $body"
    )

    def __init__(
        self, name: str, devices: str, windows: Sequence[str], body: Region | Block, results: Sequence[Attribute]
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "devices": StringAttr(devices),
                "windows": ArrayAttr([StringAttr(w) for w in windows]),
            },
            regions=[body if isinstance(body, Region) else Region(body)],
            result_types=[results],
        )

    @property
    def device_list(self) -> tuple[int, ...] | None:
        """The devices; None: all of them."""
        text = self.devices.data
        return None if text == "all" else tuple(int(d) for d in text.split(","))

    def verify_(self) -> None:
        """``devices`` can be read, and none is there twice."""
        try:
            devices = self.device_list
        except ValueError:
            raise VerifyException(f"comm domain {self.sym_name.data}: devices are numbers, or all") from None
        ask(
            devices is None or len(set(devices)) == len(devices), f"comm domain {self.sym_name.data} has a device twice"
        )


OPS = (CallOp, JoinOp, ScopeYieldOp, CommDomainScopeOp)
