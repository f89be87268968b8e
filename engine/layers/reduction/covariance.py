"""Covariance and correlation of variables."""

from __future__ import annotations

import numpy as np

from engine.errors import ExecutionError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.precision import widened
from engine.promotion import Category, cast, dtype_category, float_dtype
from engine.tensor import Array, Shape, TensorSpec, dtype_name, format_shape


def _result_shape(shape: Shape) -> Shape:
    """Return the shape of the matrix, without dimensions of one element, like PyTorch."""
    if len(shape) > 2:
        raise ShapeError(
            "the variables must be the rows of a matrix", found=format_shape(shape), expected="at most 2 dims"
        )
    return () if len(shape) < 2 or shape[0] == 1 else (shape[0], shape[0])


@register("aten::cov", positional=("input", "correction", "fweights", "aweights"))
class Covariance(Layer):
    """((x - mean) * w) @ (x - mean).T / n of variables in rows, observations in columns; the variance of a vector.

    With w = fweights * aweights, the frequency and the importance of observations, mean is weighted, and n = sum(w) -
    correction, or sum(w) - correction * sum(w * aweights) / sum(w); never below 0.
    """

    correction: int = 1

    def infer(
        self, input: TensorSpec, fweights: TensorSpec | None = None, aweights: TensorSpec | None = None
    ) -> TensorSpec:
        if dtype_category(input.dtype) is Category.BOOL:
            raise ShapeError("not defined for this dtype", found=dtype_name(input.dtype), expected="numbers")
        observations = input.shape[-1:] or (1,)
        for weights in (fweights, aweights):
            if weights is not None:
                _check_weights(weights, observations)
        return TensorSpec(_result_shape(input.shape), float_dtype(input.dtype))

    def forward(self, input: Array, fweights: Array | None = None, aweights: Array | None = None) -> Array:
        specs = [None if each is None else TensorSpec(each.shape, each.dtype) for each in (fweights, aweights)]
        spec = self.infer(TensorSpec(input.shape, input.dtype), *specs)
        x = widened(np.atleast_2d(input))
        counts, important = (
            np.ones(x.shape[1], x.dtype) if each is None else cast(each, x.dtype) for each in (fweights, aweights)
        )
        weights = counts * important
        total = weights.sum()
        if not total and (fweights is not None or aweights is not None):
            raise ExecutionError("the weights of the observations sum to zero")
        with np.errstate(all="ignore"):
            centred = x - (x * weights).sum(1, keepdims=True) / total
            count = np.maximum(total - self.correction * (weights * important).sum() / total, 0)
            result = (centred * weights) @ centred.T.conj() / count
        return cast(result.reshape(spec.shape), spec.dtype)


@register("aten::corrcoef")
class Correlation(Layer):
    """cov(x) divided by the standard deviations of both variables, from -1 to 1."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return Covariance().infer(input)

    def forward(self, input: Array) -> Array:
        covariance = Covariance().forward(input)
        wide = widened(covariance)
        with np.errstate(all="ignore"):
            if not wide.ndim:
                return cast(np.asarray(wide / wide), covariance.dtype)
            deviations = np.sqrt(np.diag(wide))
            return cast(np.clip(wide / deviations[:, None] / deviations, -1, 1), covariance.dtype)


def _check_weights(weights: TensorSpec, observations: Shape) -> None:
    if weights.rank != 1 or (None not in (*weights.shape, *observations) and weights.shape != observations):
        shapes = [format_shape(each) for each in (weights.shape, observations)]
        raise ShapeError("the weights do not fit the observations", found=shapes[0], expected=shapes[1])
