"""Losses: the distance of a result from a target, with which anomaly detectors based on autoencoders end.

Each is a function of every pair of elements, then all of those, their mean or their sum.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import widened
from engine.promotion import broadcast_shapes, cast, float_dtype, result_type
from engine.tensor import Array, Shape, TensorSpec

NONE, MEAN, SUM = range(3)
# Lower bound of logarithms of probabilities.
LEAST_LOG: Final = -100.0


class Loss(Layer):
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

    def infer(self, input: TensorSpec, target: TensorSpec) -> TensorSpec:
        shape = broadcast_shapes(input.shape, target.shape)
        return TensorSpec(shape if self.reduction == NONE else (), float_dtype(result_type(input, target)))

    def forward(self, input: Array, target: Array) -> Array:
        return self._of_all(input, target)

    def _of_all(self, input: Array, target: Array, weight: Array | None = None, *others: Array | None) -> Array:
        """Return the loss, with every element multiplied by its weight, if any.

        Args:
            others: further operands of the function of a pair.
        """
        weights = [None if each is None else TensorSpec(each.shape, each.dtype) for each in (weight, *others)]
        spec = self._weighted(TensorSpec(input.shape, input.dtype), TensorSpec(target.shape, target.dtype), *weights)
        x, y = np.broadcast_arrays(widened(input), widened(target))
        with np.errstate(all="ignore"):
            each = self._of_each(x, y, *(None if other is None else widened(other) for other in others))
            return cast(self._reduced(np.asarray(each if weight is None else each * widened(weight))), spec.dtype)

    def _weighted(self, input: TensorSpec, target: TensorSpec, *weights: TensorSpec | None) -> TensorSpec:
        pairs = broadcast_shapes(input.shape, target.shape)
        _check_weights(pairs, *(each.shape for each in weights if each is not None))
        return Loss.infer(self, input, target)

    def flops(self, output: TensorSpec, *operands: Any) -> int:
        return 2 * (operands[0].size or 0)

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        raise NotImplementedError

    def _reduced(self, each: Array) -> Array:
        if self.reduction == NONE:
            return each
        return np.asarray(each.sum() if self.reduction == SUM else each.sum() / each.size)


@register("aten::l1_loss", positional=("input", "target", "reduction"))
class L1Loss(Loss):
    """|x - y|."""

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        return np.abs(x - y)


@register("aten::mse_loss", positional=("input", "target", "reduction"))
class MSELoss(Loss):
    """(x - y)**2."""

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        return np.square(x - y)


@register("aten::smooth_l1_loss", positional=("input", "target", "reduction", "beta"))
class SmoothL1Loss(Loss):
    """d**2 / (2 beta) where d = |x - y| is below beta, else d - beta / 2."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        Loss.__post_init__(self)
        if not self.beta >= 0:
            raise ParameterError("beta must not be negative", found=self.beta)

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        distance, beta = np.abs(x - y), x.dtype.type(self.beta)
        return np.where(distance < beta, distance * distance / (2 * beta), distance - beta / 2)


@register("aten::huber_loss", positional=("input", "target", "reduction", "delta"))
class HuberLoss(Loss):
    """d**2 / 2 where d = |x - y| is at most delta, else delta (d - delta / 2)."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        Loss.__post_init__(self)
        if not self.delta > 0:
            raise ParameterError("delta must be positive", found=self.delta)

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        distance, delta = np.abs(x - y), x.dtype.type(self.delta)
        return np.where(distance <= delta, distance * distance / 2, delta * (distance - delta / 2))


@register("aten::soft_margin_loss", positional=("input", "target", "reduction"))
class SoftMarginLoss(Loss):
    """log(1 + exp(-x y))."""

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        return np.log1p(np.exp(-y * x))


@register("aten::kl_div", positional=("input", "target", "reduction", "log_target"))
class KLDivergence(Loss):
    """y (log(y) - x) for probabilities y and logarithms x of others; exp(y) (y - x) if y are logarithms too."""

    log_target: bool = False

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        if self.log_target:
            return np.exp(y) * (y - x)
        return np.where(y == 0, 0, y * np.log(np.where(y == 0, 1, y))) - y * x


@register("aten::binary_cross_entropy", positional=("input", "target", "weight", "reduction"))
class BinaryCrossEntropy(Loss):
    """-weight (y log(x) + (1 - y) log(1 - x)) for probabilities x."""

    def infer(self, input: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None) -> TensorSpec:
        return self._weighted(input, target, weight)

    def forward(self, input: Array, target: Array, weight: Array | None = None) -> Array:
        return self._of_all(input, target, weight)

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        return (y - 1) * np.maximum(np.log1p(-x), LEAST_LOG) - y * np.maximum(np.log(x), LEAST_LOG)


def _check_weights(pairs: Shape, *weights: Shape) -> None:
    """Refuse weights that do not broadcast to the pairs of elements; pairs do not broadcast to weights.

    Raises:
        ShapeError: naming both shapes.
    """
    for weight in weights:
        check_shape(broadcast_shapes(weight, pairs), pairs, "the pairs and their weights do not fit")


@register(
    "aten::binary_cross_entropy_with_logits", positional=("input", "target", "weight", "pos_weight", "reduction")
)  # fmt: skip
class BinaryCrossEntropyOfLogits(Loss):
    """-weight (pos_weight y log(p) + (1 - y) log(1 - p)), where p = sigmoid(x)."""

    def infer(
        self,
        input: TensorSpec,
        target: TensorSpec,
        weight: TensorSpec | None = None,
        pos_weight: TensorSpec | None = None,
    ) -> TensorSpec:
        return self._weighted(input, target, weight, pos_weight)

    def forward(
        self, input: Array, target: Array, weight: Array | None = None, pos_weight: Array | None = None
    ) -> Array:
        return self._of_all(input, target, weight, pos_weight)

    def _of_each(self, x: Array, y: Array, *others: Array | None) -> Any:
        (weight,) = others
        positive = 1 if weight is None else (weight - 1) * y + 1
        return (1 - y) * x + positive * (np.log1p(np.exp(-np.abs(x))) + np.maximum(-x, 0))
