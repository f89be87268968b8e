"""Maps: element-wise operators that no kernel fused, as many as follow each other in one map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Apply, Expr, Operand
from engine.compiler.kernels.map import Map, make_map
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused, Result, add_operator, fuse_following, image_of
from engine.compiler.lowering.rules.elementwise.byte_table import byte_table
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, computable
from engine.compiler.storage import View
from engine.ir.strided import Strided
from engine.layers.definition.layer import Layer
from engine.passes.support.byte_products import BYTES


@kernels_for(Layer)
def lower_map(context: Context) -> Lowered:
    """Lower an element-wise operator and those after it, in the dtype of its result."""
    spec = context.lowering.spec(context.op.outputs[0])
    context = context if spec is None or spec.dtype in BYTES else replace(context, dtype=spec.dtype)
    return finished(context, _alone(context))


def finished(context: Context, fused: Fused) -> Lowered:
    """Lower a map and the element-wise operators after it; its tree has no operand 0."""
    lowering, spec = context.lowering, context.lowering.spec(fused.operand)
    sizes = computable(spec, context.dtype, *BYTES).sizes
    fused = fuse_following(lowering, fused, _as_it_is)
    operands = tuple(view for each in fused.views if (view := image_of(each, sizes, _as_it_is)) is not None)
    first = max(operands, key=lambda view: len({*view.strides} - {0}), default=None)
    is_image = first is not None and first.is_image
    # Bytes that convolutions read are moved once, here.
    result_spec = lowering.spec(fused.operand)
    is_coded = result_spec is not None and result_spec.dtype in BYTES and fused.operand.name not in lowering.outputs
    is_image = is_image or ((first is None or is_coded) and lowering.is_image(fused.operand))
    target = lowering.allocate(fused.operand, is_image, None if is_image else _own_order(operands))
    result = Result(fused, target, target, operands, lowering.fault_flag)
    table = byte_table(lowering, fused, target)
    if table is not None:
        return result.lowered(table)
    strides = [view.strides for view in operands]
    tree, dtypes = _shifted(fused.tree), result.dtypes
    if dtypes:
        names = ["float32" if each == FLOAT else each for each in dtypes]
        kernel: Map = make_elements(sizes, [target.strides, *strides], names, tree, "float", context.host)
    else:
        kernel = make_map(sizes, target.strides, strides, tree, context.host)
    return result.lowered(result.step(kernel))


def _own_order(operands: Sequence[View]) -> tuple[int, ...] | None:
    """Return the memory order of full-size operands if none of them lies in logical order, else None.

    A map that reads and writes in different orders would move its vectors element by element.
    """
    found = [each.order for each in operands if all(map(_has_own, each.strides, each.shape))]
    lying = [[axis for axis in order if operands[0].shape[axis] != 1] for order in found]
    return found[0] if found and all(order != sorted(order) for order in lying) else None


def _has_own(stride: int, size: int) -> bool:
    return size == 1 or stride != 0


def _alone(context: Context) -> Fused:
    """Return the operator without those that follow; its tree has no operand 0."""
    known: dict[str, Expr] = {}
    views: list[View] = []
    if not add_operator(context.lowering, context.op, known, views):
        raise NotLoweredError("an operand is not a tensor of its dtype in memory, or its expression is too large")
    (operand,) = context.op.outputs
    return Fused(operand, known[operand.name], tuple(views), (context.op.name,))


def _as_it_is(array: Strided) -> Strided:
    return array


def _shifted(tree: Expr) -> Expr:
    """Return the tree with operand k + 1 renamed to k: a map has no kernel result to begin with."""
    if isinstance(tree, Operand):
        return Operand(tree.index - 1)
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(_shifted(each) for each in tree.arguments))
    return tree
