"""Linear layers with weights of a few bits in blocks."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.convolution.block_product import BlockProduct, is_in_words
from engine.compiler.kernels.kernel import Strides
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters
from engine.compiler.lowering.rules.convolution.conv_kernels import direct
from engine.compiler.lowering.rules.products.linear import rows_as_image, spaced
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, dense_strides
from engine.ir.dims import is_symbolic
from engine.layers.linear.block_linear import BlockLinear
from engine.tensor import Array


@kernels_for(BlockLinear, rows=True)
def lower_block_linear(context: Context) -> Lowered:
    """Lower a product of rows with packed weights."""
    layer, x = context.layer(BlockLinear), context.tensor(0)
    weight, scales, zeros, bias = (_stored(context, index) for index in range(1, 5))
    if weight is None or scales is None or is_symbolic(x.shape[-1]) or not is_in_words(layer.bits, layer.block_size):
        raise NotLoweredError("its weights are not packed in words")
    rows, copies = context.rows(x)
    result = context.fuse(rows_as_image, is_image=False)
    rows, spacing = spaced(context, rows, len(weight))
    filters = np.broadcast_to(np.float32(0), (len(weight), rows.shape[-1], 1, 1, 1))
    source, target = Strides(0, 0, rows.strides[0]), dense_strides(result.image)
    plain = direct(context, result, ConvParameters(kernel=(1, 1)), filters, source, target)
    kernel = BlockProduct.of(plain, layer.bits, layer.block_size, has_zeros=zeros is not None)
    packed = context.lowering.packed(
        kernel.packing, (weight, scales, zeros, bias), lambda: kernel.pack(kernel.lines(weight, scales, zeros), bias)
    )
    return result.lowered(*copies, *spacing, result.step(kernel, [rows, packed]))


def _stored(context: Context, index: int) -> Array | None:
    """Return an argument whose value is known now, or None if it is left out."""
    value = context.argument(index)
    if value is not None and not isinstance(value, np.ndarray):
        raise NotLoweredError("its weights are not constant")
    return value
