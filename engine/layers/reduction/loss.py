"""Losses: the distance of a result from a target, with which anomaly detectors based on autoencoders end.

Each is a function of every pair of elements, then all of those, their mean or their sum.
"""

from __future__ import annotations

from typing import Any, Final

from engine.errors import ParameterError
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.registry import register
from engine.layers.elementwise.functions import Binary
from engine.layers.operands.fitting import check_shape
from engine.layers.reduction.reduction import Mean, Sum
from engine.promotion import broadcast_shapes
from engine.tensor import Array

NONE, MEAN, SUM = range(3)
# Lower bound of logarithms of probabilities.
LEAST_LOG: Final = -100.0


class _Loss(Composite):
    """Base of losses; a subclass defines the function of a pair.

    Shapes:
        input, target broadcast against each other  ->  that shape, or () if reduced
    Parameters:
        reduction: 0 none, 1 the mean, 2 the sum.
    """

    reduction: int = MEAN

    def __post_init__(self) -> None:
        if self.reduction not in (NONE, MEAN, SUM):
            raise ParameterError("unknown reduction", found=self.reduction, expected="0, 1 or 2")

    def compose(self, call: CallLayer, input: Array, target: Array) -> Any:
        return self._reduced(call, self._of_each(call, input, target))

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        raise NotImplementedError

    def _reduced(self, call: CallLayer, each: Any) -> Any:
        return each if self.reduction == NONE else call(Sum() if self.reduction == SUM else Mean(), each)

    def _weighted(self, call: CallLayer, each: Any, weight: Array | None) -> Any:
        """Return the loss with every element multiplied by its weight, if any."""
        _check_weight(weight, each)
        return self._reduced(call, each if weight is None else formula(call, "mul(@0,@1)", each, weight))


def _check_weight(weight: Any, pairs: Any) -> None:
    """Refuse weights that do not broadcast to the pairs of elements; pairs do not broadcast to weights."""
    if weight is not None:
        shape = broadcast_shapes(weight.shape, pairs.shape)
        check_shape(shape, pairs.shape, "the pairs and their weights do not fit")


@register("aten::l1_loss", positional=("input", "target", "reduction"))
class L1Loss(_Loss):
    """|x - y|."""

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        return formula(call, "abs(sub(@0,@1))", input, target)


@register("aten::mse_loss", positional=("input", "target", "reduction"))
class MSELoss(_Loss):
    """(x - y)**2."""

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        return formula(call, "square(sub(@0,@1))", input, target)


@register("aten::huber_loss", positional=("input", "target", "reduction", "delta"))
class HuberLoss(_Loss):
    """d**2 / 2 where d = |x - y| is at most delta, else delta (d - delta / 2)."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.delta > 0:
            raise ParameterError("delta must be positive", found=self.delta)

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        distance = L1Loss._of_each(self, call, input, target)  # type: ignore[arg-type]
        return _bent(call, distance, self.delta)


@register("aten::smooth_l1_loss", positional=("input", "target", "reduction", "beta"))
class SmoothL1Loss(_Loss):
    """d**2 / (2 beta) where d = |x - y| is below beta, else d - beta / 2."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta >= 0:
            raise ParameterError("beta must not be negative", found=self.beta)

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        distance = L1Loss._of_each(self, call, input, target)  # type: ignore[arg-type]
        return formula(call, f"div(@0,{self.beta})", _bent(call, distance, self.beta)) if self.beta else distance


def _bent(call: CallLayer, distance: Any, bound: float) -> Any:
    """Return d**2 / 2 up to a bound, and the tangent behind it."""
    return formula(call, "mul(@1,sub(@0,mul(@1,0.5)))", distance, formula(call, f"min(@0,{bound})", distance))


@register("aten::soft_margin_loss", positional=("input", "target", "reduction"))
class SoftMarginLoss(_Loss):
    """log(1 + exp(-x y))."""

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        return formula(call, "log1p(exp(neg(mul(@0,@1))))", input, target)


@register("aten::kl_div", positional=("input", "target", "reduction", "log_target"))
class KLDivergence(_Loss):
    """y (log(y) - x) for probabilities y and logarithms x of others; exp(y) (y - x) if y are logarithms too."""

    log_target: bool = False

    def _of_each(self, call: CallLayer, input: Array, target: Array) -> Any:
        if self.log_target:
            return formula(call, "mul(exp(@1),sub(@1,@0))", input, target)
        entropy = call(Binary(function="xlogy"), target, target)
        return formula(call, "sub(@2,mul(@1,@0))", input, target, entropy)


@register("aten::binary_cross_entropy", positional=("input", "target", "weight", "reduction"))
class BinaryCrossEntropy(_Loss):
    """-weight (y log(x) + (1 - y) log(1 - x)) for probabilities x."""

    def compose(self, call: CallLayer, input: Array, target: Array, weight: Array | None = None) -> Any:
        misses, hits = f"max(log1p(neg(@0)),{LEAST_LOG})", f"max(log(@0),{LEAST_LOG})"
        each = formula(call, f"sub(mul(sub(@1,1),{misses}),mul(@1,{hits}))", input, target)
        return self._weighted(call, each, weight)


@register(
    "aten::binary_cross_entropy_with_logits", positional=("input", "target", "weight", "pos_weight", "reduction")
)  # fmt: skip
class BinaryCrossEntropyOfLogits(_Loss):
    """-weight (pos_weight y log(p) + (1 - y) log(1 - p)), where p = sigmoid(x)."""

    def compose(
        self, call: CallLayer, input: Array, target: Array, weight: Array | None = None, pos_weight: Array | None = None
    ) -> Any:
        tail = formula(call, "add(log1p(exp(neg(abs(@0)))),max(neg(@0),0))", input)
        if pos_weight is not None:
            _check_weight(pos_weight, formula(call, "mul(@0,@1)", input, target))
            tail = formula(call, "mul(@0,add(mul(sub(@2,1),@1),1))", tail, target, pos_weight)
        return self._weighted(call, formula(call, "add(mul(sub(1,@1),@0),@2)", input, target, tail), weight)
