"""Normalisation. All variances are biased (divided by N) and taken of the centred values, in two passes.

Weights and biases are cast to the dtype computed in; the result has the input's dtype, float32 for integers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import widened
from engine.promotion import cast, float_dtype
from engine.tensor import Array, Shape, TensorSpec, format_shape

_AFFINE = {"affine": ("weight", "bias")}
_SHAPES = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), ("num_features",))


class Norm(Layer):
    """Base of layers whose output has the input's shape.

    ``_check`` takes the shapes of all operands and refuses those that do not fit; ``_compute`` takes the operands in
    the dtype to compute in.
    """

    def infer(self, input: TensorSpec, *others: TensorSpec | None) -> TensorSpec:
        self._check(input.shape, *[None if other is None else other.shape for other in others])
        return TensorSpec(input.shape, float_dtype(input.dtype))

    def _run(self, input: Array, *others: Array | None) -> Array:
        x = widened(input)
        with np.errstate(all="ignore"):
            result = self._compute(x, *[None if other is None else cast(other, x.dtype) for other in others])
        return cast(result.reshape(input.shape), float_dtype(input.dtype))

    @abstractmethod
    def _check(self, input: Shape, *others: Shape | None) -> None: ...

    @abstractmethod
    def _compute(self, x: Array, *others: Array | None) -> Array: ...


@register("F.batch_norm", ignored=("num_features",), flags=_AFFINE, shapes=_SHAPES)
class BatchNorm(Norm):
    """(x - mean) / sqrt(var + eps) * weight + bias, channel by channel.

    Shapes:
        input (N, C, ...), running_mean, running_var, weight, bias (C,)  ->  as input
        Without running statistics those of the batch are used.
    """

    eps: float = 1e-5

    def forward(
        self,
        input: Array,
        running_mean: Array | None,
        running_var: Array | None,
        weight: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        return self._run(input, running_mean, running_var, weight, bias)

    def _check(self, input: Shape, *others: Shape | None) -> None:
        _check_channels(input, *others)

    def _compute(self, x: Array, *others: Array | None) -> Array:
        mean, var, weight, bias = others
        if mean is None or var is None:
            mean, var = batch_statistics(x)
        return _normalised(x, mean, var, self.eps, weight, bias)


@register("F.instance_norm")
class InstanceNorm(Norm):
    """(x - mean) / sqrt(var + eps) * weight + bias, every channel of every instance by itself.

    Shapes:
        input (N, C, ...), or unbatched (C, ...); running_mean, running_var, weight, bias (C,)  ->  as input
    Parameters:
        spatial: number of axes after the channels, if the type defines it; else the input is batched.
        use_input_stats: whether the instance's own mean and variance are used although running ones are given.
        momentum, cudnn_enabled: without effect at inference.
    """

    spatial: int | None = None
    use_input_stats: bool = True
    momentum: float = 0.1
    eps: float = 1e-5
    cudnn_enabled: bool = False

    def forward(
        self,
        input: Array,
        running_mean: Array | None = None,
        running_var: Array | None = None,
        weight: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        return self._run(input, running_mean, running_var, weight, bias)

    def _check(self, input: Shape, *others: Shape | None) -> None:
        if self.spatial is not None and len(input) not in (self.spatial + 1, self.spatial + 2):
            expected = f"{self.spatial + 1} axes or, with a batch, {self.spatial + 2}"
            raise ShapeError("rank does not fit", found=format_shape(input), expected=expected)
        _check_channels(self.batched(input), *others)

    def _compute(self, x: Array, *others: Array | None) -> Array:
        mean, var, weight, bias = others
        x = x[None] if len(self.batched(x.shape)) > x.ndim else x
        if mean is not None and var is not None and not self.use_input_stats:
            return _normalised(x, mean, var, self.eps, weight, bias)
        return affine(standardised(x, tuple(range(2, x.ndim)), self.eps), *_by_channel(x, (weight, bias)))

    def batched(self, shape: Shape) -> Shape:
        """Return a shape with the batch axis that it may lack."""
        return (1, *shape) if self.spatial is not None and len(shape) == self.spatial + 1 else shape


@register(
    "F.group_norm",
    ignored=("num_channels",),
    flags=_AFFINE,
    shapes={"weight": ("num_channels",), "bias": ("num_channels",)},
)
class GroupNorm(Norm):
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics of a group of channels of one instance.

    Shapes:
        input (N, C, ...), weight, bias (C,)  ->  as input; num_groups divides C
    """

    num_groups: int
    eps: float = 1e-5

    def forward(self, input: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
        return self._run(input, weight, bias)

    def _check(self, input: Shape, *others: Shape | None) -> None:
        _check_channels(input, *others)
        if self.num_groups < 1:
            raise ParameterError("num_groups is too small", found=self.num_groups, expected="at least 1")
        if (input[1] or 0) % self.num_groups:
            raise ShapeError(
                "channels are not divisible by groups", found=input[1], expected=f"{self.num_groups} groups"
            )

    def _compute(self, x: Array, *others: Array | None) -> Array:
        n, c = x.shape[:2]
        groups = x.reshape(n, self.num_groups, c // self.num_groups, *x.shape[2:])
        y = standardised(groups, tuple(range(2, groups.ndim)), self.eps).reshape(x.shape)
        return affine(y, *_by_channel(y, others))


@register("F.local_response_norm")
class LocalResponseNorm(Norm):
    """x / (k + alpha * mean(x**2))**beta, with the mean over ``size`` neighbouring channels, absent ones as zeros.

    Shapes:
        input (N, C, L, ...)  ->  as input
    """

    loops = True

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ParameterError("size is too small", found=self.size, expected="at least 1")

    def forward(self, input: Array) -> Array:
        return self._run(input)

    def _check(self, input: Shape, *others: Shape | None) -> None:
        if len(input) < 3:
            raise ShapeError("rank does not fit", found=format_shape(input), expected="3 axes or more")

    def _compute(self, x: Array, *others: Array | None) -> Array:
        channels = x.shape[1]
        # A window larger than the number of channels is clipped: other channels are zero.
        before, after = min(self.size // 2, channels), min((self.size - 1) // 2, channels)
        padded = np.pad(np.square(x), [(before, after) if axis == 1 else (0, 0) for axis in range(x.ndim)])
        total = sum(padded[:, tap : tap + channels] for tap in cancellable(range(before + after + 1)))
        return x / np.power(total * (self.alpha / self.size) + self.k, self.beta)


def standardised(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Compute (x - mean) / sqrt(var + eps), with the mean and the variance over these axes."""
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + eps))


def affine(x: Array, weight: Array | None, bias: Array | None = None) -> Array:
    """Compute x * weight + bias, as far as they are given."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_channel(x: Array, vectors: Iterable[Array | None]) -> list[Array | None]:
    """Return vectors of one number a channel, to be broadcast against x (N, C, ...)."""
    return [None if each is None else each.reshape(-1, *[1] * (x.ndim - 2)) for each in vectors]


def batch_statistics(x: Array) -> tuple[Array, Array]:
    """Return mean and variance of every channel of a batch."""
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    return mean.reshape(-1), np.square(x - mean).mean(axis=axes)


def _normalised(x: Array, mean: Array, var: Array, eps: float, weight: Array | None, bias: Array | None) -> Array:
    """Compute (x - mean) / sqrt(var + eps) * weight + bias by channel, as one product and one sum, like PyTorch."""
    scale = affine(1 / np.sqrt(var + eps), weight)
    shift = affine(-mean * scale, None, bias)
    return affine(x, *_by_channel(x, (scale, shift)))


def _check_channels(input: Shape, *statistics: Shape | None) -> None:
    if len(input) < 2:
        raise ShapeError("rank does not fit", found=format_shape(input), expected="2 axes or more")
    for shape in statistics:
        if shape is not None:
            check_shape(shape, input[1:2], "weights do not fit the channels")
