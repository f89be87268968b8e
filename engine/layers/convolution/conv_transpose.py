"""Transposed convolution: one matrix product a group, then the overlaps are summed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.filters import Filters, add_bias
from engine.layers.convolution.window import Window, check_padded, overlap_add, sliding_windows
from engine.layers.definition.registry import register_ranks
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import NUMERIC, Operand, image, spread
from engine.promotion import cast
from engine.tensor import Array, Dim, Shape, TensorSpec


@register_ranks("F.conv_transpose{}d", flags={"bias": ("bias",)})
class ConvTranspose(Filters):
    """The transpose of a convolution: every element lays down its filters, overlaps add up.

    Shapes:
        input (N, C, *S) or (C, *S), weight (C, O/groups, *K), bias (O,)  ->  (N, O, *T) or (O, *T)
        T = (S - 1)*stride - 2*padding + dilation*(K - 1) + output_padding + 1
    Dtypes:
        as Conv.
    Raises:
        ParameterError: when the weight contradicts the parameters, or output_padding is no smaller than stride and
            dilation.
        ShapeError: when channels do not fit or nothing would be left.
    Source:
        torch.nn.ConvTranspose2d, torch.nn.functional.conv_transpose2d.
    """

    padding: tuple[int, ...] = (0,)
    output_padding: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = zip(*(self._numbers(name) for name in ("output_padding", "stride", "dilation")), strict=True)
        if any(extra >= max(stride, dilation) for extra, stride, dilation in rows):
            raise ParameterError(
                "output_padding is too large", found=list(self.output_padding), expected="less than stride or dilation"
            )

    def _numbers(self, name: str) -> tuple[int, ...]:
        least = 0 if name.endswith("padding") else 1
        return spread(getattr(self, name), self.spatial_rank, name, least)

    def infer(self, input: Operand, weight: Operand, bias: Operand | None = None) -> TensorSpec:
        spec = image(input, self.spatial_rank, NUMERIC)
        split = None if self.out_channels is None else self.out_channels // self.groups
        bank = self.check_weight(weight, (self.in_channels, split))
        out_channels = None if bank.shape[1] is None else bank.shape[1] * self.groups
        dtype = self.check_fit(spec, bank, bias, (bank.shape[0], out_channels))
        lead, sizes = spec.shape[: -self.spatial_rank - 1], spec.shape[-self.spatial_rank :]
        result = TensorSpec((*lead, out_channels, *self._output_sizes(sizes, bank.shape[2:])), dtype)
        windows = sliding_windows((1,) * self.spatial_rank, padding=self.padding)
        check_padded(result, windows, spec)
        return result

    def _output_sizes(self, sizes: Shape, kernel: Shape) -> Shape:
        names = ("stride", "padding", "dilation", "output_padding")
        rows = zip(sizes, kernel, *(self._numbers(name) for name in names), strict=True)
        return tuple(_transposed_size(*row) for row in rows)

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Array:
        spec = self.infer(input, weight, bias)
        dtype = working_dtype(spec.dtype)
        windows = sliding_windows(weight.shape[2:], stride=self.stride, padding=self.padding, dilation=self.dilation)
        with np.errstate(all="ignore"):
            sizes = [size or 0 for size in spec.shape[-self.spatial_rank :]]
            y = spread_out(cast(self.batched(input), dtype), cast(weight, dtype), windows, self.groups, sizes)
            y = add_bias(y, bias)
        return cast(y.reshape(*self.lead(input), *y.shape[1:]), spec.dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        """Return two operations for each multiplication and addition of the product."""
        input, weight = operands[:2]
        if not isinstance(input, TensorSpec) or not isinstance(weight, TensorSpec):
            return 0
        return 2 * (input.size or 0) * (TensorSpec(weight.shape[1:], weight.dtype).size or 0)

    def scratch_bytes(self, output: TensorSpec, *operands: object) -> int:
        """Return the bytes of the products of all elements, before overlaps are summed."""
        input, weight = operands[:2]
        if not isinstance(input, TensorSpec) or not isinstance(weight, TensorSpec):
            return 0
        places = (input.size or 0) // max(1, weight.shape[0] or 1)
        taps = TensorSpec(weight.shape[1:], weight.dtype).size or 0
        return 2 * places * self.groups * taps * max(4, output.dtype.itemsize)


def _transposed_size(size: Dim, kernel: Dim, stride: int, padding: int, dilation: int, extra: int) -> Dim:
    if size is None or kernel is None:
        return None
    result = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1
    if size < 1 or result < 1:
        raise ShapeError("the output would be empty", found=f"size {size} becomes {result}")
    return result


def spread_out(x: Array, weight: Array, windows: Sequence[Window], groups: int, sizes: Sequence[int]) -> Array:
    """Compute x (N, C, *S), weight (C, O/groups, *K) -> (N, O, *sizes)."""
    n, places = len(x), x.shape[2:]
    bank = weight.reshape(groups, len(weight) // groups, math.prod(weight.shape[1:])).swapaxes(1, 2)
    matrix = x.reshape(n, groups, len(weight) // groups, math.prod(places))
    values = np.matmul(bank, matrix).reshape(n, groups * weight.shape[1], *weight.shape[2:], *places)
    return overlap_add(values, windows, sizes)
