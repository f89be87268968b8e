"""Resizing of tensors of any rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import is_same, is_symbolic, specialise
from engine.ir.sizes import has_sizes
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.constants import whole_numbers
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.bounds import extremes
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import ANY, REAL, tensor
from engine.layers.vision.taps import Taps, interpolate_axis, keys_kernel, triangle_kernel
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, Dim, DType, TensorSpec, format_shape

_COORDINATES: Final = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
)
_EXACT: Final = 2**24
"""Up to this, float32 represents every integer."""
_MOST_SCALED: Final = 2**14
"""Up to this size, symbolic sizes are scaled by a simple fraction instead of the float32 number."""
_MOST_DENOMINATOR: Final = 1000
_HALF_WAY: Final = 1e-6
"""Tolerance within which a position counts as half way between two elements, as in onnxruntime."""

ROUNDINGS: Final[dict[str, Callable[[Array], Array]]] = {
    "round_prefer_floor": lambda x: np.ceil(x.astype(np.float64) - 0.5 - _HALF_WAY),
    "round_prefer_ceil": lambda x: np.floor(x.astype(np.float64) + 0.5 + _HALF_WAY),
    "floor": np.floor,
    "ceil": np.ceil,
}
_SIMPLE: Final = "simple"
_MODES: Final = ("nearest", "linear", "cubic")
_OPERANDS: Final = ("input", "roi", "scales", "sizes")
_POLICIES: Final = ("stretch", "not_larger", "not_smaller")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """Resampled axis: old size, new size, scale, and the cropped region."""

    size: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Targets:
    """Regions, scales and sizes of the operands, each None if absent."""

    roi: tuple[float, ...] | None
    scales: tuple[float, ...] | None
    sizes: tuple[int, ...] | None


@register("Resize", positional=_OPERANDS)
class Resize(Layer):
    """Axes resampled to sizes, or by scales.

    Interpolation in the core has neither ONNX's coordinate modes nor regions, excluded borders and axes by choice.

    Shapes:
        input (*S), roi (2 * axes,), scales or sizes (axes,)  ->  (*T), T = floor(S * scale) in float32, or sizes
    Parameters:
        coordinate_transformation_mode: mapping from result to input coordinates.
        mode: nearest, linear or cubic (with cubic_coeff_a); antialias widens the kernel to the distance of elements.
        nearest_mode: round_prefer_floor, round_prefer_ceil, floor or ceil; simple, of files before operator set 11:
            ceil where an axis shrinks, else floor.
        exclude_outside: redistribute weights outside the input; else repeat the border.
        keep_aspect_ratio_policy: stretch, or one scale for all axes: not_larger, not_smaller than sizes.
        roi, scales, sizes: identified by dtype and length if the file does not name operands.
    Dtypes:
        floating and integer, with mode nearest any; integers are computed in float64, and the result is rounded, halves
        to even, and saturated.
    Source:
        The specification leaves open in which precision places are computed: float32 as in onnxruntime, float64 for
        float64 and integers between elements, as in ONNX's reference.
    """

    axes: tuple[int, ...] | None = None
    antialias: bool = False
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        known = {
            "coordinate_transformation_mode": _COORDINATES,
            "mode": _MODES,
            "nearest_mode": (*ROUNDINGS, _SIMPLE),
            "keep_aspect_ratio_policy": _POLICIES,
        }
        for name, options in known.items():
            if getattr(self, name) not in options:
                raise ParameterError(f"unknown {name}", found=getattr(self, name), expected=", ".join(options))

    def infer(self, input: TensorSpec, *others: Any) -> Any:
        spec = self._tensor(input)
        wanted = self._targets(spec.rank, *others)
        if wanted is None:
            return UNKNOWN
        shape: list[Dim] = list(spec.shape)
        for axis, (count, _) in self._counts(spec.shape, wanted).items():
            shape[axis] = count
        return TensorSpec(tuple(shape), spec.dtype)

    def forward(self, input: Array, roi: Any = None, scales: Any = None, sizes: Any = None) -> Array:
        wanted = self._targets(input.ndim, roi, scales, sizes)
        if wanted is None:
            raise ShapeError("neither scales nor sizes are there", found="UNKNOWN")
        axes = self._axes_of(input.shape, wanted)
        check_size([axes[axis].count if axis in axes else size for axis, size in enumerate(input.shape)], input.dtype)
        x = input if self.mode == "nearest" else input.astype(np.float64) if _is_whole(input.dtype) else widened(input)
        with np.errstate(all="ignore"):
            for axis, each in axes.items():
                x = self._resampled(x, axis, each)
            return _rounded(x, input.dtype) if x.dtype != input.dtype else np.ascontiguousarray(x)

    def _tensor(self, input: Any) -> TensorSpec:
        return tensor(input, "input", ANY if self.mode == "nearest" else REAL)

    def taps(self, shape: Sequence[int], dtype: DType, *operands: Any) -> dict[int, Taps]:
        """Return axis -> indices and weights of its elements, for resampled axes.

        Args:
            shape: of the input.
            dtype: compute dtype.
            operands: the other operands; no specs.

        Raises:
            ShapeError: the operands do not fit, or are known only at run time.
        """
        wanted = self._targets(len(shape), *operands)
        if wanted is None:
            raise ShapeError("neither scales nor sizes are there", found="UNKNOWN")
        if wanted.sizes is not None:  # the scale between two sizes is a number
            shape, wanted = specialise(tuple(shape)), replace(wanted, sizes=specialise(wanted.sizes))
        found = {}
        for axis, each in self._axes_of(shape, wanted).items():
            if not self._stays(each):
                position = self._positions(each, dtype)
                if self._outside(position, each).any():
                    raise ShapeError("a place lies outside the input", found=list(shape))
                found[axis] = self._taps(position, each)
        return found

    def changes(self, shape: Sequence[int], *operands: Any) -> dict[int, tuple[int, int, float | None]]:
        """Return axis -> size, new size and scale, for resampled axes.

        The scale is None where it is the ratio of the sizes. Sizes may be symbolic.

        Args:
            shape, operands: as ``taps`` takes them.

        Raises:
            ShapeError: the operands do not fit, or are known only at run time.
        """
        wanted = self._targets(len(shape), *operands)
        if wanted is None:
            raise ShapeError("neither scales nor sizes are there", found="UNKNOWN")
        found = {}
        for axis, (count, scale) in self._counts(tuple(shape), wanted).items():
            given = None if wanted.scales is None else scale
            if given not in (None, 1.0) or not is_same(shape[axis], count):
                found[axis] = shape[axis], count or 0, given
        return found

    def _resampled(self, x: Array, axis: int, each: _Axis) -> Array:
        if self._stays(each):
            return x
        position = self._positions(each, x.dtype)
        x = interpolate_axis(x, axis, self._taps(position, each))
        outside = self._outside(position, each)
        if outside.any():
            filler = np.asarray(self.extrapolation_value).astype(x.dtype)
            x = np.where(outside.reshape(-1, *(1,) * (x.ndim - 1 - axis)), filler, x)
        return x

    def _stays(self, each: _Axis) -> bool:
        """Return whether an axis stays unchanged."""
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        return each.size == each.count and each.scale == 1 and (not crops or (each.start, each.end) == (0, 1))

    def _outside(self, position: Array, each: _Axis) -> Array:
        """Return a mask of the new elements outside the cropped region, which get the extrapolation value."""
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        return ((position < 0) | (position > each.size - 1)) & crops

    def _positions(self, axis: _Axis, dtype: DType) -> Array:
        """Return the position of each new element on the old axis, as onnxruntime computes it."""
        number: Any = np.float64 if dtype == np.float64 and self.mode != "nearest" else np.float32
        index, mode = np.arange(axis.count, dtype=number), self.coordinate_transformation_mode
        last, scale, half = number(axis.size - 1), number(axis.scale), number(0.5)
        if axis.count == 1 and mode in ("align_corners", "pytorch_half_pixel"):
            return np.zeros(1, number)
        if mode == "align_corners":
            return np.asarray(index * last / number(axis.count - 1))
        if mode == "asymmetric":
            return np.asarray(index / scale)
        if mode == "tf_half_pixel_for_nn":
            return np.asarray((index + half) / scale)
        if mode == "tf_crop_and_resize":
            start, end = number(axis.start), number(axis.end)
            if axis.count == 1:
                return np.full(1, half * (start + end) * last)
            return np.asarray(start * last + index * (end - start) * last / number(axis.count - 1))
        places = np.asarray((index + half) / scale - half)
        if mode == "half_pixel_symmetric":
            places += number(axis.size) / 2 * (1 - number(axis.count) / (scale * number(axis.size)))
        return places

    def _taps(self, position: Array, axis: _Axis) -> Taps:
        if self.mode == "nearest":
            is_simple, shrunk = self.nearest_mode == _SIMPLE, "ceil" if axis.scale < 1 else "floor"
            nearest = ROUNDINGS[shrunk if is_simple else self.nearest_mode](position)
            return Taps(indices=np.clip(nearest, 0, axis.size - 1).astype(np.int64)[None])
        stretch = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = (1 if self.mode == "linear" else 2) / stretch
        first = math.floor(-reach) + 1
        if self.mode == "linear" and not (self.antialias or self.exclude_outside):
            position = position.clip(0, axis.size - 1)  # exactly the border, not a weighted sum of it
        lower = np.floor(position)
        taps = np.arange(first, 2 - first, dtype=position.dtype)[:, None]
        distance = (taps - (position - lower)) * stretch
        weights = triangle_kernel(distance) if self.mode == "linear" else keys_kernel(distance, self.cubic_coeff_a)
        places = lower + taps
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= axis.size), 0, weights)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=0)
            weights = weights / np.where(total == 0, 1, total)
        indices = np.clip(places, 0, axis.size - 1).astype(np.int64)
        return Taps(indices=indices, weights=weights.astype(position.dtype, copy=False))

    def _axes_of(self, shape: Sequence[int], wanted: _Targets) -> dict[int, _Axis]:
        counts = self._counts(tuple(shape), wanted)
        regions = wanted.roi
        found = {}
        for place, (axis, (count, scale)) in enumerate(counts.items()):
            start, end = (0.0, 1.0) if not regions else (regions[place], regions[place + len(counts)])
            found[axis] = _Axis(size=shape[axis], count=count or 0, scale=scale, start=start, end=end)
        return found

    def _counts(self, shape: tuple[Dim, ...], wanted: _Targets) -> dict[int, tuple[Dim, float]]:
        """Return axis -> (new size, scale)."""
        axes = self._named(len(shape))
        old = [shape[axis] for axis in axes]
        if 0 in old:
            raise ShapeError("nothing to resample", found=format_shape(shape), expected="no empty axis")
        if wanted.scales is not None:
            new = [(_scaled(size, scale), scale) for size, scale in zip(old, wanted.scales, strict=True)]
        else:
            new = self._by_sizes(old, wanted.sizes or ())
        if any(count is not None and count < 1 for count, _ in new):
            found = format_shape([count for count, _ in new])
            raise ShapeError("cannot resample to this size", found=found, expected="positive sizes")
        return dict(zip(axes, new, strict=True))

    def _by_sizes(self, old: Sequence[Dim], sizes: Sequence[int]) -> list[tuple[Dim, float]]:
        known = [size for size in old if size]
        if len(known) != len(old) or (self.keep_aspect_ratio_policy == "stretch" and has_sizes((*old, *sizes))):
            return [(size if self.keep_aspect_ratio_policy == "stretch" else None, 1.0) for size in sizes]
        ratios = [size / length for size, length in zip(sizes, known, strict=True)]
        if self.keep_aspect_ratio_policy == "stretch":
            return list(zip(sizes, ratios, strict=True))
        scale = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        return [(math.floor(np.float32(length) * np.float32(scale) + np.float32(0.5)), scale) for length in known]

    def _named(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else checked_axes(self.axes, rank)

    def _targets(self, rank: int, roi: Any = None, scales: Any = None, sizes: Any = None) -> _Targets | None:
        """Return regions, scales and sizes; None if they are known only at run time."""
        count = len(self._named(rank))
        given = [None if _is_empty(each) else _as_known(each) for each in (roi, scales, sizes)]
        roi, scales, sizes = given if self.annotations.are_named else _by_spec(count, given)
        if isinstance(scales, TensorSpec) or isinstance(sizes, TensorSpec) or isinstance(roi, TensorSpec):
            return None
        factors = _numbers(scales) or None
        lengths = None if sizes is None else whole_numbers(sizes, "sizes") or None
        if lengths is not None:
            factors = None
        self._check(count, factors, lengths, _numbers(roi))
        return _Targets(roi=_numbers(roi) or None, scales=factors, sizes=lengths)

    def _check(
        self, count: int, scales: tuple[float, ...] | None, sizes: tuple[int, ...] | None, roi: tuple[float, ...]
    ) -> None:
        if scales is None and sizes is None:
            raise ShapeError("neither scales nor sizes are given", found="neither", expected="one of them")
        if scales is not None and (len(scales) != count or not all(0 < each < math.inf for each in scales)):
            raise ShapeError("scales do not fit", found=list(scales), expected=f"{count} positive numbers")
        if sizes is not None and (len(sizes) != count or any(size < 1 for size in sizes)):
            raise ShapeError("sizes do not fit", found=list(sizes), expected=f"{count} positive numbers")
        if roi and self.coordinate_transformation_mode == "tf_crop_and_resize" and len(roi) != 2 * count:
            raise ShapeError("roi does not fit", found=list(roi), expected=f"{2 * count} numbers")


def _scaled(size: Dim, scale: float) -> Dim:
    """Return floor(size * scale) as onnxruntime computes it, in float32.

    Raises:
        ShapeError: the size is too large.
    """
    if scale == 1:
        return size
    if size is not None and is_symbolic(size) and math.isfinite(scale):
        factor = Fraction(float(np.float32(scale)))
        if factor.denominator <= _MOST_DENOMINATOR and size * factor.numerator <= _EXACT:
            return size * factor.numerator // factor.denominator
        simple = _simple(float(np.float32(scale)))
        if simple is not None and size <= _MOST_SCALED:
            return size * simple.numerator // simple.denominator
        size = specialise(size)
    with np.errstate(all="ignore"):
        product = float(np.float32(size or 0) * np.float32(scale))
    if not math.isfinite(product):
        raise ShapeError("cannot resample to this size", found=f"{size} times {scale}")
    return None if size is None else math.floor(product)


@lru_cache(maxsize=256)
def _simple(scale: float) -> Fraction | None:
    """Return a simple fraction that gives the same sizes as a float32 scale, up to a limit; None if there is none."""
    simple = Fraction(scale).limit_denominator(_MOST_DENOMINATOR)
    sizes = np.arange(_MOST_SCALED + 1)
    with np.errstate(all="ignore"):
        found = np.floor(sizes.astype(np.float32) * np.float32(scale))
    return simple if np.array_equal(found, sizes * simple.numerator // simple.denominator) else None


def _is_whole(dtype: DType) -> bool:
    return dtype.kind in "iu"


def _rounded(x: Array, dtype: DType) -> Array:
    """Convert numbers to a dtype; integers are rounded and saturated."""
    if not _is_whole(dtype):
        return cast(np.ascontiguousarray(x), dtype)
    least, greatest = extremes(dtype)
    wide = np.rint(x)
    return np.where(wide >= float(greatest), dtype.type(greatest), np.maximum(wide, float(least)).astype(dtype))


def _is_empty(value: object) -> bool:
    """Return whether an operand has no elements, which means it is omitted."""
    return isinstance(value, (np.ndarray, TensorSpec)) and value.shape == (0,)


def _by_spec(count: int, given: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Identify regions, scales and sizes of unnamed operands by dtype and length; parameters have names."""
    names = ("roi", "scales", "sizes")
    found = {name: each for name, each in zip(names, given, strict=True) if isinstance(each, (tuple, list))}
    operands = [each for name, each in zip(names, given, strict=True) if name not in found and each is not None]
    for each in operands:
        shape = each.shape if isinstance(each, (np.ndarray, TensorSpec)) else (1,)
        if isinstance(each, int) or getattr(getattr(each, "dtype", None), "kind", "") in "iu":
            found["sizes"] = each
        elif shape == (2 * count,) and not found and len(operands) > 1:
            found["roi"] = each
        else:
            found["scales"] = each
    return found.get("roi"), found.get("scales"), found.get("sizes")


def _as_known(value: object) -> Any:
    """Return the elements of a tensor if they are known; else the value itself."""
    return value.value if isinstance(value, TensorSpec) and value.value is not None else value


def _numbers(value: Any) -> tuple[float, ...]:
    if value is None:
        return ()
    array = np.atleast_1d(np.asarray(value))
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ShapeError("not a list of numbers", found=format_shape(array.shape))
    return tuple(float(each) for each in array)
