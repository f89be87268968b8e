"""Piecewise linear activations: ReLU, its leaky and bounded forms, shrinking. NaN stays NaN."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import Elementwise, UnaryFunction
from engine.layers.operands.axes import may_equal
from engine.layers.operands.bounds import at_least, at_most, clamped
from engine.layers.operands.precision import widened
from engine.promotion import cast, float_dtype
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape

_MOST_AXES: Final = 8


@register("F.relu")
class ReLU(Elementwise):
    """max(x, 0); NaN stays NaN."""

    def forward(self, input: Array) -> Array:
        return at_least(input, np.zeros((), input.dtype))


@register("F.hardtanh")
class Hardtanh(Elementwise):
    """min(max(x, min_val), max_val); for integers between the truncated bounds."""

    min_val: float = -1.0
    max_val: float = 1.0

    def __post_init__(self) -> None:
        if self.min_val > self.max_val:
            raise ParameterError("min_val is greater than max_val", found=f"{self.min_val} > {self.max_val}")

    def forward(self, input: Array) -> Array:
        low, high = cast(self.min_val, input.dtype), cast(self.max_val, input.dtype)
        return clamped(input, low, high)


@register("F.threshold")
class Threshold(Elementwise):
    """x where x > threshold (or is NaN), else value."""

    threshold: float
    value: float

    def forward(self, input: Array) -> Array:
        return np.where(input <= cast(self.threshold, input.dtype), cast(self.value, input.dtype), input)


@register("F.leaky_relu")
class LeakyReLU(UnaryFunction):
    """x where x > 0, else negative_slope * x."""

    negative_slope: float = 0.01

    def compute(self, x: Array) -> Array:
        return _bent(x, self.negative_slope)


@register("F.rrelu", ignored=("training",))
class RReLU(UnaryFunction):
    """Leaky ReLU; at inference the random slope is its mean, (lower + upper) / 2."""

    lower: float = 1 / 8
    upper: float = 1 / 3

    def __post_init__(self) -> None:
        if not -math.inf < self.lower <= self.upper < math.inf:
            found = f"{self.lower} and {self.upper}"
            raise ParameterError(
                "lower and upper do not form an interval", found=found, expected="finite numbers in order"
            )

    def compute(self, x: Array) -> Array:
        return _bent(x, (self.lower + self.upper) / 2)


@register("F.prelu", ignored=("num_parameters",), shapes={"weight": ("num_parameters",)})
class PReLU(Layer):
    """x where x > 0, else weight * x; one weight for all, or one a channel (axis 1).

    The slope of an ONNX file has any shape that broadcasts, but the converter keeps only the elements. If their number
    is neither one nor that of the channels, they belong to the axes whose sizes give that number, if unambiguous.

    Shapes:
        input (N, C, ...), weight (C,) or (1,) or () or (product of some axes of the input,)  ->  as input
    """

    def infer(self, input: TensorSpec, weight: TensorSpec) -> TensorSpec:
        self._check(input.shape, weight.shape)
        return TensorSpec(input.shape, float_dtype(input.dtype))

    def forward(self, input: Array, weight: Array) -> Array:
        x = widened(input)
        slope = cast(weight, x.dtype).reshape(self.slope_shape(input.shape, weight.shape))
        with np.errstate(all="ignore"):
            return cast(_bent(x, slope), float_dtype(input.dtype))

    def _check(self, input: Shape, weight: Shape) -> None:
        self.slope_shape(input, weight)

    def slope_shape(self, input: Shape, weight: Shape) -> tuple[int, ...]:
        """Return the weight's shape for the input, with all its axes unless it is one weight a channel.

        () stands for a single weight, and for a shape unknown before a run.

        Raises:
            ShapeError: it does not fit, or is ambiguous.
        """
        channels = input[1] if len(input) > 1 else 1
        if not weight or weight == (1,):
            return ()
        if len(weight) == 1 and may_equal(weight[0], channels):
            return (weight[0] or 0, *(1,) * (len(input) - 2))
        ways = _ways(input, weight[0]) if len(weight) == 1 else []
        if None in input and len(weight) == 1:
            return ()
        if len(ways) != 1:
            expected = f"[1] or {format_shape((channels,))}"
            raise ShapeError("weight does not fit the channels", found=format_shape(weight), expected=expected)
        return ways[0]


@register("F.hardshrink")
class Hardshrink(UnaryFunction):
    """0 where -lambd <= x <= lambd, else x."""

    lambd: float = 0.5

    def compute(self, x: Array) -> Array:
        return np.where((x >= -self.lambd) & (x <= self.lambd), np.zeros((), x.dtype), x)


@register("F.softshrink")
class Softshrink(UnaryFunction):
    """x moved towards 0 by lambd, 0 where it would pass it."""

    lambd: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.lambd < math.inf:
            raise ParameterError("lambd is out of range", found=self.lambd, expected="a finite number from 0")

    def compute(self, x: Array) -> Array:
        moved = np.where(x > 0, x - self.lambd, x + self.lambd)
        # Times 0, not 0: NaN must stay NaN.
        return np.where(np.abs(x) > self.lambd, moved, x * 0)


def _ways(input: Shape, count: Dim) -> list[tuple[int, ...]]:
    """Return shapes of so many elements that broadcast to a shape; including the batch axis only as a last resort."""
    sizes = [size or 0 for size in input]
    for axes in (range(1, len(sizes)), range(len(sizes))):
        long = [axis for axis in axes if sizes[axis] > 1]
        chosen = [some for n in range(1, len(long) + 1) for some in combinations(long[:_MOST_AXES], n)]
        ways = [tuple(size if axis in some else 1 for axis, size in enumerate(sizes)) for some in chosen]
        fitting = [way for way in ways if math.prod(way) == count]
        if fitting:
            return fitting
    return []


def _bent(x: Array, slope: Array | float) -> Array:
    """Compute max(x, 0) + slope * min(x, 0) like PyTorch, without the NaN of 0 times an infinity."""
    if not np.isfinite(cast(slope, x.dtype)).all():  # 1e308 is infinite in float32
        return np.where(x > 0, x, x * slope)
    return at_least(x, 0) + at_most(x, 0) * slope
