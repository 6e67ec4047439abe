"""A kernel as C++: a statement an op, with the author's names and lines; what loops carry are variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import PurePath

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FileLineColLoc
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from crossrank.errors import InputError
from crossrank.kernels.render import render_managed
from crossrank.program.builtins import is_builtin, template_of
from crossrank.program.codegen.names import Names, plain
from crossrank.program.codegen.scalars import ARITHMETIC, CAN_FAIL, WIDTHS
from crossrank.program.codegen.slots import slots_of
from crossrank.program.codegen.spelling import element_type, literal, quoted, value_type
from crossrank.program.codegen.words import CHANGES, EXPRESSIONS, PLAIN
from crossrank.program.dialect.collectives import CollectiveOp
from crossrank.program.dialect.remote import FenceOp
from crossrank.program.dialect.tiles import BinaryOp, UnaryOp
from crossrank.program.dialect.windows import GetCommCtxOp, SymbolOp
from crossrank.program.program import Function, Program, where
from crossrank.program.properties import PROPERTIES
from crossrank.program.types import (
    ArrayType,
    CommCtxType,
    DistTensorType,
    ShapedType,
    TileType,
    is_float,
    is_scalar,
)

MOST_DIMENSIONS = 8
MOST_TILE_BITS = 8 << 30
HEADER = '#include "crossrank/program.h"'


def symbol_of(function: Function) -> str:
    """The name under which a kernel's library exports it."""
    return _template(function)[0] if is_builtin(function) else f"kernel_{plain(function.name)}"


def _template(function: Function) -> tuple[str, str]:
    """The entry of a builtin, and its source."""
    builtin, op, element = template_of(function)
    return render_managed(builtin.template, None if op is None else op.collective, element)


def kernel_source(program: Program, function: str) -> str:
    """The C++ of a kernel.

    Raises:
        InputError: there is no such kernel, or something in it cannot stand in one; the message has its place.
    """
    try:
        found = program.function(function)
    except KeyError:
        raise InputError(f"program {program.name} has no function {function}") from None
    if not found.is_kernel or not found.has_body:
        raise InputError(f"{where(found.op)}{function} is no kernel with a body")
    return _template(found)[1] if is_builtin(found) else _Writer(found).source()


class _Writer:
    """Writes one function. A value is an expression: a name, or a constant."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.slots = slots_of(function)
        self.names = Names()
        self.values: dict[SSAValue, str] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.told = (0, 0)  # the line and column that the launch was told last
        self.contexts: list[str] = []

    def source(self) -> str:
        """All of it."""
        self.parameters()
        self.statements(self.function.body)
        symbol = symbol_of(self.function)
        launch = len(self.slots.order)
        return "\n".join(
            (
                HEADER,
                "",
                f"// {self.function.name}{_place(self.function.op, ' ({})')}",
                f'extern "C" int32_t {symbol}(const Slot* args) try {{',
                f"  cr::Core core(args[{launch}]);",
                *self.lines,
                "  return crossrank::kOk;",
                "} catch (Status failed) {",
                "  return failed;",
                "}",
                "",
            )
        )

    def parameters(self) -> None:
        """The slots under the names of the parameters; contexts first, since their windows have them."""
        _ask_fits(self.function.op, self.function.body.args)
        params = self.function.params
        slot_of = {n: slot for slot, n in enumerate(self.slots.order)}
        windows = [n for n, p in enumerate(params) if isinstance(p.type, DistTensorType)]
        context_of = dict(zip(windows, self.slots.contexts, strict=True))
        for n in (*self.slots.contexts, *self.slots.tensors, *self.slots.scalars):
            param, slot = params[n], slot_of[n]
            name = self.names.fresh(param.name)
            self.values[self.function.body.args[n]] = name
            if isinstance(param.type, CommCtxType):
                self.contexts.append(name)
                self.write(f"CommContext* const {name} = args[{slot}].context;")
            elif isinstance(param.type, ShapedType):
                dtype, rank = param.type.dtype, len(param.type.shape)
                arguments = ["core", "args", quoted(param.name), str(slot), str(dtype.number)]
                if n in context_of:
                    arguments.append(self.values[self.function.body.args[context_of[n]]])
                form = f"<{element_type(dtype)}, {rank}>"
                self.write(f"const auto {name} = cr::argument{form}({', '.join(arguments)});")
            else:
                field = "real" if is_float(param.type) else "integer"
                type = value_type(param.type)
                self.write(f"const {type} {name} = {type}(args[{slot}].{field});")

    # ---- text ----

    def write(self, text: str) -> None:
        """A line at the present depth."""
        self.lines.append("  " * self.depth + text)

    def at(self, op: Operation) -> None:
        """Tell the launch what comes, where it stands elsewhere in the author's source than what came before."""
        location = op.location
        if not isinstance(location, FileLineColLoc):
            return
        found = location.line.data, location.column.data
        if found[0] and found != self.told:
            self.write(f"core.at({found[0]}, {found[1]});{_place(op, '  // {}')}")
            self.told = found

    def name(self, value: SSAValue) -> str:
        """The expression that a value is."""
        if isinstance(value.owner, arith.ConstantOp):
            return literal(value.owner.value)
        return self.values[value]

    def made(self, value: SSAValue, expression: str) -> None:
        """A value that is made here."""
        name = self.values[value] = self.fresh(value)
        type = f"const {value_type(value.type)}" if is_scalar(value.type) else "auto"
        self.write(f"{type} {name} = {expression};")

    def fresh(self, value: SSAValue) -> str:
        """A name for a value: the author's, or one that tells what it is."""
        if value.name_hint:
            return self.names.fresh(value.name_hint)
        owner = value.owner
        if is_scalar(value.type) or isinstance(owner, Block):
            return self.names.fresh("n")
        word = owner.op.data if isinstance(owner, (UnaryOp, BinaryOp)) else owner.name.rpartition(".")[2]
        return self.names.fresh(word)

    # ---- statements ----

    def statements(self, block: Block) -> None:
        """The ops of a block but its terminator."""
        for op in block.ops:
            if isinstance(op, (scf.YieldOp, ReturnOp)):
                continue
            self.statement(op)

    def statement(self, op: Operation) -> None:
        """One op."""
        _ask_fits(op, op.results)
        kind = type(op)
        if kind is arith.ConstantOp:
            return
        if isinstance(op, WIDTHS) and value_type(op.operands[0].type) == value_type(op.results[0].type):
            self.values[op.results[0]] = self.name(op.operands[0])
        elif kind in ARITHMETIC:
            if isinstance(op, CAN_FAIL):
                self.at(op)
            self.made(op.results[0], ARITHMETIC[kind](op, self.name))
        elif kind in PLAIN:
            self.made(op.results[0], PLAIN[kind](op, self.name))
        elif kind in EXPRESSIONS:
            self.at(op)
            self.made(op.results[0], EXPRESSIONS[kind](op, self.name))
        elif kind in CHANGES:
            self.at(op)
            statement, changed = CHANGES[kind]
            self.write(f"{statement(op, self.name)};")
            if (target := changed(op)) is not None:
                self.values[op.results[0]] = self.name(target)
        elif isinstance(op, FenceOp):
            self.at(op)
            self.write(f"cr::fence({', '.join(('core', *self.contexts))});")
        elif isinstance(op, SymbolOp):
            self.made(op.result, self.symbol(op))
        elif isinstance(op, scf.ForOp):
            self.loop(op)
        elif isinstance(op, scf.IfOp):
            self.branch(op)
        else:
            self.refuse(op)

    def refuse(self, op: Operation) -> None:
        """What cannot stand in a kernel, with the remedy where there is one."""
        if isinstance(op, CollectiveOp):
            made_by = PROPERTIES["CompositesLowered"].made_by
            raise InputError(f"{where(op)}{op.title} was not lowered", f"run {made_by} before code is made")
        if isinstance(op, GetCommCtxOp):
            made_by = PROPERTIES["DistTensorCtxMaterialized"].made_by
            raise InputError(
                f"{where(op)}function '{self.function.name}' still calls pld.get_comm_ctx",
                f"run {made_by} before code is made",
            )
        raise InputError(f"{where(op)}{op.name} cannot stand in a kernel")

    def symbol(self, op: SymbolOp) -> str:
        """A symbolic extent: that of the first parameter that has it."""
        wanted = op.symbol.data
        for argument in self.function.body.args:
            if isinstance(argument.type, ShapedType) and wanted in argument.type.shape:
                return f"{self.values[argument]}.shape[{argument.type.shape.index(wanted)}]"
        raise InputError(
            f"{where(op)}{wanted} is no extent of a parameter of {self.function.name}",
            "use it as the extent of one, or pass its value",
        )

    # ---- loops and branches ----

    def variables(self, values: Sequence[SSAValue], first: Sequence[SSAValue] | None) -> list[str]:
        """Variables of the types of ``values``, which begin as ``first``."""
        found = [self.fresh(v) for v in values]
        for n, (name, value) in enumerate(zip(found, values, strict=True)):
            begin = "{}" if first is None else f" = {self.name(first[n])}"
            self.write(f"{value_type(value.type)} {name}{begin};")
        return found

    def assign(self, variables: Sequence[str], values: Sequence[SSAValue]) -> None:
        """Set variables, all at once."""
        pairs = [(v, e) for v, e in zip(variables, map(self.name, values), strict=True) if v != e]
        changed = {v for v, _ in pairs}
        late = [(v, self.names.fresh(f"next_{v}"), e) for v, e in pairs if e in changed]
        for _, name, expression in late:
            self.write(f"const auto {name} = {expression};")
        for variable, expression in pairs:
            if expression not in changed:
                self.write(f"{variable} = {expression};")
        for variable, name, _ in late:
            self.write(f"{variable} = {name};")

    def within(self, head: str, block: Block, variables: Sequence[str]) -> None:
        """A block between braces, which ends by setting variables to what it yields."""
        self.write(head)
        self.depth += 1
        self.told = (0, 0)
        self.statements(block)
        last = block.last_op
        if last is not None:
            self.assign(variables, last.operands)
        self.depth -= 1
        self.told = (0, 0)

    def bind(self, values: Sequence[SSAValue], names: Sequence[str]) -> None:
        """Values that stand under names."""
        self.values.update(zip(values, names, strict=True))

    def loop(self, op: scf.ForOp) -> None:
        """A loop over a range."""
        counter, *carried = op.body.block.args
        variables = self.variables(carried, op.iter_args)
        self.bind(carried, variables)
        self.bind(op.results, variables)
        step = self.name(op.step)
        self.at(op)  # its turns may do nothing that is told
        if not step.isdigit() or step == "0":
            step_name = self.names.fresh("step")
            self.write(f"const int64_t {step_name} = cr::step(core, {step});")
            step = step_name
        name = self.values[counter] = self.fresh(counter)
        type = value_type(counter.type)
        by = f"++{name}" if step == "1" else f"{name} += {step}"
        head = f"for ({type} {name} = {self.name(op.lb)}; {name} < {self.name(op.ub)}; {by}) {{"
        self.within(f"{head}{_place(op, '  // {}')}", op.body.block, variables)
        self.write("}")

    def branch(self, op: scf.IfOp) -> None:
        """A branch, whose results are variables."""
        variables = self.variables(op.results, None)
        self.within(f"if ({self.name(op.cond)}) {{{_place(op, '  // {}')}", op.true_region.block, variables)
        if op.false_region.blocks and (variables or not isinstance(op.false_region.block.first_op, scf.YieldOp)):
            self.within("} else {", op.false_region.block, variables)
        self.write("}")
        self.bind(op.results, variables)


def _ask_fits(op: Operation, values: Sequence[SSAValue]) -> None:
    """Refuse more dimensions than `crossrank/program/core.h` has room for, and tiles that are too big."""
    for type in (v.type for v in values):
        if isinstance(type, ShapedType) and len(type.shape) > MOST_DIMENSIONS:
            raise InputError(f"{where(op)}in a kernel a tensor has at most {MOST_DIMENSIONS} dimensions")
        if isinstance(type, (TileType, ArrayType)) and prod(type.extents) * type.dtype.bits > MOST_TILE_BITS:
            raise InputError(
                f"{where(op)}this is a {type.described}, and a tile has at most {MOST_TILE_BITS >> 33} GiB",
                "take smaller tiles in a loop",
            )


def _place(op: Operation, form: str) -> str:
    """``file:line`` of the author's source within a text; empty where it is not known."""
    location = op.location
    if not isinstance(location, FileLineColLoc):
        return ""
    name = "".join(c if " " <= c <= "~" else "?" for c in PurePath(location.filename.data).name)
    return form.format(f"{name}:{location.line.data}")
