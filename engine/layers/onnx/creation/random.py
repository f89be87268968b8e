"""Numbers at random: shapes and dtypes are as the file says, the draws are this process's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.distribution import Multinomial
from engine.layers.creation.randomness import generator
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec


class _Draw(Layer):
    """Base of draws; a seed is of no consequence."""

    dtype: int | None = None

    def dtype_for(self, own: DType) -> DType:
        """The dtype of the result."""
        return own if self.dtype is None else onnx_dtype(self.dtype)

    def draw(self, shape: tuple[int, ...]) -> Array:
        """Numbers of a shape."""
        raise NotImplementedError


class _OfShape(_Draw):
    shape: tuple[int, ...]

    def infer(self) -> TensorSpec:
        if any(size < 0 for size in self.shape):
            raise ParameterError("not a shape", found=list(self.shape), expected="sizes of 0 and more")
        return TensorSpec(self.shape, self.dtype_for(np.dtype(np.float32)))

    def forward(self) -> Array:
        spec = self.infer()
        return cast(self.draw(spec.sizes), spec.dtype)


class _Like(_Draw):
    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, self.dtype_for(input.dtype))

    def forward(self, input: Array) -> Array:
        return cast(self.draw(input.shape), self.dtype_for(input.dtype))


class _Normal(_Draw):
    mean: float = 0.0
    scale: float = 1.0

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.mean + self.scale * generator().standard_normal(shape))


class _Uniform(_Draw):
    low: float = 0.0
    high: float = 1.0

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.low + (self.high - self.low) * generator().random(shape))


@register("RandomNormal", ignored=("seed",))
class RandomNormal(_Normal, _OfShape):
    """Normal numbers around mean, scale wide."""


@register("RandomNormalLike", ignored=("seed",))
class RandomNormalLike(_Normal, _Like):
    """Normal numbers around mean, scale wide, in the shape of the input."""


@register("RandomUniform", ignored=("seed",))
class RandomUniform(_Uniform, _OfShape):
    """Numbers between low and high."""


@register("RandomUniformLike", ignored=("seed",))
class RandomUniformLike(_Uniform, _Like):
    """Numbers between low and high, in the shape of the input."""


@register("Bernoulli", ignored=("seed",))
class OnnxBernoulli(_Draw):
    """1 with the probability that the input gives, else 0."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, self.dtype_for(input.dtype))

    def forward(self, input: Array) -> Array:
        chance = cast(input, np.dtype(np.float64))
        if chance.size and not ((chance >= 0) & (chance <= 1)).all():
            raise ShapeError("not a probability", found=f"{chance.min()} to {chance.max()}", expected="0 to 1")
        return cast(np.asarray(generator().random(input.shape) < chance), self.dtype_for(input.dtype))


@register("Multinomial", ignored=("seed",))
class OnnxMultinomial(_Draw):
    """Classes drawn from every row of logarithms of weights, again and again: (rows, classes) -> (rows, sample_size)"""

    sample_size: int = 1

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.rank != 2 or self.sample_size < 1:
            raise ShapeError("input does not fit", found=input.shape, expected="rows of weights")
        return TensorSpec((input.shape[0], self.sample_size), self.dtype_for(np.dtype(np.int32)))

    def forward(self, input: Array) -> Any:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        x = cast(input, np.dtype(np.float64))
        with np.errstate(all="ignore"):
            weights = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
        drawn = Multinomial(num_samples=self.sample_size, replacement=True).forward(weights)
        return cast(drawn, spec.dtype)
