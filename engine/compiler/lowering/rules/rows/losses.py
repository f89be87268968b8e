"""Losses: a function of every pair of elements, and its sum or mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.layers.definition.layer import Layer
from engine.layers.reduction.loss import (
    LEAST_LOG,
    NONE,
    SUM,
    BinaryCrossEntropy,
    BinaryCrossEntropyOfLogits,
    HuberLoss,
    KLDivergence,
    L1Loss,
    Loss,
    MSELoss,
    SmoothL1Loss,
    SoftMarginLoss,
)
from engine.promotion import broadcast_sizes

X, Y = Operand(0), Operand(1)
_DIFFERENCE: Final = apply("sub", X, Y)
_DISTANCE: Final = apply("abs", _DIFFERENCE)


def _smooth(layer: SmoothL1Loss) -> Expr:
    if layer.beta == 0:
        return _DISTANCE
    square = apply("div", apply("square", _DISTANCE), 2 * layer.beta)
    return apply("where", apply("lt", _DISTANCE, layer.beta), square, apply("sub", _DISTANCE, layer.beta / 2))


def _huber(layer: HuberLoss) -> Expr:
    far = apply("mul", apply("sub", _DISTANCE, layer.delta / 2), layer.delta)
    return apply("where", apply("le", _DISTANCE, layer.delta), apply("div", apply("square", _DISTANCE), 2.0), far)


def _divergence(layer: KLDivergence) -> Expr:
    if layer.log_target:
        return apply("mul", apply("exp", Y), apply("sub", Y, X))
    return apply("sub", apply("xlogy", Y, Y), apply("mul", Y, X))


def _entropy(_: BinaryCrossEntropy) -> Expr:
    of_others = apply("max", apply("log1p", apply("sub", 0.0, X)), LEAST_LOG)
    of_it = apply("max", apply("log", X), LEAST_LOG)
    return apply("sub", apply("mul", apply("sub", Y, 1.0), of_others), apply("mul", Y, of_it))


def _entropy_of_logits(_: BinaryCrossEntropyOfLogits, positive: Expr | float = 1.0) -> Expr:
    steps = apply("log1p", apply("exp", apply("sub", 0.0, apply("abs", X))))
    tail = apply("add", steps, apply("max", apply("sub", 0.0, X), 0.0))
    return apply("add", apply("mul", apply("sub", 1.0, Y), X), apply("mul", tail, positive))


_OF_EACH: Final[dict[type[Layer], Callable[[Any], Expr]]] = {
    L1Loss: lambda _: _DISTANCE,
    MSELoss: lambda _: apply("square", _DIFFERENCE),
    SmoothL1Loss: _smooth,
    HuberLoss: _huber,
    SoftMarginLoss: lambda _: apply("log1p", apply("exp", apply("sub", 0.0, apply("mul", X, Y)))),
    KLDivergence: _divergence,
    BinaryCrossEntropy: _entropy,
    BinaryCrossEntropyOfLogits: _entropy_of_logits,
}


@kernels_for(*_OF_EACH, doubles=True)
def lower_loss(context: Context) -> Lowered:
    """Lower the loss of every pair of elements, and its reduction."""
    layer: Any = context.layer(Loss)
    composition = Composition(context)
    if context.result_spec.dtype != context.dtype:
        raise NotLoweredError("there is no kernel for a reduction to another dtype")
    tree, operands = _OF_EACH[type(layer)](layer), [context.tensor(0), context.tensor(1)]
    if context.argument(3) is not None:
        operands.append(context.tensor(3))
        tree = _entropy_of_logits(layer, apply("add", apply("mul", apply("sub", Operand(2), 1.0), Y), 1.0))
    if context.argument(2) is not None:
        operands.append(context.tensor(2))
        tree = apply("mul", tree, Operand(len(operands) - 1))
    if layer.reduction == NONE:
        return composition.finish(tree, *operands)
    sizes = broadcast_sizes(*(each.shape for each in operands))
    if not sizes:
        raise NotLoweredError("there is no kernel for a reduction over no dimensions")
    each = composition.map(tree, *operands)
    total = composition.reduce(each, range(len(sizes)), "sum" if layer.reduction == SUM else "mean")
    return composition.finish(X, composition.as_result(total))
