"""Memory for a result whose dimensions are put in another order before anybody reads it.

Attention makes (batch, heads, positions, width), and what follows wants (batch, positions, heads * width): computed
into that at once, the transposition and the reshape that come after it cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import computable
from engine.compiler.storage import View, row_major
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import identity
from engine.layers.shape import permute, shape
from engine.tensor import Array

# Operators looked at behind the result.
MOST_STEPS = 6
_ORDERS = (permute.Permute, permute.Transpose, permute.MatrixTranspose, permute.BatchTranspose, permute.MoveDim)
_SHAPES = (
    shape.Reshape,
    shape.Flatten,
    shape.Squeeze,
    shape.Unsqueeze,
    identity.Identity,
    identity.RawIdentity,
    identity.Dropout,
)


def place_in_order(context: Context, operand: RuntimeOperand) -> View:
    """Memory for a result: as what the operators behind it make of it, where all they do is to move it.

    Its last dimension is without gaps in any case.

    Raises:
        NotLoweredError: it is no float32 tensor of static shape.
    """
    users: list[RuntimeOperator] = []
    last = operand
    while len(users) < MOST_STEPS and (user := _mover(context, last)) is not None:
        users.append(user)
        last = user.outputs[0]
    while users:
        view = _seen_through(context, users)
        if view is not None and view.strides[-1:] <= (1,):
            return view
        users.pop()
    return context.lowering.place(operand, is_image=False)


def new_in_order(context: Context, operand: RuntimeOperand, order: Sequence[int]) -> View:
    """New memory for a result, its dimensions one behind the other in an order that is not its own.

    Raises:
        NotLoweredError: it is no tensor of floats of static shape.
    """
    spec = computable(context.lowering.spec(operand), context.dtype)
    laid = row_major([spec.sizes[axis] for axis in order], spec.dtype)
    return View(laid.storage, laid.phantom.transpose(np.argsort(order)))


def _mover(context: Context, operand: RuntimeOperand) -> RuntimeOperator | None:
    """The only user of an operand, if all it does is to move elements."""
    if len(operand.consumers) != 1 or operand.name in context.lowering.outputs:
        return None
    (user,) = operand.consumers
    is_known = user.layer is not None and not user.layer.dynamic and len(user.outputs) == 1
    return user if is_known and type(user.definition) in (*_ORDERS, *_SHAPES) else None


def _seen_through(context: Context, users: list[RuntimeOperator]) -> View | None:
    """The result of the last of some operators in its place, as the operand of the first; None where it is no view."""
    target = context.lowering.place(users[-1].outputs[0], is_image=False)
    phantom = target.phantom
    for user in reversed(users):
        spec = context.lowering.spec(user.inputs[0])
        if spec is None:
            return None
        if type(user.definition) in _ORDERS and user.definition is not None:
            phantom = phantom.transpose(np.argsort(_order(user.definition, spec.sizes)))
        else:
            phantom = phantom.reshape(spec.sizes)
        if target.derive(phantom) is None:
            return None
    return target.derive(phantom)


def _order(layer: Layer, sizes: tuple[int, ...]) -> list[int]:
    """Which dimension of its operand each dimension of its result is."""
    strides = [4 << axis for axis in range(len(sizes))]
    probe: Array = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), sizes, strides)
    return [strides.index(step) for step in layer.forward(probe).strides]
