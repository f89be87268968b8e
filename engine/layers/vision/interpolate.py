"""Resizing of images by interpolation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import is_same, is_symbolic
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_match
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import REAL, Operand, check_rank, tensor
from engine.layers.vision.taps import (
    ANTIALIASED,
    KERNELS,
    Kernel,
    Taps,
    cubic,
    find_step,
    interpolate_axis,
    interpolate_axis_uint8,
    nearest_exact,
)
from engine.promotion import Category, cast, dtype_category
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, dtype_name, format_shape, product

_RANKS: Final = {"linear": (3,), "bilinear": (4,), "bicubic": (4,), "trilinear": (5,)}
LEAST, MOST = 1e-30, 1e30
_EXACT: Final = 2**12
"""Fractions of numbers up to this are recovered from their float64 values, whatever size they are multiplied by."""
_UINT8: Final = np.dtype(np.uint8)


@register("F.interpolate")
class Interpolate(Layer):
    """The spatial axes interpolated to a size, or by a factor.

    Parameters:
        size: one number an axis, or one for all; else floor(L * scale_factor) each.
        mode: nearest, nearest-exact, linear (3 dimensions), bilinear, bicubic (4) or trilinear (5).
        align_corners: align the centres of the corner elements, else their outer corners.
        recompute_scale_factor: derive the scale from the sizes, not from scale_factor.
    Shapes:
        input (N, C, *S)  ->  (N, C, *size)
    Dtypes:
        floating, and uint8, whose result is rounded.
    Raises:
        ParameterError: for an unknown mode, or when neither or both of size and scale_factor are given.
        ShapeError: when the input's rank does not suit the mode, or the output would be empty.
    Source:
        torch.nn.functional.interpolate.
    """

    kernels: ClassVar[Mapping[str, Kernel]] = KERNELS

    size: tuple[Dim, ...] = ()
    scale_factor: tuple[float, ...] = ()
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self.mode not in self.kernels:
            raise ParameterError("unknown mode", found=self.mode, expected=", ".join(self.kernels))
        if bool(self.size) == bool(self.scale_factor):
            found = "both" if self.size else "neither"
            raise ParameterError("size and scale_factor", found=found, expected="one of them")
        if any(not 0 < factor < math.inf for factor in self.scale_factor):
            raise ParameterError("scale_factor must be positive", found=list(self.scale_factor))

    def infer(self, input: Operand) -> TensorSpec:
        spec = tensor(input, "input", REAL)
        if spec.dtype.kind in "iu" and spec.dtype != _UINT8:
            raise ShapeError("input has the wrong dtype", found=dtype_name(spec.dtype), expected="floating or uint8")
        check_rank(spec, *_RANKS.get(self.mode, (3, 4, 5)))
        if 0 in spec.shape[1:]:
            raise ShapeError("input is empty", found=format_shape(spec.shape))
        return TensorSpec((*spec.shape[:2], *self._output_sizes(spec.shape)), spec.dtype)

    def _output_sizes(self, shape: Shape) -> Shape:
        sizes = shape[2:]
        if self.size:
            wanted = self.size * len(sizes) if len(self.size) == 1 else self._spatial(shape)
        else:
            factors = self.factors(len(sizes))
            wanted = tuple(_scaled(size, factor) for size, factor in zip(sizes, factors, strict=True))
        if len(wanted) != len(sizes) or any(size is not None and size < 1 for size in wanted):
            expected = f"{len(sizes)} positive sizes"
            raise ShapeError("cannot resample to this size", found=format_shape(wanted), expected=expected)
        return wanted

    def _spatial(self, shape: Shape) -> Shape:
        """Return the sizes of the spatial axes; ONNX's Resize has those of all axes, or their factors."""
        if len(self.size) != len(shape):
            return self.size
        noted = self.annotations.inputs[1] if len(self.annotations.inputs) == 2 else None
        if noted is not None and dtype_category(noted.dtype) is Category.FLOATING:
            rows = zip(shape, self.size, strict=True)
            full: Shape = tuple(None if None in (size, factor) else product((size, factor)) for size, factor in rows)
        else:
            full = self.size
        if not may_match(full[:2], shape[:2]):
            found, expected = format_shape(full), format_shape(shape)
            raise ShapeError("only spatial axes can be resampled", found=found, expected=expected)
        return full[2:]

    def factors(self, rank: int) -> list[float]:
        """Return the factor of each spatial axis."""
        factors = self.scale_factor * rank if len(self.scale_factor) == 1 else self.scale_factor
        if len(factors) != rank:
            raise ShapeError("scale_factor does not fit the input", found=list(factors), expected=f"{rank} factors")
        return [as_written(factor) for factor in factors]

    def forward(self, input: Array) -> Array:
        sizes = self.infer(input).shape[2:]
        x = input if input.dtype == _UINT8 else widened(input)
        combine = interpolate_axis_uint8 if input.dtype == _UINT8 else interpolate_axis
        with np.errstate(all="ignore"):
            for axis, taps in reversed(self.taps(x.shape, x.dtype, sizes)):
                x = combine(x, axis, taps)
        return cast(x, input.dtype)

    def taps(self, shape: Sequence[int], own: DType, sizes: Shape) -> list[tuple[int, Taps]]:
        """Return each spatial axis with the taps of its new elements.

        Args:
            shape, own: of the input, and its dtype.
            sizes: of the spatial axes of the result.
        """
        counts = [count or 0 for count in sizes]
        is_wide = own in (np.float64, _UINT8) and not self.mode.startswith("nearest")
        dtype, align = np.dtype(np.float64 if is_wide else np.float32), bool(self.align_corners)
        taps = []
        for axis, (count, scale) in enumerate(zip(counts, self.scales(len(counts)), strict=True), start=2):
            size = shape[axis]
            goes_by_size = self._goes_by_size(size, own, axis, counts)
            step = find_step(size, count, None if goes_by_size else scale, align, dtype)
            taps.append((axis, self.kernels[self.mode](size, count, step, align)))
        return taps

    def given_scales(self, shape: Sequence[int], own: DType, sizes: Shape) -> list[float | None]:
        """Return the factor of each spatial axis, None where the sizes decide. Sizes may be symbolic.

        Args:
            shape, own, sizes: as for ``taps``.
        """
        counts = [count or 0 for count in sizes]
        found: list[float | None] = []
        for axis, scale in enumerate(self.scales(len(counts)), start=2):
            is_whole = scale is not None and float(scale).is_integer()
            is_exact = is_whole and is_same(counts[axis - 2], shape[axis] * int(scale or 0))
            goes_by_size = not is_exact and self._goes_by_size(shape[axis], own, axis, counts)
            found.append(None if goes_by_size else scale)
        return found

    def _goes_by_size(self, size: int, own: DType, axis: int, counts: Sequence[int]) -> bool:
        """Return whether PyTorch ignores a scale that does not exactly fit the sizes: 1.1 from 4 to 4."""
        count = counts[axis - 2]
        if self.mode == "nearest":  # in its kernel for small images only
            return len(counts) == 2 and sum(counts) <= 128 and count in (size, 2 * size)
        kernel = self.kernels[self.mode]
        is_scaled = kernel is nearest_exact or (kernel is cubic and own != _UINT8)
        return count == size and not is_scaled

    def scales(self, rank: int) -> list[float | None]:
        """Return the factor of each axis, None if the sizes decide."""
        if self.size or self.recompute_scale_factor:
            return [None] * rank
        return list(self.factors(rank))

    def flops(self, output: TensorSpec, *operands: object) -> int:
        """Return two operations for each tap of each axis; none if elements are only selected."""
        taps = {"linear": 2, "bilinear": 2, "trilinear": 2, "bicubic": 4}.get(self.mode, 0)
        return 2 * taps * (output.rank - 2) * (output.size or 0)


class Antialiased(Interpolate):
    """Interpolation with a kernel as wide as the distance of new elements; bilinear or bicubic (a = -0.5).

    Source:
        torch.nn.functional.interpolate with antialias=True.
    """

    kernels = ANTIALIASED

    mode: str = "bilinear"
    scale_h: float | None = None
    scale_w: float | None = None

    def scales(self, rank: int) -> list[float | None]:
        """Return the factor of each axis, None if the sizes decide."""
        given = [None if factor is None else as_written(factor) for factor in (self.scale_h, self.scale_w)]
        return given if self.size else super().scales(rank)


class AntialiasedBicubic(Antialiased):
    """Bicubic interpolation (a = -0.5) with a kernel as wide as the distance of new elements."""

    mode: str = "bicubic"


overload(
    "aten::_upsample_bilinear2d_aa",
    (Antialiased, "input size align_corners scale_factor"),
    (Antialiased, "input size align_corners scale_h scale_w"),
)
overload(
    "aten::_upsample_bicubic2d_aa",
    (AntialiasedBicubic, "input size align_corners scale_factor"),
    (AntialiasedBicubic, "input size align_corners scale_h scale_w"),
)


class NearestExact(Interpolate):
    """The element nearest to the middle of the new one."""

    mode: str = "nearest-exact"
    scale_d: float | None = None
    scale_h: float | None = None
    scale_w: float | None = None

    def scales(self, rank: int) -> list[float | None]:
        """Return the factor of each axis, None if the sizes decide."""
        given = [None if each is None else as_written(each) for each in (self.scale_d, self.scale_h, self.scale_w)]
        return given[-rank:] if self.size else super().scales(rank)


overload("aten::_upsample_nearest_exact1d", (NearestExact, "input size scale_factor"))
overload(
    "aten::_upsample_nearest_exact2d",
    (NearestExact, "input size scale_factor"),
    (NearestExact, "input size scale_h scale_w"),
)
overload(
    "aten::_upsample_nearest_exact3d",
    (NearestExact, "input size scale_factor"),
    (NearestExact, "input size scale_d scale_h scale_w"),
)


def as_written(scale: float) -> float:
    """Return a factor before the converter rounded it to float32: a simple fraction if it rounds to it.

    Otherwise 0.7 * 10 would be 6.9999998, and a pixel would be lost.
    """
    if not LEAST < scale < MOST:  # neither a fraction of small numbers nor a float32
        return scale
    simple = float(Fraction(scale).limit_denominator(1000))
    return simple if np.float32(simple) == np.float32(scale) else scale


def _rounds_down_alike(exact: Fraction, factor: float) -> bool:
    """Return whether ``floor(size * factor)`` in float64 is ``floor(size * exact)`` for all sizes that fit in memory.

    Between whole numbers rounding errors do not matter. A whole product must be reached or exceeded: a float that is at
    most half a unit in the last place too small is rounded to it.
    """
    is_simple = exact.numerator <= _EXACT and float(exact) == factor
    return is_simple and (Fraction(factor) - exact) / exact >= -Fraction(1, 2**54)


def _scaled(size: Dim, factor: float) -> Dim:
    if size is None:
        return None
    if is_symbolic(size):
        exact = Fraction(factor).limit_denominator(_EXACT)
        if _rounds_down_alike(exact, factor):
            return size * exact.numerator // exact.denominator
    if not math.isfinite(size * factor):
        raise ShapeError("cannot resample to this size", found=f"{size} times {factor}")
    return math.floor(size * factor)
