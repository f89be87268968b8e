"""Draws from distributions whose parameters are given by operands."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.creation import FLOAT32, Creation
from engine.layers.creation.randomness import check_interval, generator
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import PLACEMENT, overload
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import Elementwise
from engine.layers.operands.axes import checked_axis, replaced, sizes
from engine.layers.operands.precision import INT64
from engine.limits import check_size
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, TensorSpec, format_shape

_LARGEST_RATE: Final = 2.0**62


class Normal(Layer):
    """Normal numbers around mean, std wide; each a number or a tensor."""

    def infer(self, mean: Any = 0.0, std: Any = 1.0) -> TensorSpec:
        tensors = [each for each in (mean, std) if isinstance(each, TensorSpec)]
        shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
        return TensorSpec(shape, tensors[0].dtype if tensors else FLOAT32)

    def forward(self, mean: Any = 0.0, std: Any = 1.0) -> Array:
        tensors = [each for each in (mean, std) if isinstance(each, np.ndarray)]
        shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
        dtype = tensors[0].dtype if tensors else FLOAT32
        return _normal(mean, std, sizes(shape), dtype)


def _normal(mean: Any, std: Any, shape: tuple[int, ...], dtype: DType) -> Array:
    if np.any(np.asarray(std) < 0):
        raise ShapeError("std must not be negative", found=np.min(std))
    wide = np.dtype(np.float64)
    return cast(np.asarray(cast(mean, wide) + cast(std, wide) * generator().standard_normal(shape)), dtype)


class NormalSized(Creation):
    """Normal numbers around mean, std wide, of a given size."""

    mean: float = 0.0
    std: float = 1.0

    def forward(self) -> Array:
        return _normal(self.mean, self.std, sizes(self.size), self.dtype or FLOAT32)


@register("torch.normal", ignored=PLACEMENT)
class NormalLike(Elementwise):
    """Normal numbers around mean, std wide, in place of input."""

    mean: float = 0.0
    std: float = 1.0

    def forward(self, input: Array) -> Array:
        return _normal(self.mean, self.std, input.shape, input.dtype)


overload(
    "aten::normal",
    (Normal, "mean std generator"),
    (NormalLike, "input mean std generator"),
    (NormalSized, "mean std size generator dtype layout device pin_memory"),
)


@register("aten::uniform", positional=("input", "low", "high", "generator"), renamed={"from": "low", "to": "high"})
class Uniform(Elementwise):
    """Numbers evenly from low to high, in place of input."""

    low: float = 0.0
    high: float = 1.0
    generator: Any = None

    def __post_init__(self) -> None:
        if not -np.inf < self.low <= self.high < np.inf:
            found = f"{self.low} and {self.high}"
            raise ParameterError("the interval is empty", found=found, expected="low up to high")

    def forward(self, input: Array) -> Array:
        drawn = generator().random(input.shape)
        return cast(np.asarray(self.low + (self.high - self.low) * drawn), input.dtype)


class RandomIntegers(Elementwise):
    """Integers evenly from low to high, high excluded, in place of input."""

    high: int
    low: int = 0

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        check_interval(self.low, self.high, input.dtype)
        return input

    def forward(self, input: Array) -> Array:
        return cast(generator().integers(self.low, self.high, input.shape), input.dtype)


overload("aten::random", (RandomIntegers, "input high generator"), (RandomIntegers, "input low high generator"))


@register("aten::exponential", positional=("input", "rate", "generator"), renamed={"lambd": "rate"})
class Exponential(Elementwise):
    """Waiting times of events that come at a rate, in place of input."""

    rate: float = 1.0
    generator: Any = None

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ParameterError("rate must be positive", found=self.rate)

    def forward(self, input: Array) -> Array:
        return cast(np.asarray(generator().exponential(1 / self.rate, input.shape)), input.dtype)


class Bernoulli(Elementwise):
    """1 with the probability input gives, or p, else 0; in the dtype of input."""

    def forward(self, input: Array, p: Any = None) -> Array:
        chance = cast(input if p is None else p, np.dtype(np.float64))
        if chance.size and not ((chance >= 0) & (chance <= 1)).all():
            raise ShapeError("not a probability", found=f"{chance.min()} to {chance.max()}", expected="0 to 1")
        return cast(generator().random(input.shape) < chance, input.dtype)


overload("aten::bernoulli", (Bernoulli, "input"), (Bernoulli, "input generator"), (Bernoulli, "input p generator"))


@register("aten::poisson", positional=("input", "generator"))
class Poisson(Elementwise):
    """Counts of events of which input are expected."""

    generator: Any = None

    def forward(self, input: Array) -> Array:
        if input.size and not (input >= 0).all():
            raise ShapeError("rates must not be negative", found=input.min())
        if input.size and input.max() > _LARGEST_RATE:
            raise ShapeError("rates are too large", found=input.max(), expected=f"at most {_LARGEST_RATE:g}")
        return cast(np.asarray(generator().poisson(cast(input, np.dtype(np.float64)))), input.dtype)


@register("aten::multinomial", positional=("input", "num_samples", "replacement", "generator"))
class Multinomial(Layer):
    """Positions drawn from every row, each with the weight in the row; with or without replacement."""

    num_samples: int
    replacement: bool = False
    generator: Any = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.rank not in (1, 2):
            raise ShapeError(
                "weights are a vector or rows", found=format_shape(input.shape), expected="[n] or [rows, n]"
            )
        axis = checked_axis(-1, input.rank)
        places = input.shape[axis]
        if places == 0:
            raise ShapeError("there are no weights to sample from", found=format_shape(input.shape), expected="weights")
        if self.num_samples < 1 or (places is not None and not self.replacement and self.num_samples > places):
            raise ShapeError("num_samples is out of range", found=self.num_samples, expected=f"1 to {places}")
        return TensorSpec(replaced(input.shape, axis, self.num_samples), INT64)

    def forward(self, input: Array) -> Array:
        weights = cast(input, np.dtype(np.float64))
        if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights.sum(-1) > 0).all()):
            raise ShapeError("weights must be finite, not negative and not all 0")
        # The largest of log(weight) + Gumbel noise is a draw by weight; the next ones are draws without replacement.
        if self.replacement:
            check_size((*weights.shape[:-1], self.num_samples, weights.shape[-1]), weights.dtype, "the draw")
        draws = (self.num_samples,) if self.replacement else (1,)
        with np.errstate(divide="ignore"):
            keys = np.log(weights)[..., None, :] + generator().gumbel(
                size=(*weights.shape[:-1], *draws, weights.shape[-1])
            )
        if self.replacement:
            return np.asarray(keys.argmax(-1), INT64)
        return np.argsort(-keys[..., 0, :], -1)[..., : self.num_samples]
