"""Discrete Fourier transforms. Single precision stays single; integers are transformed as float32.

``norm`` selects the transform with the factor 1/N: backward (the inverse), forward, or ortho (1/sqrt(N) in both).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.complex import complex_dtype
from engine.layers.operands.axes import checked_axes, checked_axis, replaced
from engine.layers.shape.shape import Rearrangement
from engine.promotion import cast, float_dtype, real_dtype
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, dtype_name

_SWAPPED: Final = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """Properties of a transform.

    Args:
        halved: whether the output, or the input, holds only the non-redundant half of a symmetric spectrum.
        compute: computes it along an axis: (array, length, axis, norm).
        formula: for the documentation.
    """

    halved: Literal["no", "output", "input"]
    compute: Callable[..., Any]
    formula: str

    def points(self, given: Dim, length: Dim) -> Dim:
        """Return the points transformed along the last axis: the given number, or all points if it is -1."""
        if given != -1 or length is None:
            return None if given == -1 else given
        return 2 * (length - 1) if self.halved == "input" else length

    def length(self, points: Dim) -> Dim:
        """Return the length of the result along the last transformed axis."""
        return points // 2 + 1 if self.halved == "output" and points is not None else points


_TRANSFORMS: Final[dict[str, Transform]] = {
    "fft": Transform(halved="no", compute=np.fft.fft, formula="sum of x[j] exp(-2 pi i j k / N)"),
    "ifft": Transform(halved="no", compute=np.fft.ifft, formula="mean of x[j] exp(2 pi i j k / N)"),
    "rfft": Transform(halved="output", compute=np.fft.rfft, formula="fft of a real signal, the first N//2 + 1 places"),
    "irfft": Transform(halved="input", compute=np.fft.irfft, formula="ifft of half a symmetric spectrum, real"),
    "hfft": Transform(halved="input", compute=np.fft.hfft, formula="fft of half a symmetric signal, real"),
    "ihfft": Transform(
        halved="output", compute=np.fft.ihfft, formula="ifft of a real signal, the first N//2 + 1 places"
    ),
}

_OTHERS: Final = {"fft": "fft", "ifft": "ifft", "rfft": "fft", "irfft": "ifft", "hfft": "fft", "ihfft": "ifft"}
"""Transform along all axes but the last."""


class _Fourier(Layer):
    """Base of all transforms."""

    name: str
    norm: str | None = None

    def __post_init__(self) -> None:
        if self.norm not in _SWAPPED:
            raise ParameterError("unknown norm", found=self.norm, expected="backward, forward or ortho")

    @property
    def _transform(self) -> Transform:
        return _TRANSFORMS[self.name]

    def _dtype(self, dtype: DType) -> DType:
        if self._transform.halved == "output" and dtype.kind == "c":
            raise ShapeError("a real signal is needed", found=dtype_name(dtype))
        result = complex_dtype(float_dtype(dtype))
        return real_dtype(result) if self._transform.halved == "input" else result

    def _prepared(self, input: Array, axes: Sequence[int]) -> Array:
        self._dtype(input.dtype)
        return never_empty(cast(input, float_dtype(input.dtype)), axes)


class OneAxis(_Fourier):
    """A transform along one axis, first truncated or zero-padded to n points."""

    n: tuple[Dim, ...] = ()
    dim: int = -1

    def infer(self, input: TensorSpec) -> TensorSpec:
        axis = self._axis(input.shape)
        if self.n and self.n[0] is not None and self.n[0] < 1:
            _check_points(self.n[0])
        points = self._transform.points(self.n[0] if self.n else -1, input.shape[axis])
        _check_points(points)
        return TensorSpec(replaced(input.shape, axis, self._transform.length(points)), self._dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        axis = self._axis(input.shape)
        points = self.n[0] if self.n else None
        return np.asarray(self._transform.compute(self._prepared(input, (axis,)), points, axis, self.norm))

    def _axis(self, shape: Shape) -> int:
        if not shape:
            raise ShapeError("a 0-dim tensor cannot be transformed")
        return checked_axis(self.dim, len(shape))


class SeveralAxes(_Fourier, Composite):
    """A transform along several axes, each first truncated or zero-padded to s points; -1 keeps its length."""

    s: tuple[Dim, ...] = ()
    dim: tuple[int, ...] = ()

    def compose(self, call: CallLayer, input: Array) -> Any:
        rank = len(input.shape)
        if not rank:
            raise ShapeError("a 0-dim tensor cannot be transformed")
        axes = checked_axes(self.dim or range(rank - (len(self.s) or rank), rank), rank)
        if self.s and len(self.s) != len(axes):
            raise ParameterError("s and dim differ in length", found=len(self.s), expected=len(axes))
        *others, last = [
            OneAxis(name=name, n=() if points == -1 else (points,), dim=axis, norm=self.norm)
            for axis, points, name in zip(
                axes, self.s or (-1,) * rank, [_OTHERS[self.name]] * (len(axes) - 1) + [self.name], strict=False
            )
        ]
        result: Any = input
        for stage in (last, *others) if self._transform.halved == "output" else (*others, last):
            result = call(stage, result)
        return result


def never_empty(x: Array, axes: Sequence[int]) -> Array:
    """Return an array with a zero added along empty axes, as numpy's irfft always reads the first element."""
    short = [(0, 1 if axis in axes and not size else 0) for axis, size in enumerate(x.shape)]
    return np.pad(x, short) if any(more for _, more in short) else x


def _check_points(length: Dim) -> None:
    if length is not None and length < 1:
        raise ShapeError("there are no points to transform", found=length, expected="at least 1")


for _name, _transform in _TRANSFORMS.items():
    for _suffix, _where in (("", "one axis"), ("2", "two axes"), ("n", "several axes")):
        register(
            f"torch.fft.{_name}{_suffix}",
            presets={"name": _name, "dim": (-2, -1)} if _suffix == "2" else {"name": _name},
            positional=("input", "s" if _suffix else "n", "dim", "norm"),
            formula=f"{_transform.formula}; along {_where}",
        )(SeveralAxes if _suffix else OneAxis)


@register(
    "torch.fft.fftshift",
    presets={"is_inverse": False},
    formula="frequency 0 moved from the front to the middle of each axis",
)
@register("torch.fft.ifftshift", presets={"is_inverse": True},
          formula="frequency 0 moved from the middle to the front of each axis")  # fmt: skip
class Shift(Rearrangement):
    """The halves of axes swapped."""

    is_inverse: bool
    dim: tuple[int, ...] = ()

    def infer(self, input: TensorSpec) -> TensorSpec:
        self.axes(input.rank)
        return input

    def forward(self, input: Array) -> Array:
        shift = np.fft.ifftshift if self.is_inverse else np.fft.fftshift
        return shift(input, self.axes(input.ndim)) if input.ndim else input

    def axes(self, rank: int) -> tuple[int, ...]:
        return checked_axes(self.dim or range(rank), rank) if rank else ()
