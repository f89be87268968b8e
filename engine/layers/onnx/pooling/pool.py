"""Pooling with windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.errors import ParameterError
from engine.layers.convolution.window import Window, check_padded, check_taps, counts
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import Adapter, check_fits, present, selected
from engine.layers.onnx.operands.padding import Pair, check_auto_pad, pairs_of, per_axis, same_pairs
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import FLOATING, REAL, Operand, tensor
from engine.layers.pooling.max_pool import INDEX, MaxPool, in_whole, maxima, maxima_with_indices
from engine.layers.pooling.pool import AvgPool, sums
from engine.promotion import cast
from engine.tensor import Array, Dim, TensorSpec


class Windows(Adapter):
    """Base of pooling.

    Parameters:
        auto_pad: NOTSET (pads counts), VALID (none), SAME_UPPER or SAME_LOWER (ceil(size / stride) windows).
        pads: all starts, then all ends.
        ceil_mode: allow a last window past the end, if it starts on the input or on the padding before it.
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
        """Return the window on each spatial axis; sizes may be unknown."""
        windows, pairs = self._windows(), self._given()
        if self.auto_pad.startswith("SAME"):
            strides = [window.stride for window in windows]
            pairs = same_pairs(sizes, [window.extent for window in windows], strides, self.auto_pad == "SAME_UPPER")
        rows = zip(windows, pairs, strict=True)
        return tuple(replace(window, before=before, after=after) for window, (before, after) in rows)

    def pooled(self, input: Operand) -> tuple[TensorSpec, tuple[Window, ...]]:
        """Return the spec of an input after pooling, and the windows."""
        spec, rank = tensor(input, "input", REAL), len(self.kernel_shape)
        check_fits(spec.rank == rank + 2, "input", spec.shape, f"{rank + 2} axes")
        windows = self.windows_on(spec.shape[2:])
        check_taps(windows)
        result = TensorSpec((*spec.shape[:2], *counts(windows, spec.shape[2:])), spec.dtype)
        check_padded(spec, windows, result)
        return result, windows

    def _symmetric(self) -> tuple[int, ...] | None:
        """Return the padding in PyTorch's form; None if PyTorch cannot express it."""
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
        """Return one operation for each tap of each window."""
        spec = output[0] if isinstance(output, tuple) else output
        return (spec.size or 0) * math.prod(self.kernel_shape)


@register("MaxPool")
class OnnxMaxPool(Windows):
    """Largest element of each window, and its index in the flattened input.

    Shapes:
        input (N, C, *S)  ->  (N, C, *T), values and indices alike
    Parameters:
        storage_order: 1 for indices with the spatial axes in reverse order.
    """

    canonical_layers = (MaxPool,)

    storage_order: int = 0

    def canonicalise(self) -> Layer:
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
        return selected((cast(values, input.dtype), self._in_tensor(places, input.shape)), chosen)

    def _in_tensor(self, places: Array, shape: Sequence[int]) -> Array:
        """Convert indices within the spatial axes to indices in the whole tensor."""
        sizes = shape[2:]
        if self.storage_order:
            coordinates = np.unravel_index(places, sizes)
            places = np.ravel_multi_index(coordinates[::-1], sizes[::-1])
        return in_whole(places, shape, len(sizes))


class _PlacedAvgPool(AvgPool):
    """Mean of windows at fixed positions."""

    placed: Any = ()

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the window on each spatial axis."""
        windows: tuple[Window, ...] = self.placed
        return windows

    def __post_init__(self) -> None:
        pass


@register("AveragePool")
class OnnxAveragePool(Windows):
    """Mean of each window, over its elements on the input or, with count_include_pad, on the padding too.

    Shapes:
        input (N, C, *S)  ->  (N, C, *T)
    """

    canonical_layers = (AvgPool,)

    count_include_pad: bool = False

    def canonicalise(self) -> Layer:
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
class OnnxLpPool(Windows):
    """sum(abs(x)^p)^(1/p) over each window.

    Shapes:
        input (N, C, *S)  ->  (N, C, *T)
    """

    p: float = 2

    canonicalises = False

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
