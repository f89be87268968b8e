"""Weights that the run computes, brought into the order in which the direct convolution reads them: a few copies."""

from __future__ import annotations

import math

import numpy as np

from engine.compiler.kernels.channels import width_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.storage import View, constant, row_major
from engine.ir.strided import Strided
from engine.tensor import Array


def weights_of(context: Context) -> tuple[Array, Array | None] | tuple[View, View | None]:
    """Weight and bias: known both, or both in memory where the run computes one of them."""
    if not any(isinstance(context.argument(index), View) for index in (1, 2)):
        return context.weight(1), context.optional_weight(2)
    return context.tensor(1), None if context.argument(2) is None else context.tensor(2)


def packed_in_run(
    context: Context, kernel: Conv, weight: View, bias: View | None, taps: Strided | None = None
) -> tuple[View, list[KernelStep]]:
    """What ``kernel.pack`` makes of weights (O, I, KD, KH, KW) and a bias (O,), and the steps that do.

    Args:
        taps: of the weights, those that are packed, as (groups, O, I, KD, KH, KW).
    """
    groups, channels = kernel.groups, kernel.out_channels
    found = weight.phantom if taps is None else taps
    shape = (groups, channels, *found.shape[-4:])
    given = found.reshape(shape)
    biases = None if bias is None else derived(bias, bias.phantom.reshape(groups, channels))
    target = row_major((groups, len(kernel.panels), kernel.panel_floats), weight.dtype)
    alike = sum(panel == kernel.panels[0] for panel in kernel.panels)
    steps, first = [], 0
    for begin, end in ((0, alike), (alike, len(kernel.panels))):
        if begin == end:
            continue
        panel, count = kernel.panels[begin], end - begin
        real, width = sum(real for _, real in panel), width_of(panel)
        lines = target.phantom[:, begin:end, : (1 + kernel.packed_taps) * width]
        lines = lines.reshape(groups, count, 1 + kernel.packed_taps, width)[..., :real]
        last = first + count * real
        inputs, *sizes = shape[2:]
        apart = given[:, first:last].reshape(groups, count, real, inputs, *sizes).transpose(0, 1, 4, 5, 6, 3, 2)
        places = lines[:, :, 1:].reshape(apart.shape)
        steps.append(context.copy(derived(weight, apart), derived(target, places)))
        steps.append(context.copy(_line(biases, first, (groups, count, real), target), derived(target, lines[:, :, 0])))
        first = last
    return target, steps


def _line(bias: View | None, first: int, shape: tuple[int, int, int], target: View) -> View:
    """Where sums begin: the bias of some channels, or zeros."""
    if bias is None:
        zero = constant(np.zeros(1, target.dtype))
        return derived(zero, zero.phantom.broadcast_to(shape))
    return derived(bias, bias.phantom[:, first : first + math.prod(shape[1:])].reshape(shape))
