"""Convolution, as one matrix product a group.

The windows of an image are the columns of a matrix (im2col), the weights are the other matrix. The columns are larger
than the image by the number of taps, so they are made in blocks, between which the run can be cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError
from engine.ir.dims import hint
from engine.layers.convolution.filters import Filters, add_bias
from engine.layers.convolution.pad import extend, padded_shape
from engine.layers.convolution.window import Window, columns, counts, same_pairs, sliding_windows
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register_ranks
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import NUMERIC, Operand, check_rank, image, spread, tensor
from engine.limits import check_scratch
from engine.promotion import cast
from engine.tensor import Array, Shape, TensorSpec

BLOCK_BYTES: Final = 4 << 20
"""Bytes of columns made at a time."""

PADDING_MODES: Final = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


class StridedSameConv(Layer):
    """A convolution padded so that it gives ceil(size / stride) windows.

    PyTorch has no such padding. It is the converter's ``padding=same`` with a stride: ONNX's SAME_UPPER, SAME_LOWER.

    Parameters:
        is_upper: whether the odd element goes to the end, else to the start.
    """

    conv: Conv
    is_upper: bool = True

    def infer(self, input: Operand, weight: Operand, bias: Operand | None = None) -> TensorSpec:
        padded = padded_shape(input.shape, self._pairs(input, weight))
        return self.conv.infer(TensorSpec(padded, input.dtype), weight, bias)

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Array:
        return self.conv.forward(extend(input, self._pairs(input, weight)), weight, bias)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return self.conv.flops(output, *operands)

    def _pairs(self, input: Operand, weight: Operand) -> Any:
        """Return the padding (before, after) of each spatial axis, as far as it is known."""
        rank = self.conv.spatial_rank
        check_rank(tensor(weight, "weight", NUMERIC), rank + 2, name="weight")
        sizes, kernel = image(input, rank, NUMERIC).shape[-rank:], weight.shape[-rank:]
        if None in sizes or None in kernel:
            return [(None, None)] * rank
        return self.pairs_of(tuple(size or 0 for size in sizes), tuple(size or 0 for size in kernel))

    def pairs_of(self, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return the padding (before, after) of each spatial axis of an image of these sizes."""
        windows = self.conv.windows_of(kernel)
        extents, strides = [window.extent for window in windows], [window.stride for window in windows]
        return same_pairs(sizes, extents, strides, self.is_upper)


@register_ranks("F.conv{}d", flags={"bias": ("bias",)})
class Conv(Filters):
    """Cross-correlate every image with a bank of filters.

    Shapes:
        input (N, C, *S) or (C, *S), weight (O, C/groups, *K), bias (O,)  ->  (N, O, *T) or (O, *T)
        T = (S + padding before and after - dilation*(K - 1) - 1) // stride + 1
    Dtypes:
        numbers of one dtype; floating dtypes may differ, and the widest is used.
    Parameters:
        padding: one number an axis, "valid" (none) or "same" (T = S; the odd element goes to the end), with a
            stride as in ONNX's SAME_UPPER. Only ONNX has "same_lower" (the odd element goes to the start), and numbers
            that differ: all before, then all after.
        padding_mode: zeros, reflect, replicate or circular.
    Raises:
        ParameterError: when the weight contradicts in_channels, out_channels, kernel_size or groups.
        ShapeError: when channels do not fit or the input is smaller than the window.
    Source:
        torch.nn.Conv2d, torch.nn.functional.conv2d.
    """

    canonical_layers: ClassVar[tuple[type[Layer], ...]] = (StridedSameConv,)

    padding: tuple[int, ...] | str = (0,)
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.padding_mode not in PADDING_MODES:
            raise ParameterError("unknown padding_mode", found=self.padding_mode, expected=", ".join(PADDING_MODES))
        if not isinstance(self.padding, str):
            self.padding_of((1,) * self.spatial_rank)
        elif self.padding not in ("same", "same_lower", "valid"):
            raise ParameterError("unknown padding", found=self.padding, expected="numbers, same or valid")

    def canonicalise(self) -> Layer:
        if self.padding in ("same", "same_lower") and set(self.stride) != {1}:
            if self.padding_mode != "zeros":
                raise ParameterError("padding 'same' needs stride 1", found=list(self.stride))
            return StridedSameConv(conv=replace(self, padding="valid"), is_upper=self.padding == "same")
        return self

    def infer(self, input: Operand, weight: Operand, bias: Operand | None = None) -> TensorSpec:
        spec = image(input, self.spatial_rank, NUMERIC)
        in_channels = None if self.in_channels is None else self.in_channels // self.groups
        bank = self.check_weight(weight, (self.out_channels, in_channels))
        channels = None if bank.shape[1] is None else bank.shape[1] * self.groups
        dtype = self.check_fit(spec, bank, bias, (channels, bank.shape[0]))
        lead, sizes = spec.shape[: -self.spatial_rank - 1], spec.shape[-self.spatial_rank :]
        result = TensorSpec((*lead, bank.shape[0], *self._output_sizes(sizes, bank.shape[2:])), dtype)
        self._check_padding(spec, bank, result)
        return result

    def _check_padding(self, input: TensorSpec, weight: TensorSpec, result: TensorSpec) -> None:
        """Refuse padding that is far larger than the input, as a padded copy of the input is made."""
        kernel = tuple(size for size in weight.shape[2:] if size is not None)
        if len(kernel) == self.spatial_rank:
            padded = padded_shape(input.shape, self.padding_of(kernel), PADDING_MODES[self.padding_mode])
            of_bytes = sum((hint(spec.size) or 0) * spec.dtype.itemsize for spec in (input, weight, result))
            check_scratch(padded, result.dtype, of_bytes, "the padded input")

    def _output_sizes(self, sizes: Shape, kernel: Shape) -> Shape:
        known = [size for size in kernel if size is not None]
        if len(known) != len(kernel):
            return (None,) * len(kernel)
        pairs = self.padding_of(tuple(known))
        padded = padded_shape(sizes, pairs, PADDING_MODES[self.padding_mode])
        return counts(self.windows_of(tuple(known)), padded)

    def windows_of(self, kernel: tuple[int, ...]) -> tuple[Window, ...]:
        """Return the windows on the padded input."""
        return sliding_windows(kernel, stride=self.stride, dilation=self.dilation)

    def padding_of(self, kernel: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return the padding (before, after) of each spatial axis."""
        if self.padding in ("same", "same_lower"):
            totals = [window.extent - 1 for window in self.windows_of(kernel)]
            pairs = [(total // 2, total - total // 2) for total in totals]
            return pairs if self.padding == "same" else [pair[::-1] for pair in pairs]
        numbers, rank = (0,) if isinstance(self.padding, str) else self.padding, len(kernel)
        ends = (numbers[:rank], numbers[rank:]) if len(numbers) == 2 * rank else (numbers, numbers)
        return list(zip(*(spread(each, rank, "padding", 0) for each in ends), strict=True))

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Array:
        spec = self.infer(input, weight, bias)
        dtype = working_dtype(spec.dtype)
        kernel = weight.shape[2:]
        x = extend(cast(self.batched(input), dtype), self.padding_of(kernel), PADDING_MODES[self.padding_mode])
        with np.errstate(all="ignore"):
            y = correlate(x, cast(weight, dtype), self.windows_of(kernel), self.groups)
            y = add_bias(y, bias)
        return cast(y.reshape(*self.lead(input), *y.shape[1:]), spec.dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        """Return two operations for each multiplication and addition of the product."""
        weight = operands[1]
        taps = TensorSpec(weight.shape[1:], weight.dtype).size if isinstance(weight, TensorSpec) else None
        return 2 * (output.size or 0) * (taps or 0)


def correlate(x: Array, weight: Array, windows: Sequence[Window], groups: int = 1) -> Array:
    """Compute x (N, C, *padded sizes), weight (O, C/groups, *K) -> (N, O, *counts)."""
    patches = columns(x, windows)
    if math.prod(weight.shape[2:]) == 1 or patches.nbytes <= BLOCK_BYTES:
        return filtered(patches, weight, groups)
    y = np.empty((len(x), len(weight), *patches.shape[-len(windows) :]), x.dtype)
    for block in _blocks(patches, len(windows)):
        y[block] = filtered(patches[block], weight, groups)
    return y


def filtered(patches: Array, weight: Array, groups: int = 1) -> Array:
    """Compute patches (N, C, *K, *S), weight (O, C/groups, *K) -> (N, O, *S)."""
    n, sizes = len(patches), patches.shape[weight.ndim :]
    bank = weight.reshape(groups, len(weight) // groups, math.prod(weight.shape[1:]))
    matrix = patches.reshape(n, groups, bank.shape[-1], math.prod(sizes))
    product: Array = np.matmul(bank, matrix)
    return product.reshape(n, len(weight), *sizes)


def _blocks(patches: Array, rank: int) -> Iterator[tuple[Any, ...]]:
    """Yield blocks of images of the batch, or of rows of one image, whose columns take about BLOCK_BYTES."""
    rows = patches.shape[-rank]
    image_bytes = patches.nbytes // len(patches)
    images = max(1, BLOCK_BYTES // image_bytes)
    height = max(1, min(rows, BLOCK_BYTES * rows // image_bytes))
    for first in cancellable(range(0, len(patches), images)):
        for row in cancellable(range(0, rows, height)):
            yield slice(first, first + images), ..., slice(row, row + height), *(slice(None),) * (rank - 1)
