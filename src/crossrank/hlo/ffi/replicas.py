"""A module for N partitions and replicas as a module for N replicas, as XLA:CPU runs it in one process.

Ranks are replicas, ids are computed from the rank, layouts are the default ones. What binds a module to devices
(shardings, aliases of parameters, a schedule) goes: none of it changes a value.
"""

from __future__ import annotations

from typing import Any

from crossrank.hlo.build import reshape, transpose
from crossrank.hlo.collectives import kind_of
from crossrank.hlo.module import Instruction, Module
from crossrank.hlo.ranks import Ranks


def as_replicas(module: Module, ranks: Ranks | None = None) -> Ranks:
    """Make ids functions of the rank, layouts the default, and drop what binds the module to devices.

    Args:
        module: changed in place.
        ranks: where the rank comes from; the id of the replica where None.
    """
    ranks = ranks or Ranks(module.config.num_partitions, module.config.replica_count)
    ranks.replace_ids(module)
    for c in module.computations:
        for i in c.post_order():
            if i.opcode == "bitcast":
                _open_bitcast(i)
        for i in c.post_order():
            if i.opcode == "constant" and not i.shape.row_major:
                _open_constant(i)
        for i in c.post_order():
            _plain(i)
        _plain_program(c.proto.program_shape)
    proto = module.proto
    for field in ("schedule", "input_output_alias", "buffer_donor"):
        proto.ClearField(field)
    _plain_program(proto.host_program_shape)
    module.modified = True
    return ranks


def _open_bitcast(i: Instruction) -> None:
    """Say a bitcast without layouts: the bytes in their order, cut anew."""
    x, c = i.operands[0], i.computation
    source, result = x.shape, i.shape
    physical_in = tuple((source.layout or ())[::-1])
    physical_out = tuple((result.layout or ())[::-1])
    if not source.row_major:
        x = transpose(x, physical_in)
    dims = [result.dims[d] for d in physical_out]
    if list(x.shape.dims) != dims:
        x = reshape(x, dims, like=i)
    if not result.row_major:
        inverse = tuple(physical_out.index(d) for d in range(len(physical_out)))
        x = transpose(x, inverse)
    if x is i.operands[0]:
        x = c.add("copy", result.as_row_major(), [x], like=i)
    x.take_place_of(i)


def _open_constant(i: Instruction) -> None:
    """Write a constant as its bytes lie, and transpose it: a literal keeps its numbers in the order of its layout."""
    order = tuple((i.shape.layout or ())[::-1])
    physical = i.shape.with_dims([i.shape.dims[d] for d in order])
    physical.write(i.edit().literal.shape)
    i.set_shape(physical)
    i.replace_all_uses_with(transpose(i, tuple(order.index(d) for d in range(len(order)))))


def _plain(i: Instruction) -> None:
    proto = i.proto
    proto.ClearField("sharding")
    if i.opcode == "custom-call" and proto.constrain_layout and kind_of(i) is None:
        return  # a library's function that takes its buffers in these layouts and no others
    if _plain_shape(proto.shape):
        i.computation.touch()
        i._shape = None


def _plain_program(program: Any) -> None:
    for shape in (*program.parameters, program.result):
        _plain_shape(shape)


def _plain_shape(proto: Any) -> bool:
    """Give every leaf the default layout, in place; returns whether anything changed."""
    if proto.tuple_shapes:
        changed = [_plain_shape(e) for e in proto.tuple_shapes]  # all of them, not up to the first
        return any(changed)
    if not proto.HasField("layout"):
        return False
    layout = proto.layout
    order = layout.minor_to_major[:]
    default = list(range(len(order) - 1, -1, -1))
    if order == default and not layout.tiles and not layout.memory_space:
        return False
    layout.Clear()
    layout.minor_to_major.extend(default)
    return True
