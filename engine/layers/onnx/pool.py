"""Pooling with windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.window import Window, check_padded, check_taps, counts
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.adapter import Adapter, check_fits, present, selected
from engine.layers.onnx.padding import Pair, check_auto_pad, pairs_of, per_axis, same_pairs
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import FLOATING, REAL, Operand, tensor
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool
from engine.layers.pooling.max_pool import INDEX, MaxPool, in_whole, maxima, maxima_with_indices
from engine.layers.pooling.pool import AvgPool, sums
from engine.layers.reduction.extremum import AMax
from engine.layers.reduction.reduction import Mean, Reduction
from engine.limits import check_size
from engine.promotion import cast
from engine.stopping import wanted
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape


class _Windows(Adapter):
    """Base of pools.

    Parameters:
        auto_pad: NOTSET (pads counts), VALID (none), SAME_UPPER or SAME_LOWER (ceil(size / stride) windows).
        pads: all starts, then all ends.
        ceil_mode: let a last window hang over the end, if it starts on the input or on the padding before it.
    """

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_auto_pad(self.auto_pad)
        for window, (before, after) in zip(self._windows(), self._given(), strict=True):
            if max(before, after) >= window.extent:
                raise ParameterError(
                    "more padding than a window", found=list(self.pads), expected=f"window {list(self.kernel_shape)}"
                )

    def _windows(self) -> list[Window]:
        rank = len(self.kernel_shape)
        strides = per_axis(self.strides, rank, "strides")
        dilations = per_axis(self.dilations, rank, "dilations")
        if min(self.kernel_shape, default=0) < 1:
            raise ParameterError("kernel_shape does not fit", found=list(self.kernel_shape), expected="positive sizes")
        rows = zip(self.kernel_shape, strides, dilations, strict=True)
        ceil = self.ceil_mode and self.auto_pad == "NOTSET"
        return [Window(kernel=k, stride=s, dilation=d, ceil_mode=ceil) for k, s, d in rows]

    def _given(self) -> list[Pair]:
        rank = len(self.kernel_shape)
        return pairs_of(self.pads, rank) if self.auto_pad == "NOTSET" else [(0, 0)] * rank

    def windows_on(self, sizes: Sequence[Dim]) -> tuple[Window, ...]:
        """The window on each spatial axis, which may be open."""
        windows, pairs = self._windows(), self._given()
        if self.auto_pad.startswith("SAME"):
            strides = [window.stride for window in windows]
            pairs = same_pairs(sizes, [window.extent for window in windows], strides, self.auto_pad == "SAME_UPPER")
        rows = zip(windows, pairs, strict=True)
        return tuple(replace(window, before=before, after=after) for window, (before, after) in rows)

    def pooled(self, input: Operand) -> tuple[TensorSpec, tuple[Window, ...]]:
        """The spec of an input after pooling, and the windows."""
        spec, rank = tensor(input, "input", REAL), len(self.kernel_shape)
        check_fits(spec.rank == rank + 2, "input", spec.shape, f"{rank + 2} axes")
        windows = self.windows_on(spec.shape[2:])
        check_taps(windows)
        result = TensorSpec((*spec.shape[:2], *counts(windows, spec.shape[2:])), spec.dtype)
        check_padded(spec, windows, result)
        return result, windows

    def _symmetric(self) -> tuple[int, ...] | None:
        """The padding as PyTorch has it; None where it cannot say it."""
        pairs = self._given()
        fits = not self.auto_pad.startswith("SAME") and all(before == after for before, after in pairs)
        small = all(2 * before <= size for (before, _), size in zip(pairs, self.kernel_shape, strict=True))
        return tuple(before for before, _ in pairs) if fits and small else None

    def _common(self) -> dict[str, Any]:
        rank = len(self.kernel_shape)
        stride = per_axis(self.strides, rank, "strides")
        ceil = self.ceil_mode and self.auto_pad == "NOTSET"
        return {"spatial_rank": rank, "kernel_size": self.kernel_shape, "stride": stride, "ceil_mode": ceil}

    def flops(self, output: Any, *operands: object) -> int:
        """One for each tap of each window."""
        spec = output[0] if isinstance(output, tuple) else output
        return (spec.size or 0) * math.prod(self.kernel_shape)


@register("MaxPool")
class OnnxMaxPool(_Windows):
    """The largest element of each window, and its place in the whole flattened input.

    Shapes:
        input (N, C, *S)  ->  (N, C, *T), values and places alike
    Parameters:
        storage_order: 1 counts places with the spatial axes in reverse.
    """

    means = (MaxPool,)

    storage_order: int = 0

    def settled(self) -> Layer:
        outputs, padding = self.annotations.outputs, self._symmetric()
        is_values = len(outputs) == 1 and outputs[0] is not None and outputs[0].dtype != INDEX
        if not is_values or padding is None:
            return self
        dilation = per_axis(self.dilations, len(self.kernel_shape), "dilations")
        return MaxPool(**self._common(), padding=padding, dilation=dilation)

    def infer(self, input: Operand) -> Any:
        spec, _ = self.pooled(input)
        results = (spec, TensorSpec(spec.shape, INDEX))
        return selected(results, present(results, self.annotations))

    def forward(self, input: Array) -> Any:
        spec, windows = self.pooled(input)
        chosen = present((spec, TensorSpec(spec.shape, INDEX)), self.annotations)
        x = cast(input, working_dtype(input.dtype))
        if chosen == (0,):
            return cast(maxima(x, windows), input.dtype)
        values, places = maxima_with_indices(x, windows)
        return selected((cast(values, input.dtype), self._whole(places, input.shape)), chosen)

    def _whole(self, places: Array, shape: Sequence[int]) -> Array:
        """Places in the spatial axes as places in the whole tensor."""
        sizes = shape[2:]
        if self.storage_order:
            coordinates = np.unravel_index(places, sizes)
            places = np.ravel_multi_index(coordinates[::-1], sizes[::-1])
        return in_whole(places, shape, len(sizes))


class _PlacedAvgPool(AvgPool):
    """The mean of windows that are placed already."""

    placed: Any = ()

    @property
    def windows(self) -> tuple[Window, ...]:
        """The window on each spatial axis."""
        windows: tuple[Window, ...] = self.placed
        return windows

    def __post_init__(self) -> None:
        pass


@register("AveragePool")
class OnnxAveragePool(_Windows):
    """The mean of each window, of its elements on the input or, with count_include_pad, on the padding too.

    Shapes:
        input (N, C, *S)  ->  (N, C, *T)
    """

    means = (AvgPool,)

    count_include_pad: bool = False

    def settled(self) -> Layer:
        padding = self._symmetric()
        if padding is None or set(per_axis(self.dilations, len(self.kernel_shape), "dilations")) != {1}:
            return self
        return AvgPool(**self._common(), padding=padding, count_include_pad=self.count_include_pad)

    def infer(self, input: Operand) -> TensorSpec:
        return self.pooled(input)[0]

    def forward(self, input: Array) -> Array:
        _, windows = self.pooled(input)
        pool = _PlacedAvgPool(**self._common(), placed=windows, count_include_pad=self.count_include_pad)
        return cast(pool.average(cast(input, working_dtype(input.dtype)), windows), input.dtype)


@register("LpPool")
class OnnxLpPool(_Windows):
    """sum(abs(x)^p)^(1/p) over each window.

    Shapes:
        input (N, C, *S)  ->  (N, C, *T)
    """

    p: float = 2

    settles = False

    def infer(self, input: Operand) -> TensorSpec:
        tensor(input, "input", FLOATING)
        return self.pooled(input)[0]

    def forward(self, input: Array) -> Array:
        self.infer(input)
        _, windows = self.pooled(input)
        x = cast(input, working_dtype(input.dtype))
        with np.errstate(all="ignore"):
            return cast(
                np.power(sums(np.abs(x) ** x.dtype.type(self.p), windows), x.dtype.type(1 / self.p)), input.dtype
            )


class _Global(Adapter):
    """Base of pools over all spatial axes."""

    adaptive: ClassVar[type[AdaptiveAvgPool | AdaptiveMaxPool]]
    reduction: ClassVar[type[Reduction]]

    def meaning(self, input: Operand) -> Layer:
        rank = tensor(input, "input", FLOATING).rank - 2
        if rank < 1:
            raise ShapeError("input has no spatial axes", found=format_shape(input.shape), expected="3 axes or more")
        if rank <= 3:
            return self.adaptive(spatial_rank=rank, output_size=(1,))
        return self.reduction(dim=tuple(range(2, rank + 2)), keepdim=True)

    def forward(self, input: Array) -> Any:
        return self.run(input)


@register("GlobalAveragePool")
class GlobalAveragePool(_Global):
    """The mean of each channel.

    Shapes:
        input (N, C, *S)  ->  (N, C, 1, ...)
    """

    means = (AdaptiveAvgPool,)

    adaptive = AdaptiveAvgPool
    reduction = Mean


@register("GlobalMaxPool")
class GlobalMaxPool(_Global):
    """The largest element of each channel.

    Shapes:
        input (N, C, *S)  ->  (N, C, 1, ...)
    """

    adaptive = AdaptiveMaxPool
    reduction = AMax


@register("GlobalLpPool")
class GlobalLpPool(Layer):
    """sum(abs(x)^p)^(1/p) of each channel.

    Shapes:
        input (N, C, *S)  ->  (N, C, 1, ...)
    """

    p: float = 2

    def infer(self, input: Operand) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_fits(spec.rank > 2, "input", spec.shape, "3 axes or more")
        return TensorSpec((*spec.shape[:2], *(1,) * (spec.rank - 2)), spec.dtype)

    def forward(self, input: Array) -> Array:
        self.infer(input)
        x = cast(input, working_dtype(input.dtype))
        with np.errstate(all="ignore"):
            total = (np.abs(x) ** x.dtype.type(self.p)).sum(tuple(range(2, x.ndim)), keepdims=True)
            return cast(np.power(total, x.dtype.type(1 / self.p)), input.dtype)


@register("MaxUnpool", positional=("input", "indices", "output_shape"))
class OnnxMaxUnpool(Layer):
    """Zeros, with each value at its place in the whole flattened result.

    Shapes:
        input and indices (N, C, *S)  ->  (N, C, *T), T = (S - 1)*stride - pads + kernel, or output_shape
    """

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    output_shape: tuple[int, ...] | None = None

    def infer(self, input: TensorSpec, indices: TensorSpec) -> TensorSpec:
        shape = self._natural(input.shape)
        check_fits(len(indices.shape) == input.rank, "indices", indices.shape, format_shape(input.shape))
        if self.output_shape is not None:
            wanted = self.output_shape
            check_fits(len(wanted) == input.rank and min(wanted) >= 0, "output_shape", wanted, format_shape(shape))
            return TensorSpec(wanted, input.dtype)
        return TensorSpec(shape, input.dtype)

    def forward(self, input: Array, indices: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(indices.shape, indices.dtype))
        check_fits(indices.shape == input.shape, "indices", indices.shape, format_shape(input.shape))
        if indices.dtype.kind not in "iu":
            raise ShapeError("an index must be of integers", found=indices.dtype)
        natural = [size or 0 for size in self._natural(input.shape)]
        check_size(natural, input.dtype, "the unpooled tensor")
        if indices.size and not 0 <= indices.min() <= indices.max() < math.prod(natural):
            found = f"{indices.min()} to {indices.max()}"
            raise ShapeError("an index is out of range", found=found, expected=f"0 to {math.prod(natural) - 1}")
        shape = spec.sizes
        coordinates = np.unravel_index(indices, natural)
        if any(place.size and place.max() >= size for place, size in zip(coordinates, shape, strict=True)):
            raise ShapeError("an index is out of range", found=format_shape(shape), expected=format_shape(natural))
        result = np.zeros(shape, input.dtype)
        result[coordinates] = input
        return result

    def _natural(self, shape: Shape) -> Shape:
        rank = len(self.kernel_shape)
        check_fits(len(shape) == rank + 2, "input", shape, f"{rank + 2} axes")
        strides = per_axis(self.strides, rank, "strides")
        rows = zip(shape[2:], self.kernel_shape, strides, pairs_of(self.pads, rank), strict=True)
        return (*shape[:2], *(_unpooled(*row) for row in rows))


def _unpooled(size: Dim, kernel: int, stride: int, pair: Pair) -> Dim:
    if size is None:
        return None
    result = (size - 1) * stride - sum(pair) + kernel
    if result < 1:
        raise ShapeError("the output would be empty", found=f"size {size} becomes {result}")
    return result


@register("MaxRoiPool")
class MaxRoiPool(Layer):
    """The largest element of each bin of each region; the bins' borders are rounded, empty bins are zero.

    Shapes:
        input (N, C, H, W), rois (R, 5) of (batch, x1, y1, x2, y2)  ->  (R, C, *pooled_shape)
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def __post_init__(self) -> None:
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            raise ParameterError("pooled_shape does not fit", found=list(self.pooled_shape), expected="two sizes")

    def infer(self, input: TensorSpec, rois: TensorSpec) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_fits(spec.rank == 4, "input", spec.shape, "4 axes")
        check_fits(rois.rank == 2 and rois.shape[1] in (None, 5), "rois", rois.shape, "[?, 5]")
        return TensorSpec((rois.shape[0], spec.shape[1], *self.pooled_shape), spec.dtype)

    def forward(self, input: Array, rois: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(rois.shape, rois.dtype))
        result = np.zeros(spec.sizes, input.dtype)
        for region, roi in wanted(zip(result, rois, strict=True)):
            batch, left, top, right, bottom = roi
            if not math.isfinite(batch):
                raise ShapeError("a roi lies outside the batch", found=f"image {batch}")
            image = int(batch)
            if not 0 <= image < len(input):
                raise ShapeError("a roi lies outside the batch", found=f"image {image}", expected=f"below {len(input)}")
            rows = self._bounds(top, bottom, self.pooled_shape[0], input.shape[2])
            columns = self._bounds(left, right, self.pooled_shape[1], input.shape[3])
            _fill(region, input[image], rows, columns)
        return result

    def _bounds(self, start: float, end: float, bins: int, size: int) -> list[Pair]:
        scale = np.float32(self.spatial_scale)
        first, last = (int(np.round(np.nan_to_num(np.float32(each) * scale))) for each in (start, end))
        width = np.float32(max(last - first + 1, 1)) / np.float32(bins)
        index = np.arange(bins, dtype=np.float32)
        lows = np.clip(np.floor(index * width) + first, 0, size).astype(np.int64)
        highs = np.clip(np.ceil((index + 1) * width) + first, 0, size).astype(np.int64)
        return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _fill(region: Array, image: Array, rows: list[Pair], columns: list[Pair]) -> None:
    """The bins of one region (C, PH, PW), a row of them at once."""
    bounds = np.array(columns)
    is_empty = bounds[:, 1] <= bounds[:, 0]
    for i, (top, bottom) in enumerate(wanted(rows)):
        if bottom > top:
            # One more column, for a bin may end at the last: its end is where another would begin.
            line = np.pad(image[:, top:bottom].max(axis=1), ((0, 0), (0, 1)))
            region[:, i] = np.where(is_empty, 0, np.maximum.reduceat(line, bounds.reshape(-1), axis=1)[:, ::2])
