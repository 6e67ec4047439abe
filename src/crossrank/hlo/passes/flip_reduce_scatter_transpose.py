"""`aws_neuron_flip_reduce_scatter_transpose`: transpose first, reduce and scatter then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crossrank.errors import InputError
from crossrank.hlo.collectives import describe
from crossrank.hlo.module import Instruction
from crossrank.hlo.passes.flip_reduce_convert_add import why_not_wider
from crossrank.hlo.rewrite import Declined, Expander, Fresh, check_free, check_movable, moved, put
from crossrank.passes import option, register


@register
@dataclass(frozen=True)
class FlipReduceScatterTranspose(Expander):
    """Transposes what each rank has before it is reduced, and scatters along the dimension that the old one became.

    Matches `transpose(reduce-scatter(x))` and `transpose(convert(reduce-scatter(x)))` where x is
    `reshape(dynamic-update-slice(…))` or an add whose one operand is a get-tuple-element of a parameter, and makes
    `reduce-scatter(transpose(x))` or `reduce-scatter(transpose(convert(x)))` with the channel id of the old one. Where
    converting before the reduction would lose values or wrap elsewhere, the convert stays behind it:
    `convert(reduce-scatter(transpose(x)))`.

    The transpose alone changes no bit. With a convert to a wider type before it, sums and products are rounded in
    that type only.

    Declines a reduce-scatter of several operands, of any other x unless `any_operand` is set, and reduce-scatters and
    converts with other users or control dependencies.
    """

    name: ClassVar[str] = "aws_neuron_flip_reduce_scatter_transpose"
    reassociates: ClassVar[bool] = True
    opcodes: ClassVar[frozenset[str]] = frozenset({"transpose"})

    any_operand: bool = option(False, "whatever the reduce-scatter reduces")

    def expand(self, i: Instruction, fresh: Fresh) -> str | None:
        """Flip one transpose."""
        convert = i.operands[0] if i.operands[0].opcode == "convert" else None
        scatter = convert.operands[0] if convert is not None else i.operands[0]
        if scatter.opcode == "get-tuple-element" and scatter.operands[0].opcode == "reduce-scatter":
            scatter = scatter.operands[0]
        if scatter.opcode != "reduce-scatter":
            return None
        if scatter.shape.is_tuple:
            raise Declined(
                "Reject Reduce Scatter (Convert) Transpose Pair because Reduce Scatter has operand count "
                f"{len(scatter.operands)} more than 1 supported by this pass"
            )
        check_movable(scatter)
        if convert is not None:
            check_free(convert)
            if convert.is_root or len(convert.users) > 1:
                raise Declined(f"%{convert.name} has other users")
        x = scatter.operands[0]
        if not self.any_operand and not _is_update(x) and not _is_accumulated(x):
            raise Declined(
                f"%{x.name} is neither a reshape of a dynamic-update-slice nor an add to an element of a parameter"
            )
        order, dim = list(i.proto.dimensions), int(scatter.proto.dimensions[0])
        if dim not in order:
            raise InputError(
                f"%{i.name}: Failed to find new scatter dim in pass FlipReduceScatterTranspose",
                f"its permutation {order} does not have dimension {dim} of %{scatter.name}",
            )
        info = describe(scatter)
        assert info is not None
        early = convert is not None and not why_not_wider(info, scatter.shape.dtype, convert.shape.dtype)
        if convert is not None and early:
            x = moved(convert, [x], x.shape.with_dtype(convert.shape.dtype))
        turned = moved(i, [x], x.shape.with_dims([x.shape.dims[d] for d in order]))
        new = moved(scatter, [turned], i.shape.with_dtype(x.shape.dtype))
        new.edit().dimensions[:] = [order.index(dim)]
        if early and info.reduction is not None:
            new.set_called([fresh.bodies.get(info.reduction, x.shape.dtype)])
        put(moved(convert, [new], i.shape) if convert is not None and not early else new, i)
        return f"transposed before %{scatter.name}, which scatters along dimension {order.index(dim)} now"


def _is_update(x: Instruction) -> bool:
    return x.opcode == "reshape" and x.operands[0].opcode == "dynamic-update-slice"


def _is_accumulated(x: Instruction) -> bool:
    return x.opcode == "add" and any(
        o.opcode == "get-tuple-element" and o.operands[0].opcode == "parameter" for o in x.operands
    )
