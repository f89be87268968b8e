"""Transposed convolutions: for each phase of the stride an ordinary convolution that writes every stride-th pixel.

Output y gets x[i] * w[k] where y = i * stride - padding + k * dilation. Outputs of one phase, y = phase + stride * j,
meet only every (stride / g)-th tap, with g the greatest common divisor of stride and dilation. From one tap to the next
they meet every (dilation / g)-th element: a convolution with reversed taps. Where a phase meets no tap, as with a
stride larger than the kernel, outputs are the bias; a map writes it everywhere first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from engine.compiler.kernels.map import make_map
from engine.compiler.kernels.windows import WindowAxis
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, as_image
from engine.compiler.lowering.layout import BORDER_RULES, NO_BORDER, Border
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters, checked_border
from engine.compiler.lowering.rules.convolution.conv_kernels import direct, raw_strides
from engine.compiler.lowering.rules.convolution.conv_steps import chosen_step, packed_in_run, weights_of
from engine.compiler.lowering.rules.convolution.overlap_add import MAX_PHASES, lower_overlap_add, prefers_overlap_add
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View
from engine.graph.operator import RuntimeOperator
from engine.ir.strided import Strided
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.operands.spatial import spread
from engine.tensor import Array, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Outputs ``phase + stride * j`` along one axis.

    Args:
        taps: numbers of the kernel's taps, in reverse.
        count: number of outputs.
        begin: index of the input element under the first tap of output j = 0.
        dilation: elements from tap to tap.
    """

    phase: int
    taps: tuple[int, ...]
    count: int
    begin: int
    dilation: int = 1

    @property
    def chosen(self) -> slice:
        """Return the slice of the kernel's taps."""
        first, *others = self.taps
        step = others[0] - first if others else -1
        end = self.taps[-1] + step
        return slice(first, end if end >= 0 else None, step)

    def margins(self, size: int) -> tuple[int, int]:
        """Return the zeros needed before and after an axis of ``size``."""
        return max(0, -self.begin), max(0, self.begin + self.count + (len(self.taps) - 1) * self.dilation - size)


def phases(kernel: int, stride: int, padding: int, count: int, dilation: int = 1) -> list[Phase]:
    """Return the phases of one axis with ``count`` outputs that meet a tap.

    Raises:
        NotLoweredError: there are too many.
    """
    reached = {(k * dilation - padding) % stride for k in range(kernel)}
    used = sorted(phase for phase in reached if phase < count)
    if len(used) > MAX_PHASES:
        raise NotLoweredError("there is no kernel for this stride")
    found = []
    for phase in used:
        at = phase + padding
        taps = tuple(k for k in reversed(range(kernel)) if (at - k * dilation) % stride == 0)
        found.append(
            Phase(
                phase=phase,
                taps=taps,
                count=-(-(count - phase) // stride),
                begin=(at - taps[0] * dilation) // stride,
                dilation=dilation // math.gcd(dilation, stride),
            )
        )
    return found


def _axes(
    layer: ConvTranspose, kernel: tuple[int, ...], strides: tuple[int, ...], out: tuple[int, ...]
) -> list[list[Phase]]:
    """Return the phases of planes, rows and columns."""
    rank = layer.spatial_rank
    paddings, dilations = spread(layer.padding, rank, "padding", 0), spread(layer.dilation, rank, "dilation")
    found = [phases(*each) for each in zip(kernel, strides, paddings, out, dilations, strict=True)]
    return [phases(1, 1, 0, 1)] * (3 - rank) + found


def _strides_of(layer: ConvTranspose, kernel: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides; an axis of size 1 gets one with which every output meets a single tap."""
    strides = spread(layer.stride, layer.spatial_rank, "stride")
    return tuple(
        k if size == 1 and s < k <= MAX_PHASES else s for k, s, size in zip(kernel, strides, sizes, strict=True)
    )


def _border(rows: list[Phase], columns: list[Phase], sizes: tuple[int, ...]) -> Border:
    height, width = (1, *sizes)[-2:]
    ends = [[each.margins(size) for each in axis] for axis, size in ((rows, height), (columns, width))]
    (top, bottom), (left, right) = (map(max, zip((0, 0), *each, strict=True)) for each in ends)
    return checked_border((top, left, bottom, right), sizes)


def _wanted_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec) -> Border:
    layer, weight = op.definition, op.attributes.get("weight")
    if not isinstance(layer, ConvTranspose) or weight is None or x.rank != layer.spatial_rank + 2:
        return NO_BORDER
    try:
        kernel = tuple(weight.shape[2:])
        _, rows, columns = _axes(layer, kernel, _strides_of(layer, kernel, x.sizes[2:]), y.sizes[2:])
        return _border(rows, columns, x.sizes[2:])
    except NotLoweredError:
        return NO_BORDER


BORDER_RULES[ConvTranspose] = _wanted_border


@kernels_for(ConvTranspose, image=True, doubles=True)
def lower_conv_transpose(context: Context) -> Lowered:
    """Lower a transposed convolution of signals, images or volumes with the element-wise operators after it."""
    layer, (given, bias) = context.layer(ConvTranspose), weights_of(context)
    weight = given.meta if isinstance(given, View) else given
    x, sizes = context.tensor(0), context.result_spec.sizes
    if len(x.shape) != layer.spatial_rank + 2:
        raise NotLoweredError("there is no kernel without a batch dimension")
    strides = _strides_of(layer, weight.shape[2:], x.shape[2:])
    if not isinstance(given, View) and not isinstance(bias, View):  # both are known before the run
        is_faster = prefers_overlap_add(context, layer, *weight.shape[1:3])
        if is_faster:
            return lower_overlap_add(context, layer, given, bias)
    axes = _axes(layer, weight.shape[2:], strides, sizes[2:])
    image, copies = context.image(x, _border(axes[1], axes[2], x.shape[2:]))
    result = context.fuse(as_image, is_image=True)
    stride = (1, 1, *strides)[-3:]
    weight = weight.reshape(*weight.shape[:2], *(1,) * (5 - weight.ndim), *weight.shape[2:])
    planes = x.shape[2] if len(x.shape) == 5 else 1
    source = raw_strides(image)
    steps = [] if _is_covered(axes, strides, sizes[2:]) else [_biased(context, result, bias, sizes[1])]
    for phase in product(*axes):
        depth, row, column = phase
        taps = _taps(weight, layer.groups, phase)
        bank = _bank(taps)
        windows = WindowAxis(
            size=planes,
            count=depth.count,
            kernel=len(depth.taps),
            dilation=depth.dilation,
            padding=-depth.begin,
        )
        parameters = ConvParameters(
            kernel=(bank.shape[3], bank.shape[4]),
            dilation=(row.dilation, column.dilation),
            groups=layer.groups,
            depth=windows if len(x.shape) == 5 else None,
        )
        packed: View | None = None
        known = bias if isinstance(bias, np.ndarray) else None
        for first, samples in _samples(x.shape[0], sizes, stride):
            part = result.part(partial(_pixels, phase=phase, stride=stride, samples=samples))
            origin = x.dtype.itemsize * (first * planes * source.n + row.begin * source.h + column.begin * source.w)
            if isinstance(given, View) and isinstance(taps, Strided):
                kernel = direct(context, part, parameters, bank, source, raw_strides(part.image))
                if packed is None:
                    shift = bias if isinstance(bias, View) else None
                    packed, copied = packed_in_run(context, kernel, given, shift, taps)
                    steps.extend(copied)
                steps.append(part.step(kernel, [image, packed], origin=origin))
            elif isinstance(bank, np.ndarray):
                steps.append(chosen_step(context, part, parameters, image, (bank, known), source, origin))
    return result.lowered(*copies, *steps)


def _is_covered(axes: Sequence[Sequence[Phase]], strides: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether every output meets a tap."""
    rank = len(sizes)
    return all(len(each) == min(s, n) for each, s, n in zip(axes[-rank:], strides, sizes, strict=True))


def _biased(context: Context, result: Result, bias: object, channels: int) -> KernelStep:
    """Return the step that stores the bias, with fused operators, everywhere."""
    known = bias if isinstance(bias, np.ndarray) else np.zeros(channels, context.dtype)
    numbers = bias if isinstance(bias, View) else context.lowering.stored(known)
    shape = result.image.shape
    wide = derived(numbers, numbers.meta.reshape(channels, 1, 1).broadcast_to(shape))
    strides = [wide.strides, *(view.strides for view in result.operands)]
    kernel = make_map(shape, result.image.strides, strides, result.fused.tree, context.host)
    return result.step(kernel, after=[wide])


def _samples(count: int, sizes: tuple[int, ...], stride: tuple[int, ...]) -> list[tuple[int, slice]]:
    """Return the samples of a batch that a kernel computes together: one each if planes of a phase lie unevenly."""
    if len(sizes) == 5 and sizes[2] % stride[0]:
        return [(k, slice(k, k + 1)) for k in range(count)]
    return [(0, slice(None))]


def _pixels(array: Strided, phase: Sequence[Phase], stride: tuple[int, ...], samples: slice) -> Strided:
    """Return the pixels of (n, c, h, w), (n, c, w) or (n, c, d, h, w) that a phase makes."""
    planes = array[samples, :, phase[0].phase :: stride[0]] if array.ndim == 5 else array
    return as_image(planes)[:, :, phase[1].phase :: stride[1], phase[2].phase :: stride[2]]


def _bank(taps: Array | Strided) -> Array | Strided:
    """Return the taps of a phase as (O, C/groups, S, T, U); only the shape if they are computed at run time."""
    bank = taps.reshape(taps.shape[0] * taps.shape[1], *taps.shape[2:])
    return bank if isinstance(bank, Strided) else np.ascontiguousarray(bank)


def _taps(weight: Array | Strided, groups: int, phase: Sequence[Phase]) -> Array | Strided:
    """View the taps of a phase, (C, O/groups, KD, KH, KW), as (groups, O/groups, C/groups, S, T, U)."""
    depth, row, column = (each.chosen for each in phase)
    chosen = weight[:, :, depth, row, column]
    c, o, *taps = chosen.shape
    return chosen.reshape(groups, c // groups, o, *taps).transpose(0, 2, 1, 3, 4, 5)
