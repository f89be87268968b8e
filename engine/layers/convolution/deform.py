"""Deformable convolution: every tap looks at a position of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.convolution.conv import filtered
from engine.layers.convolution.filters import Filters, add_bias
from engine.layers.convolution.window import Window, counts, sliding_windows
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_equal
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, Operand, check_rank, spread, tensor
from engine.layers.vision.sampling import sample_linear
from engine.promotion import cast
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape, product

_ARGUMENTS = (
    "input", "weight", "offset", "mask", "bias", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w",
    "groups", "offset_groups", "use_mask",
)  # fmt: skip


@register("engine.DeformConv2d", presets={"spatial_rank": 2})
class DeformConv2d(Filters):
    """Convolution of bilinear samples taken at tap + offset, each multiplied by its mask; zeros outside the image.

    Shapes:
        input (N, C, H, W), weight (O, C/groups, KH, KW), offset (N, OG*KH*KW*2, OH, OW) of (y, x) pairs,
        mask (N, OG*KH*KW, OH, OW), bias (O,)  ->  (N, O, OH, OW); the OG offset groups share the channels evenly.
    Dtypes:
        floating; dtypes may differ, and the widest is used.
    Raises:
        ParameterError: when the weight contradicts the parameters.
        ShapeError: when operands do not fit each other.
    Source:
        torchvision.ops.deform_conv2d; torchvision/csrc/ops/cpu/deform_conv2d_kernel.cpp.
    """

    padding: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        spread(self.padding, self.spatial_rank, "padding", 0)

    def infer(
        self,
        input: Operand,
        weight: Operand,
        offset: Operand,
        mask: Operand | None = None,
        bias: Operand | None = None,
    ) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_rank(spec, 4)
        in_channels = None if self.in_channels is None else self.in_channels // self.groups
        bank = self.check_weight(weight, (self.out_channels, in_channels))
        channels = None if bank.shape[1] is None else bank.shape[1] * self.groups
        dtype = self.check_fit(spec, bank, bias, (channels, bank.shape[0]))
        sizes = self._output_sizes(spec.shape[2:], bank.shape[2:])
        taps = product(bank.shape[2:])
        groups = _offset_groups(spec, offset, "offset", None if taps is None else 2 * taps, sizes)
        if mask is not None and not may_equal(_offset_groups(spec, mask, "mask", taps, sizes), groups):
            raise ShapeError("mask and offset differ in their groups", found=format_shape(mask.shape), expected=groups)
        return TensorSpec((spec.shape[0], bank.shape[0], *sizes), dtype)

    def _output_sizes(self, sizes: Shape, kernel: Shape) -> Shape:
        known = [size for size in kernel if size is not None]
        return counts(self._windows(tuple(known)), sizes) if len(known) == len(kernel) else (None,) * len(kernel)

    def _windows(self, kernel: tuple[int, ...]) -> tuple[Window, ...]:
        return sliding_windows(kernel, stride=self.stride, padding=self.padding, dilation=self.dilation)

    def forward(
        self, input: Array, weight: Array, offset: Array, mask: Array | None = None, bias: Array | None = None
    ) -> Array:
        spec = self.infer(input, weight, offset, mask, bias)
        with np.errstate(all="ignore"):
            patches = self._patches(widened(input), widened(offset), mask, weight.shape[2:])
            y = add_bias(filtered(patches, cast(weight, patches.dtype), self.groups), bias)
        return cast(y, spec.dtype)

    def _patches(self, x: Array, offset: Array, mask: Array | None, kernel: tuple[int, ...]) -> Array:
        """Return the samples of every tap, (N, C, KH, KW, OH, OW)."""
        n, c, *sizes = x.shape
        taps, places = math.prod(kernel), offset.shape[2:]
        groups = offset.shape[1] // (2 * taps)
        moves = offset.reshape(n * groups, taps, 2, *places)
        rows, cols = (
            (window.starts(size) + np.arange(window.kernel)[:, None] * window.dilation).astype(x.dtype)
            for window, size in zip(self._windows(kernel), sizes, strict=True)
        )
        down = np.broadcast_to(rows[:, None, :, None], (*kernel, *places)).reshape(taps, *places)
        right = np.broadcast_to(cols[None, :, None, :], (*kernel, *places)).reshape(taps, *places)
        positions = [down + moves[:, :, 0], right + moves[:, :, 1]]
        samples = sample_linear(x.reshape(n * groups, c // groups, *sizes), positions)
        if mask is not None:
            samples *= widened(mask).reshape(n * groups, 1, taps, *places)
        return samples.reshape(n, c, *kernel, *places)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        """Return two operations for each multiplication and addition of the product."""
        weight = operands[1]
        taps = product(weight.shape[1:]) if isinstance(weight, TensorSpec) else None
        return 2 * (output.size or 0) * (taps or 0)


def _offset_groups(input: TensorSpec, operand: Operand, name: str, numbers: Dim, sizes: Shape) -> Dim:
    """Return the number of channel groups with offsets, or masks, of their own.

    Raises:
        ShapeError: when the operand does not fit the input and the output's sizes.
    """
    spec = tensor(operand, name, FLOATING)
    fitting = (input.shape[0], None, *sizes)
    check_shape(spec.shape, fitting, f"{name} does not fit")
    if spec.shape[1] is None or numbers is None:
        return None
    groups, rest = divmod(spec.shape[1], numbers)
    if rest or not groups or (input.shape[1] is not None and input.shape[1] % groups):
        expected = f"a multiple of {numbers} whose number divides the input's channels"
        raise ShapeError(f"{name} does not divide into groups", found=spec.shape[1], expected=expected)
    return groups


@register(
    "pnnx.custom_op.torchvision.deform_conv2d",
    positional=_ARGUMENTS,
    renamed={f"arg_{place}": name for place, name in enumerate(_ARGUMENTS)},
)
class DeformConv2dFunction(Composite):
    """DeformConv2d as the custom operator spells it: the mask counts only with use_mask.

    Source:
        torch.ops.torchvision.deform_conv2d.
    """

    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    groups: int = 1
    offset_groups: int = 1
    use_mask: bool = True

    def __post_init__(self) -> None:
        _ = self._conv

    @property
    def _conv(self) -> DeformConv2d:
        return DeformConv2d(
            spatial_rank=2,
            stride=(self.stride_h, self.stride_w),
            padding=(self.pad_h, self.pad_w),
            dilation=(self.dilation_h, self.dilation_w),
            groups=self.groups,
        )

    def compose(
        self, call: CallLayer, input: Operand, weight: Operand, offset: Operand, mask: Operand, bias: Operand
    ) -> Any:
        return call(self._conv, input, weight, offset, mask if self.use_mask else None, bias)
