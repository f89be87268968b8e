"""Images, and tensors of any rank, made larger or smaller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.constants import whole_numbers
from engine.layers.operands.axes import checked_axes
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import REAL, tensor
from engine.layers.vision.taps import Taps, interpolate_axis, keys_kernel, triangle_kernel
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, Dim, TensorSpec, format_shape

_COORDINATES: Final = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
)
_ROUNDINGS: Final[dict[str, Callable[[Array], Array]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
_MODES: Final = ("nearest", "linear", "cubic")
_POLICIES: Final = ("stretch", "not_larger", "not_smaller")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One axis that is resampled: from a size to a size, by a scale; the region of it that counts."""

    size: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the operands after the first ask for, each None where it is absent."""

    roi: tuple[float, ...] | None
    scales: tuple[float, ...] | None
    sizes: tuple[int, ...] | None


@register("Resize", positional=("input", "first", "second", "third"))
class Resize(Layer):
    """The axes resampled to sizes, or by scales.

    Shapes:
        input (*S), roi (2 * axes,), scales or sizes (axes,)  ->  (*T), T = floor(S * scale) or sizes
    Parameters:
        coordinate_transformation_mode: where an element of the result lies on the input.
        mode: nearest, linear or cubic (with cubic_coeff_a); antialias makes the kernel as wide as elements are apart.
        nearest_mode: round_prefer_floor, round_prefer_ceil, floor or ceil.
        exclude_outside: weights outside the input are shared out; else the border is repeated.
        keep_aspect_ratio_policy: stretch, or one scale for all axes: not_larger, not_smaller than sizes.
        roi, scales, sizes: told apart by dtype and length where they are operands: first, second, third of those given.
    Dtypes:
        floating and integer; the result is cut to integers.
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

    def __post_init__(self) -> None:
        known = {
            "coordinate_transformation_mode": _COORDINATES,
            "mode": _MODES,
            "nearest_mode": tuple(_ROUNDINGS),
            "keep_aspect_ratio_policy": _POLICIES,
        }
        for name, options in known.items():
            if getattr(self, name) not in options:
                raise ParameterError(f"unknown {name}", found=getattr(self, name), expected=", ".join(options))

    def infer(self, input: TensorSpec, *others: Any) -> Any:
        spec = tensor(input, "input", REAL)
        wanted = self._wanted(spec.rank, others[:3], *others[3:])
        if wanted is None:
            return UNKNOWN
        shape: list[Dim] = list(spec.shape)
        for axis, (count, _) in self._counts(spec.shape, wanted).items():
            shape[axis] = count
        return TensorSpec(tuple(shape), spec.dtype)

    def forward(
        self,
        input: Array,
        first: Any = None,
        second: Any = None,
        third: Any = None,
        roi: Any = None,
        scales: Any = None,
        sizes: Any = None,
    ) -> Array:
        tensor(input, "input", REAL)
        wanted = self._wanted(input.ndim, (first, second, third), roi, scales, sizes)
        if wanted is None:
            raise ShapeError("neither scales nor sizes are there", found="UNKNOWN")
        axes = self._axes_of(input.shape, wanted)
        check_size([axes[axis].count if axis in axes else size for axis, size in enumerate(input.shape)], input.dtype)
        x = widened(input)
        with np.errstate(all="ignore"):
            for axis, each in axes.items():
                x = self._resampled(x, axis, each)
        return cast(np.ascontiguousarray(x), input.dtype)

    def taps(self, shape: Sequence[int], *operands: Any) -> dict[int, Taps]:
        """axis -> what its elements are made of, for those that are resampled.

        Args:
            shape: of the input.
            operands: the others; none of them is a spec.

        Raises:
            ShapeError: what is asked for does not fit, or is for a run to tell.
        """
        wanted = self._wanted(len(shape), operands[:3], *operands[3:])
        if wanted is None:
            raise ShapeError("neither scales nor sizes are there", found="UNKNOWN")
        found = {}
        for axis, each in self._axes_of(shape, wanted).items():
            if not self._stays(each):
                position = self._positions(each)
                if self._outside(position, each).any():
                    raise ShapeError("a place lies outside the input", found=list(shape))
                found[axis] = self._taps(position, each)
        return found

    def _resampled(self, x: Array, axis: int, each: _Axis) -> Array:
        if self._stays(each):
            return x
        position = self._positions(each)
        x = interpolate_axis(x, axis, self._taps(position, each))
        outside = self._outside(position, each)
        if outside.any():
            x = np.where(outside.reshape(-1, *(1,) * (x.ndim - 1 - axis)), x.dtype.type(self.extrapolation_value), x)
        return x

    def _stays(self, each: _Axis) -> bool:
        """Whether an axis is left alone."""
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        return each.size == each.count and each.scale == 1 and (not crops or (each.start, each.end) == (0, 1))

    def _outside(self, position: Array, each: _Axis) -> Array:
        """Which new elements have a number of their own, as they lie outside what is cropped."""
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        return ((position < 0) | (position > each.size - 1)) & crops

    def _positions(self, axis: _Axis) -> Array:
        """Where each new element lies on the old axis."""
        index, mode = np.arange(axis.count, dtype=np.float64), self.coordinate_transformation_mode
        last, single = axis.size - 1, axis.count == 1
        if mode == "align_corners":
            return index * (0.0 if single else last / (axis.count - 1))
        if mode == "asymmetric":
            return index / axis.scale
        if mode == "tf_half_pixel_for_nn":
            return (index + 0.5) / axis.scale
        if mode == "tf_crop_and_resize":
            if single:
                return np.full(1, 0.5 * (axis.start + axis.end) * last)
            return axis.start * last + index * ((axis.end - axis.start) * last / (axis.count - 1))
        if mode == "pytorch_half_pixel" and single:
            return np.zeros(1)
        half = (index + 0.5) / axis.scale - 0.5
        if mode == "half_pixel_symmetric":
            half += axis.size / 2 * (1 - axis.count / (axis.scale * axis.size))
        return half

    def _taps(self, position: Array, axis: _Axis) -> Taps:
        if self.mode == "nearest":
            nearest = _ROUNDINGS[self.nearest_mode](position)
            return Taps(indices=np.clip(nearest, 0, axis.size - 1).astype(np.int64)[None])
        stretch = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = (1 if self.mode == "linear" else 2) / stretch
        first = math.floor(-reach) + 1
        lower = np.floor(position)
        taps = np.arange(first, 2 - first)[:, None]
        distance = (taps - (position - lower)) * stretch
        weights = triangle_kernel(distance) if self.mode == "linear" else keys_kernel(distance, self.cubic_coeff_a)
        places = lower + taps
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= axis.size), 0, weights)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=0)
            weights = weights / np.where(total == 0, 1, total)
        indices = np.clip(places, 0, axis.size - 1).astype(np.int64)
        return Taps(indices=indices, weights=weights.astype(np.float32))

    def _axes_of(self, shape: Sequence[int], wanted: _Wanted) -> dict[int, _Axis]:
        counts = self._counts(tuple(shape), wanted)
        regions = wanted.roi
        found = {}
        for place, (axis, (count, scale)) in enumerate(counts.items()):
            start, end = (0.0, 1.0) if not regions else (regions[place], regions[place + len(counts)])
            found[axis] = _Axis(size=shape[axis], count=count or 0, scale=scale, start=start, end=end)
        return found

    def _counts(self, shape: tuple[Dim, ...], wanted: _Wanted) -> dict[int, tuple[Dim, float]]:
        """axis -> (its new size, its scale)."""
        axes = self._named(len(shape))
        old = [shape[axis] for axis in axes]
        if 0 in old:
            raise ShapeError("nothing to resample", found=format_shape(shape), expected="no empty axis")
        if wanted.scales is not None:
            if not all(map(math.isfinite, wanted.scales)):
                raise ShapeError("a scale is no number", found=list(wanted.scales))
            rows = zip(old, wanted.scales, strict=True)
            new = [(None if size is None else math.floor(size * scale), scale) for size, scale in rows]
        else:
            new = self._by_sizes(old, wanted.sizes or ())
        if any(count is not None and count < 1 for count, _ in new):
            found = format_shape([count for count, _ in new])
            raise ShapeError("cannot resample to this size", found=found, expected="positive sizes")
        return dict(zip(axes, new, strict=True))

    def _by_sizes(self, old: Sequence[Dim], sizes: Sequence[int]) -> list[tuple[Dim, float]]:
        known = [size for size in old if size]
        if len(known) != len(old):
            return [(size if self.keep_aspect_ratio_policy == "stretch" else None, 1.0) for size in sizes]
        ratios = [size / length for size, length in zip(sizes, known, strict=True)]
        if self.keep_aspect_ratio_policy == "stretch":
            return list(zip(sizes, ratios, strict=True))
        scale = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        return [(math.floor(length * scale + 0.5), scale) for length in known]

    def _named(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else checked_axes(self.axes, rank)

    def _wanted(self, rank: int, operands: Sequence[Any], roi: Any, scales: Any, sizes: Any) -> _Wanted | None:
        """What is asked for; None where only a run can tell it."""
        count = len(self._named(rank))
        given = [_as_known(each) for each in operands if each is not None]
        roi, scales, sizes = map(_as_known, (roi, scales, sizes))
        for each in given:
            shape = each.shape if isinstance(each, (np.ndarray, TensorSpec)) else (1,)
            if shape == (0,):
                continue
            if isinstance(each, int) or getattr(getattr(each, "dtype", None), "kind", "") in "iu":
                sizes = each
            elif shape == (2 * count,) and (roi is None and (scales is None)) and len(given) > 1:
                roi = each
            else:
                scales = each
        if isinstance(scales, TensorSpec) or isinstance(sizes, TensorSpec) or isinstance(roi, TensorSpec):
            return None
        factors = _numbers(scales) or None
        lengths = None if sizes is None else whole_numbers(sizes, "sizes") or None
        if lengths is not None:
            factors = None
        self._check(count, factors, lengths, _numbers(roi))
        return _Wanted(roi=_numbers(roi) or None, scales=factors, sizes=lengths)

    def _check(
        self, count: int, scales: tuple[float, ...] | None, sizes: tuple[int, ...] | None, roi: tuple[float, ...]
    ) -> None:
        if scales is None and sizes is None:
            raise ShapeError("neither scales nor sizes are given", found="neither", expected="one of them")
        if scales is not None and (len(scales) != count or not all(0 < each < math.inf for each in scales)):
            raise ShapeError("scales do not fit", found=list(scales), expected=f"{count} positive numbers")
        if sizes is not None and (len(sizes) != count or min(sizes) < 1):
            raise ShapeError("sizes do not fit", found=list(sizes), expected=f"{count} positive numbers")
        if roi and self.coordinate_transformation_mode == "tf_crop_and_resize" and len(roi) != 2 * count:
            raise ShapeError("roi does not fit", found=list(roi), expected=f"{2 * count} numbers")


def _as_known(value: object) -> Any:
    """The elements of a tensor, where they are known; else the value itself."""
    return value.value if isinstance(value, TensorSpec) and value.value is not None else value


def _numbers(value: Any) -> tuple[float, ...]:
    if value is None:
        return ()
    array = np.atleast_1d(np.asarray(value))
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ShapeError("not a list of numbers", found=format_shape(array.shape))
    return tuple(float(each) for each in array)


@register("Upsample", positional=("input", "first", "second", "third"))
class Upsample(Resize):
    """As Resize by scales, the first elements on one another; what Resize was before it had this name."""

    coordinate_transformation_mode: str = "asymmetric"
    nearest_mode: str = "floor"
