"""Element-wise operators that no kernel absorbed: one map for as many of them as follow each other."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.expr import Apply, Expr, Operand
from engine.compiler.kernels.map import make_map
from engine.compiler.lowering.fusion import Fused, absorb_all, extend
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.registry import NotLoweredError, lowers
from engine.compiler.lowering.steps import pointer
from engine.compiler.storage import View
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer


@lowers(Layer)
def lower_map(lowering: Lowering, op: RuntimeOperator) -> None:
    """An element-wise operator and those after it."""
    fused = _begin(lowering, op)
    absorb_all(lowering, fused)
    shape = lowering.float_spec(fused.operand).sizes
    spread = [_spread(view, shape) for view in fused.views]
    first = max(spread, key=lambda view: len({*view.strides} - {0}), default=None)
    is_image = first is not None and len(shape) in (3, 4) and first.is_channels_last and not first.is_row_major
    target = lowering.place(fused.operand, is_image or (first is None and lowering.is_image(fused.operand)))
    tree = _shifted(fused.tree)
    kernel = make_map(shape, target.strides, [view.strides for view in spread], tree, lowering.host)
    pointers = [pointer(target), *(pointer(view) for view in spread)]
    traffic = target.phantom.nbytes + sum(view.phantom.nbytes for view in fused.views)
    lowering.emit(kernel, pointers, fused.operators, traffic)
    lowering.define(fused.operand, target)


def _begin(lowering: Lowering, op: RuntimeOperator) -> Fused:
    """The operator alone; operand 0 of its tree does not exist."""
    known: dict[str, Expr] = {}
    views: list[View] = []
    if not extend(lowering, op, known, views):
        raise NotLoweredError("an operand is no float32 tensor in memory, or its expression too large")
    return Fused(op.outputs[0], known[op.outputs[0].name], views, [op.name])


def _spread(view: View, shape: tuple[int, ...]) -> View:
    spread = view.derive(np.broadcast_to(view.phantom, shape))
    if spread is None:
        raise NotLoweredError("an operand cannot be broadcast in place")
    return spread


def _shifted(tree: Expr) -> Expr:
    """The tree with operand k + 1 called k: a map has no result of a kernel to begin with."""
    if isinstance(tree, Operand):
        return Operand(tree.index - 1)
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(_shifted(each) for each in tree.arguments))
    return tree
