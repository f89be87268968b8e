"""Products of bytes with stored weights.

As pairs of 16-bit integers, which hold every distance from a zero point, around them zeros. Where the host multiplies
bytes and the weights are such, as these: what their zero point adds to each sum is taken off again, and an image with
padding has the zero point around it. Sums are 32-bit integers: a pass has found out that none of them is larger, and
that floats are made of them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.result import as_image
from engine.compiler.lowering.rules.convolution.conv_parameters import border_of, parameters_of, spans_of
from engine.compiler.lowering.rules.convolution.conv_steps import as_filters, computed
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.rules.products.byte_images import BYTES, ByteImage, Zero, words_of
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View
from engine.layers.onnx.products.conv import ConvInteger, distances, windows_and_pads
from engine.layers.onnx.products.matmul import MatMulInteger, centred_columns
from engine.tensor import Array

_SIGNED: Final = np.iinfo(np.int8)


@kernels_for(ConvInteger, image=True)
def lower_conv_integer(context: Context) -> Made:
    """A convolution of words, each some channels of an image."""
    node, x = context.layer(ConvInteger), _bytes(context)
    if not node.as_float or node.auto_pad not in ("NOTSET", "VALID"):
        raise NotLoweredError("there is no kernel for its integers, or its padding depends on sizes")
    weight = distances(_stored(context, 1), _zero(context), "w_zero_point", 0)
    layer, pads = windows_and_pads(node, weight.ndim - 2)
    if weight.ndim > 4 or (node.group > 1 and weight.shape[1] % 2):
        raise NotLoweredError("there is no kernel for its integers")
    parameters, sizes = parameters_of(layer, weight.shape[2:], tuple(pads)), context.result_spec.sizes[2:]
    rows, columns = spans_of(parameters, x.shape[2:], sizes)
    parts = [*product(rows, columns)]
    # Zeros that parts of the output leave out are no bytes that stand for zero.
    may_be_bytes = len(parts) == 1 and (node.group == 1 or weight.shape[1] % 4 == 0)
    image = ByteImage(context, x, Zero.of(context, 2, x), _integers(context, weight) if may_be_bytes else 2)
    words = image.bordered(border_of(rows, columns, x.shape[2:]))
    (row, column), *_ = parts
    seen = as_filters(weight)[..., row.first : row.first + row.taps, column.first : column.first + column.taps]
    shift = image.shift(_bias(context, len(weight)), seen, weight.ndim - 2)
    result = context.fuse(as_image, is_image=True, views=shift)
    parameters = replace(parameters, integers=image.integers, has_shift=bool(shift))
    filters = as_filters(words_of(weight, image.integers)), None
    seen_image = derived(words, as_image(words.phantom))
    return result.made(*image.steps, *computed(context, seen_image, result, parameters, parts, filters))


@kernels_for(MatMulInteger)
def lower_matmul_integer(context: Context) -> Made:
    """The same of rows."""
    node, x = context.layer(MatMulInteger), _bytes(context)
    weight = _stored(context, 1)
    if not node.as_float or weight.ndim != 2 or len(x.shape) < 2:
        raise NotLoweredError("there is no kernel for its integers")
    columns = centred_columns(weight, _zero(context), "b_zero_point").T
    image = ByteImage(context, x, Zero.of(context, 2, x), _integers(context, columns))
    words = image.rows()
    rows = derived(words, words.phantom.reshape(-1, words.shape[-1]))
    shift = image.shift(None, columns, 0)
    result = context.fuse(rows_as_image, is_image=False, views=shift)
    filters = words_of(columns, image.integers)
    step = linear_step(context, result, rows, filters, None, integers=image.integers, has_shift=bool(shift))
    return result.made(*image.steps, step)


def _integers(context: Context, weights: Array) -> int:
    """How many a word is."""
    fits = weights.min() >= _SIGNED.min and weights.max() <= _SIGNED.max
    return 4 if fits and context.host.has_dots else 2


def _bytes(context: Context) -> View:
    x = context.elements(0)
    if x.dtype not in BYTES:
        raise NotLoweredError("there is no kernel for its integers")
    return x


def _stored(context: Context, index: int) -> Array:
    value = context.argument(index)
    if not isinstance(value, np.ndarray):
        raise NotLoweredError("its weights are computed")
    return value


def _zero(context: Context) -> Array | int:
    """The zero points of the weights."""
    value = context.argument(3)
    return value if isinstance(value, np.ndarray | int) else _stored(context, 3)


def _bias(context: Context, channels: int) -> View | Array | None:
    bias = context.argument(4)
    if bias is None:
        return None
    if not isinstance(bias, View | np.ndarray) or bias.dtype != np.int32 or math.prod(bias.shape) != channels:
        raise NotLoweredError("there is no kernel for its bias")
    return bias
