"""Regions of interest, resampled or pooled to a fixed size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_equal
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, Operand, check_rank, spread, tensor
from engine.layers.vision.grid import check_same_dtype
from engine.promotion import cast
from engine.tensor import Array, TensorSpec, format_shape

MOST_SAMPLES = 256
"""Most samples on an axis of a bin; each is a numpy expression."""
_ARGUMENTS = ("input", "rois", "spatial_scale", "output_height", "output_width", "sampling_ratio", "aligned")


@register(
    "pnnx.custom_op.torchvision.roi_align",
    positional=_ARGUMENTS,
    renamed={f"arg_{place}": name for place, name in enumerate(_ARGUMENTS)},
)
class RoIAlign(Layer):
    """Each region divided into bins, each bin the mean of bilinear samples on a regular grid inside it.

    Shapes:
        input (N, C, H, W), rois (R, 5) of (batch, x1, y1, x2, y2)  ->  (R, C, *output_size)
    Dtypes:
        floating, both the same.
    Parameters:
        output_size: height and width, or one for both; output_height and output_width in the custom operator.
        spatial_scale: from the rois' coordinates to the input's.
        sampling_ratio: samples a bin and axis; when not positive, ceil(roi size / output size) of each region.
        aligned: shift by half an element, so that coordinates refer to elements' centres.
        mode: avg, the mean of the samples, or max, the largest of all their weighted neighbours (ONNX).
    Raises:
        ShapeError: when ROIs are not rows of 5, or an image index is out of range.
    Source:
        torchvision.ops.roi_align; torchvision/csrc/ops/cpu/roi_align_kernel.cpp.
    """

    loops = True

    output_size: tuple[int, ...] = ()
    output_height: int = 0
    output_width: int = 0
    spatial_scale: float = 1.0
    sampling_ratio: int = -1
    aligned: bool = False
    mode: Literal["avg", "max"] = "avg"

    def __post_init__(self) -> None:
        _ = self.sizes
        if self.sampling_ratio > MOST_SAMPLES:
            raise ParameterError(
                "sampling_ratio is too large", found=self.sampling_ratio, expected=f"at most {MOST_SAMPLES}"
            )
        if not math.isfinite(self.spatial_scale):
            raise ParameterError("spatial_scale is not finite", found=self.spatial_scale)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of bins of a region: rows and columns."""
        rows, cols = spread(self.output_size or (self.output_height, self.output_width), 2, "output_size")
        return rows, cols

    def infer(self, input: Operand, rois: Operand) -> TensorSpec:
        spec, regions = tensor(input, "input", FLOATING), tensor(rois, "rois", FLOATING)
        check_rank(spec, 4)
        check_same_dtype(spec, regions, "rois")
        _check_rows(regions)
        if 0 in spec.shape[1:]:
            raise ShapeError("input is empty", found=format_shape(spec.shape))
        return TensorSpec((regions.shape[0], spec.shape[1], *self.sizes), spec.dtype)

    def forward(self, input: Array, rois: Array) -> Array:
        shape: Any = self.infer(input, rois).shape
        image, regions = widened(input), widened(rois)
        result = np.zeros(shape, image.dtype)
        with np.errstate(all="ignore"):
            images = _batch_indices(regions, len(image))
            starts, bins = self._bins(regions)
            samples = self._samples(bins)
            for count in cancellable(
                np.unique(samples, axis=0)
            ):  # regions with the same number of samples are processed together
                some = np.flatnonzero((samples == count).all(axis=1))
                result[some] = self._pooled(image, images[some], starts[some], bins[some], count)
        return cast(result, input.dtype)

    def _bins(self, rois: Array) -> tuple[Array, Array]:
        """Return the start of each region and the size of its bins, (R, 2) of (y, x) each."""
        scale, offset = rois.dtype.type(self.spatial_scale), rois.dtype.type(0.5 if self.aligned else 0)
        starts = rois[:, [2, 1]] * scale - offset
        extents = rois[:, [4, 3]] * scale - offset - starts
        if not self.aligned:
            extents = np.maximum(extents, 1)
        return starts, extents / np.array(self.sizes, rois.dtype)

    def _samples(self, bins: Array) -> Array:
        """Return the number of samples in a bin on each axis, (R, 2)."""
        if self.sampling_ratio > 0:
            return np.full(bins.shape, self.sampling_ratio)
        samples = np.maximum(np.ceil(bins), 0)
        if not (samples.prod(axis=-1) <= MOST_SAMPLES**2).all():  # also refuses regions that are not finite
            found = f"up to {samples.max(initial=0):g} on an axis"
            raise ShapeError("a roi needs too many samples", found=found, expected=f"at most {MOST_SAMPLES**2:,} a bin")
        return samples.astype(np.int64)

    def _pooled(self, image: Array, images: Array, starts: Array, bins: Array, samples: Array) -> Array:
        """Return the bins (R, C, *sizes) of regions with the same number of samples."""
        join = np.add if self.mode == "avg" else np.maximum
        total: Array | None = None
        for down, right in cancellable(np.ndindex(*samples)):
            rows = _positions(starts[:, 0], bins[:, 0], self.sizes[0], (down + 0.5) / samples[0])
            cols = _positions(starts[:, 1], bins[:, 1], self.sizes[1], (right + 0.5) / samples[1])
            sample = _sampled(image, images, rows, cols, join)
            total = sample if total is None else join(total, sample)
        if total is None:
            return np.zeros((len(images), image.shape[1], *self.sizes), image.dtype)
        return total / total.dtype.type(samples.prod()) if self.mode == "avg" else total

    def flops(self, output: TensorSpec, *operands: object) -> int:
        """Return the operations of four multiplications and additions for each sample of each bin."""
        return 8 * max(self.sampling_ratio, 1) ** 2 * (output.size or 0)


def _check_rows(rois: TensorSpec) -> None:
    if rois.rank != 2 or not may_equal(rois.shape[1], 5):
        raise ShapeError("ROIs are not rows of 5", found=format_shape(rois.shape), expected="[?, 5]")


def _batch_indices(rois: Array, n: int) -> Array:
    images = rois[:, 0].astype(np.int64)
    if len(images) and not 0 <= images.min() <= images.max() < n:
        found = f"images {images.min()} to {images.max()}"
        raise ShapeError("the image index of a roi is out of range", found=found, expected=f"0 to {n - 1}")
    return images


def _positions(start: Array, bin_size: Array, bins: int, fraction: float) -> Array:
    """Return the positions (R, bins) at a fraction of every bin of an axis."""
    steps = np.arange(bins, dtype=start.dtype) + start.dtype.type(fraction)
    positions: Array = start[:, None] + steps * bin_size[:, None]
    return positions


def _sampled(image: Array, images: Array, rows: Array, cols: Array, join: Callable[[Array, Array], Array]) -> Array:
    """Return the values (R, C, PH, PW) at the crossings of rows (R, PH) and columns (R, PW) of some images.

    Args:
        join: joins the weighted elements around a crossing.
    """
    (top, bottom, down, has_row), (left, right, along, has_col) = (
        _neighbours(positions, size) for positions, size in zip((rows, cols), image.shape[2:], strict=True)
    )
    down, along = down[:, :, None, None], along[:, None, :, None]

    def corner(row: Array, col: Array) -> Array:
        picked: Array = image[images[:, None, None], :, row[:, :, None], col[:, None, :]]  # (R, PH, PW, C)
        return picked

    upper = join(corner(top, left) * (1 - along), corner(top, right) * along)
    lower = join(corner(bottom, left) * (1 - along), corner(bottom, right) * along)
    counts = (has_row[:, :, None] & has_col[:, None, :])[..., None]
    return np.moveaxis(np.where(counts, join(upper * (1 - down), lower * down), 0), -1, 1)


def _neighbours(position: Array, size: int) -> tuple[Array, Array, Array, Array]:
    """Return the elements before and after, the fraction, and whether the position counts: up to one outside."""
    counts = (position >= -1) & (position <= size)
    inside = np.clip(np.where(counts, position, 0), 0, size - 1)
    before = inside.astype(np.int64)
    return before, np.minimum(before + 1, size - 1), inside - before.astype(inside.dtype), counts


@register("torchvision.ops.RoIPool")
class RoIPool(Layer):
    """Largest element of each bin of each region; the bins' borders are rounded, empty bins are zero.

    Shapes:
        input (N, C, H, W), rois (R, 5) of (batch, x1, y1, x2, y2)  ->  (R, C, *output_size)
    Dtypes:
        floating.
    Parameters:
        output_size: height and width, or one for both.
        spatial_scale: from the rois' coordinates to the input's.
    Raises:
        ShapeError: when ROIs are not rows of 5, or an image index is out of range.
    Source:
        torchvision.ops.roi_pool; torchvision/csrc/ops/cpu/roi_pool_kernel.cpp.
    """

    loops = True

    output_size: tuple[int, ...]
    spatial_scale: float = 1.0

    def __post_init__(self) -> None:
        if min(self.sizes) < 1:
            raise ParameterError("output_size does not fit", found=list(self.sizes), expected="positive sizes")

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of bins of a region: rows and columns."""
        rows, cols = spread(self.output_size, 2, "output_size")
        return rows, cols

    def infer(self, input: Operand, rois: Operand) -> TensorSpec:
        spec, regions = tensor(input, "input", FLOATING), tensor(rois, "rois")
        check_rank(spec, 4)
        _check_rows(regions)
        return TensorSpec((regions.shape[0], spec.shape[1], *self.sizes), spec.dtype)

    def forward(self, input: Array, rois: Array) -> Array:
        spec = self.infer(input, rois)
        result = np.zeros(spec.sizes, input.dtype)
        with np.errstate(invalid="ignore"):
            images = _batch_indices(rois, len(input))
        for region, image, (_, left, top, right, bottom) in cancellable(zip(result, images, rois, strict=True)):
            rows = self._borders(top, bottom, self.sizes[0], input.shape[2])
            columns = self._borders(left, right, self.sizes[1], input.shape[3])
            _fill(region, input[image], rows, columns)
        return result

    def _borders(self, start: float, end: float, bins: int, size: int) -> list[tuple[int, int]]:
        scale = np.float32(self.spatial_scale)
        first, last = (_rounded(float(np.nan_to_num(np.float32(each) * scale))) for each in (start, end))
        width = np.float32(max(last - first + 1, 1)) / np.float32(bins)
        index = np.arange(bins, dtype=np.float32)
        lows = np.clip(np.floor(index * width) + first, 0, size).astype(np.int64)
        highs = np.clip(np.ceil((index + 1) * width) + first, 0, size).astype(np.int64)
        return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _rounded(place: float) -> int:
    """Return the nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(place) + 0.5), place))


def _fill(region: Array, image: Array, rows: list[tuple[int, int]], columns: list[tuple[int, int]]) -> None:
    """Fill the bins of one region, (C, PH, PW), row by row."""
    bounds = np.array(columns)
    is_empty = bounds[:, 1] <= bounds[:, 0]
    for i, (top, bottom) in enumerate(cancellable(rows)):
        if bottom > top:
            # One extra column, because the end of the last bin is the start of the next.
            line = np.pad(image[:, top:bottom].max(axis=1), ((0, 0), (0, 1)))
            region[:, i] = np.where(is_empty, 0, np.maximum.reduceat(line, bounds.reshape(-1), axis=1)[:, ::2])
