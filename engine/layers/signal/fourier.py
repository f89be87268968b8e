"""Discrete Fourier transforms. Single precision stays single; integers are transformed as float32.

``norm`` selects the transform with the factor 1/N: backward (the inverse), forward, or ortho (1/sqrt(N) in both).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.complex import complex_dtype
from engine.layers.operands.axes import checked_axes, checked_axis, replaced, sizes
from engine.layers.shape.shape import Rearrangement
from engine.promotion import cast, float_dtype, real_dtype
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, dtype_name

_SWAPPED: Final = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """Properties of a transform.

    Args:
        halved: whether the output, or the input, holds only the non-redundant half of a symmetric spectrum.
        one, several: compute along one axis and along several: (array, length, axis, norm).
        formula: for the documentation.
    """

    halved: Literal["no", "output", "input"]
    one: Callable[..., Any]
    several: Callable[..., Any]
    formula: str

    def points(self, given: Dim, length: Dim) -> Dim:
        """Return the points transformed along the last axis: the given number, or all points if it is -1."""
        if given != -1 or length is None:
            return None if given == -1 else given
        return 2 * (length - 1) if self.halved == "input" else length

    def length(self, points: Dim) -> Dim:
        """Return the length of the result along the last transformed axis."""
        return points // 2 + 1 if self.halved == "output" and points is not None else points


def _hfftn(x: Array, s: Any, axes: Any, norm: str | None) -> Any:
    return np.fft.irfftn(x.conj(), s, axes, _SWAPPED[norm])  # type: ignore[arg-type]


def _ihfftn(x: Array, s: Any, axes: Any, norm: str | None) -> Any:
    return np.fft.rfftn(x, s, axes, _SWAPPED[norm]).conj()  # type: ignore[arg-type]


_TRANSFORMS: Final[dict[str, Transform]] = {
    "fft": Transform(halved="no", one=np.fft.fft, several=np.fft.fftn, formula="sum of x[j] exp(-2 pi i j k / N)"),
    "ifft": Transform(halved="no", one=np.fft.ifft, several=np.fft.ifftn, formula="mean of x[j] exp(2 pi i j k / N)"),
    "rfft": Transform(
        halved="output",
        one=np.fft.rfft,
        several=np.fft.rfftn,
        formula="fft of a real signal, the first N//2 + 1 places",
    ),
    "irfft": Transform(
        halved="input", one=np.fft.irfft, several=np.fft.irfftn, formula="ifft of half a symmetric spectrum, real"
    ),
    "hfft": Transform(halved="input", one=np.fft.hfft, several=_hfftn, formula="fft of half a symmetric signal, real"),
    "ihfft": Transform(
        halved="output", one=np.fft.ihfft, several=_ihfftn, formula="ifft of a real signal, the first N//2 + 1 places"
    ),
}

_OTHERS: Final = {"fft": "fft", "ifft": "ifft", "rfft": "fft", "irfft": "ifft", "hfft": "fft", "ihfft": "ifft"}
"""Transform along all axes but the last."""


class _Fourier(Layer):
    """Base of all transforms."""

    name: ClassVar[str]

    norm: str | None = None

    def __post_init__(self) -> None:
        if self.norm not in _SWAPPED:
            raise ParameterError("unknown norm", found=self.norm, expected="backward, forward or ortho")

    @property
    def _transform(self) -> Transform:
        return _TRANSFORMS[self.name]

    @property
    def begins_with_last(self) -> bool:
        """Return whether, of several axes, the last is transformed first, when its points are real."""
        return self._transform.halved == "output"

    def computes(self, is_last: bool) -> Callable[..., Any]:
        """Return the function (array, length, axis, norm) for the last of the axes, or for another of them."""
        return (self._transform if is_last else _TRANSFORMS[_OTHERS[self.name]]).one

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
        self.infer(TensorSpec(input.shape, input.dtype))
        axis = self._axis(input.shape)
        points = self.n[0] if self.n else None
        return np.asarray(self._transform.one(self._prepared(input, (axis,)), points, axis, self.norm))

    def along(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the axis, and the points transformed along it, of an array of this shape."""
        axis = self._axis(shape)
        points = self._transform.points(self.n[0] if self.n and self.n[0] is not None else -1, shape[axis])
        return (axis,), sizes((points,))

    def _axis(self, shape: Shape) -> int:
        if not shape:
            raise ShapeError("a 0-dim tensor cannot be transformed")
        return checked_axis(self.dim, len(shape))


class SeveralAxes(_Fourier):
    """A transform along several axes, each first truncated or zero-padded to s points; -1 keeps its length."""

    s: tuple[Dim, ...] = ()
    dim: tuple[int, ...] = ()

    def infer(self, input: TensorSpec) -> TensorSpec:
        axes, points = self._points(input.shape)
        shape = list(input.shape)
        for axis, count in zip(axes, points, strict=True):
            shape[axis] = count
        shape[axes[-1]] = self._transform.length(points[-1])
        return TensorSpec(tuple(shape), self._dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        axes, points = self._points(input.shape)
        points = sizes(points)
        return np.asarray(self._transform.several(self._prepared(input, axes), points, axes, self.norm))

    def along(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the axes, and the points transformed along each, of an array of this shape."""
        axes, points = self._points(shape)
        return axes, sizes(points)

    def _points(self, shape: Shape) -> tuple[tuple[int, ...], Shape]:
        """Return the axes, and the points transformed along each."""
        rank = len(shape)
        if not rank:
            raise ShapeError("a 0-dim tensor cannot be transformed")
        axes = checked_axes(self.dim or range(rank - (len(self.s) or rank), rank), rank)
        if self.s and len(self.s) != len(axes):
            raise ParameterError("s and dim differ in length", found=len(self.s), expected=len(axes))
        asked = self.s or (-1,) * len(axes)
        points = [shape[axis] if given == -1 else given for axis, given in zip(axes, asked, strict=True)]
        points[-1] = self._transform.points(asked[-1], shape[axes[-1]])
        for count in points:
            _check_points(count)
        return axes, tuple(points)


def never_empty(x: Array, axes: Sequence[int]) -> Array:
    """Return an array with a zero added along empty axes, as numpy's irfft always reads the first element."""
    short = [(0, 1 if axis in axes and not size else 0) for axis, size in enumerate(x.shape)]
    return np.pad(x, short) if any(more for _, more in short) else x


def _check_points(length: Dim) -> None:
    if length is not None and length < 1:
        raise ShapeError("there are no points to transform", found=length, expected="at least 1")


def _define(base: type[_Fourier], name: str, suffix: str, where: str) -> None:
    positional = ("input", "n" if base is OneAxis else "s", "dim", "norm")
    presets = {"dim": (-2, -1)} if suffix == "2" else {}
    body = {"name": name, "__doc__": f"{_TRANSFORMS[name].formula}; along {where}", "__module__": __name__}
    layer = type(f"{name.capitalize()}{suffix.upper()}", (base,), body)
    register(f"torch.fft.{name}{suffix}", presets=presets, positional=positional)(layer)


for _name in _TRANSFORMS:
    _define(OneAxis, _name, "", "one axis")
    _define(SeveralAxes, _name, "2", "two axes")
    _define(SeveralAxes, _name, "n", "several axes")


class _Shift(Rearrangement):
    """Base of layers that swap the halves of axes."""

    dim: tuple[int, ...] = ()

    def infer(self, input: TensorSpec) -> TensorSpec:
        self._axes(input.rank)
        return input

    def _axes(self, rank: int) -> tuple[int, ...]:
        return checked_axes(self.dim or range(rank), rank) if rank else ()


@register("torch.fft.fftshift")
class FftShift(_Shift):
    """Frequency 0 moved from the front to the middle of each axis."""

    def forward(self, input: Array) -> Array:
        return np.fft.fftshift(input, self._axes(input.ndim)) if input.ndim else input


@register("torch.fft.ifftshift")
class IfftShift(_Shift):
    """Frequency 0 moved from the middle to the front of each axis."""

    def forward(self, input: Array) -> Array:
        return np.fft.ifftshift(input, self._axes(input.ndim)) if input.ndim else input
