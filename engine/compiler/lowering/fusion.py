"""Element-wise operators that join the kernel which makes their operand, as its epilogue.

An activation needs nothing else. A sum with a residual, a product with a gate need another tensor, which must be made
already: of two kernels whose results are added, the later one adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.compiler.kernels.expr import Expr, Number, Operand, is_moderate, substitute
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.lowering.rules.registry import FLOAT32, NotFusedError, NotLoweredError
from engine.compiler.lowering.steps import Pointer, image_strides, pointer
from engine.compiler.storage import View
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.passes import ACTIVATIONS, RESIDUALS
from engine.tensor import Array

if TYPE_CHECKING:
    from engine.compiler.lowering.lowering import Lowering


@dataclass(slots=True)
class Fused:
    """A kernel's result with the element-wise operators that follow it.

    Args:
        operand: what is finally stored.
        tree: operand 0 is the kernel's own result, operand k is ``views[k - 1]``.
        operators: names of what was absorbed.
    """

    operand: RuntimeOperand
    tree: Expr
    views: list[View]
    operators: list[str]


def absorb(lowering: Lowering, op: RuntimeOperator) -> Fused:
    """The result of ``op`` with the element-wise operators after it, as far as one kernel can hold them."""
    fused = Fused(op.outputs[0], Operand(0), [], [op.name])
    absorb_all(lowering, fused)
    return fused


def absorb_all(lowering: Lowering, fused: Fused) -> None:
    """Let ``fused`` take in the element-wise operators after it, one by one."""
    if fused.operators[0] in lowering.alone:
        return
    while _absorb_next(lowering, fused):
        pass


def _absorb_next(lowering: Lowering, fused: Fused) -> bool:
    operand = fused.operand
    users = list({id(op): op for op in operand.consumers}.values())
    if not users or any(op.layer is None or len(op.outputs) != 1 for op in users) or len(users) > 2:
        return False
    known: dict[str, Expr] = {operand.name: fused.tree}
    views, names = list(fused.views), []
    if len(users) == 2:
        first, last = users if users[0].outputs[0] in users[1].inputs else reversed(users)
        if first.outputs[0].consumers != [last] or not extend(lowering, first, known, views):
            return False
        names.append(first.name)
        users = [last]
    if not extend(lowering, users[0], known, views):
        return False
    names.append(users[0].name)
    kind = ACTIVATIONS if len(views) == len(fused.views) else RESIDUALS
    if kind in lowering.options.passes_off:
        return False
    lowering.fusions.setdefault(kind, []).extend(names)
    fused.operand, fused.views = users[0].outputs[0], views
    fused.tree = known[fused.operand.name]
    fused.operators += names
    lowering.absorbed.update(dict.fromkeys(names))
    return True


def extend(lowering: Lowering, op: RuntimeOperator, known: dict[str, Expr], views: list[View]) -> bool:
    """Add an operator's result to the known trees; views of further operands are appended."""
    lowered = lowering.elementwise(op)
    spec = lowering.spec(op.outputs[0])
    carried = [lowering.spec(each) for each in op.inputs if each.name in known]
    if lowered is None or spec is None or any(each is None or each.shape != spec.shape for each in carried):
        return False
    arguments: list[Expr] = []
    added = list(views)
    for each in lowered.inputs:
        if isinstance(each, int) and op.inputs[each].name in known:
            arguments.append(known[op.inputs[each].name])
            continue
        argument = _operand(lowering, op, each, added)
        if argument is None:
            return False
        arguments.append(argument)
    tree = substitute(lowered.tree, arguments)
    if not is_moderate(tree):
        return False
    known[op.outputs[0].name] = tree
    views[:] = added
    return True


def _operand(lowering: Lowering, op: RuntimeOperator, each: int | Array, views: list[View]) -> Expr | None:
    """A number, or a new operand whose view is appended; None if it is not computed yet."""
    try:
        value = lowering.value(op.inputs[each]) if isinstance(each, int) else each
    except NotLoweredError:
        return None
    if isinstance(value, bool | int | float):
        return Number(float(value))
    if isinstance(value, np.ndarray):
        if value.size == 1:
            return Number(float(value.reshape(())))
        if value.dtype != FLOAT32:
            return None
        value = lowering.view_of(value)
    if not isinstance(value, View) or value.dtype != FLOAT32:
        return None
    views.append(value)
    return Operand(len(views))


def epilogue(lowering: Lowering, fused: Fused, as_image: Callable[[Array], Array]) -> tuple[Epilogue, list[Pointer]]:
    """The epilogue and its pointers; ``as_image`` shows an array of the result's shape as (n, c, h, w)."""
    shape = lowering.float_spec(fused.operand).sizes
    strides, pointers = [], []
    for view in fused.views:
        spread = view.derive(as_image(np.broadcast_to(view.phantom, shape)))
        if spread is None:
            raise NotFusedError("an operand of the epilogue does not lie in the result's order")
        strides.append(image_strides(spread))
        pointers.append(pointer(spread))
    return Epilogue(fused.tree, tuple(strides)), pointers
