"""Facts about a convolution or product of bytes: its weights, a bound of its sums, whether it has a kernel."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.errors import EngineError
from engine.graph import RuntimeOperand, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.onnx.products.conv import Windowed, distances
from engine.layers.onnx.products.matmul import centred_columns
from engine.layers.operands.spatial import spread
from engine.passes.support.facts import Facts, input_named
from engine.tensor import Array, DType

BYTES: Final = (np.dtype(np.uint8), np.dtype(np.int8))
WIDEST: Final = 255
OPERANDS: Final = {
    "ConvInteger": ("input", "weight", "x_zero_point", "w_zero_point"),
    "MatMulInteger": ("a", "b", "a_zero_point", "b_zero_point"),
}
"""Names of input, weight and their zero points, by the operator's class."""


def is_of_bytes(operand: RuntimeOperand | None, facts: Facts, size: int | None = None) -> bool:
    """Return whether an operand is a tensor of 8-bit integers, of ``size`` elements if that is given."""
    spec = None if operand is None else facts.spec(operand)
    return spec is not None and spec.dtype in BYTES and size in (None, spec.size)


def coding_of(op: RuntimeOperator, facts: Facts) -> tuple[float, int, DType] | None:
    """Return scale, zero point and dtype of bytes of a QuantizeLinear or DequantizeLinear; None for others.

    They are known, and the same for the whole tensor.
    """
    scale, zero = (facts.argument(op, name) for name in ("scale", "zero_point"))
    if not all(isinstance(each, np.ndarray) and each.size == 1 for each in (scale, zero)) or len(op.inputs) != 3:
        return None
    step = float(scale.reshape(()))
    if scale.dtype != np.float32 or not 0 < step < np.inf or zero.dtype not in BYTES:
        return None
    return step, int(zero.reshape(())), zero.dtype


def weights_of(op: RuntimeOperator, facts: Facts) -> Array | None:
    """Return stored weights minus their zero points, an output channel a row of int64; None for others."""
    names = OPERANDS[type(op.definition).__name__]
    weight, zero = (facts.argument(op, name) for name in (names[1], names[3]))
    if not isinstance(weight, np.ndarray) or weight.dtype not in BYTES or not isinstance(zero, np.ndarray | int):
        return None
    try:
        if isinstance(op.definition, Windowed):
            return distances(weight, zero, names[3], 0)
        return centred_columns(weight, zero, names[3]).T if weight.ndim == 2 else None
    except EngineError:  # a run reports it
        return None


def most_of(weights: Array, bias: Array | None = None) -> int:
    """Return a bound of the absolute value of all sums."""
    sums = WIDEST * np.abs(weights.reshape(len(weights), -1)).sum(1)
    return int((sums if bias is None else sums + np.abs(bias.astype(np.int64))).max(initial=0))


def has_kernel(op: RuntimeOperator, weights: Array, facts: Facts) -> bool:
    """Return whether the compiler has a kernel for the product with float sums."""
    names, layer = OPERANDS[type(op.definition).__name__], op.definition
    zero = facts.argument(op, names[2])
    is_single = isinstance(zero, np.ndarray | int) and np.size(zero) == 1
    if not is_of_bytes(input_named(op, names[0]), facts) or not weights.size:
        return False
    if not is_single and not is_of_bytes(input_named(op, names[2]), facts, 1):
        return False
    return not isinstance(layer, Windowed) or (weights.ndim <= 5 and layer.auto_pad in ("NOTSET", "VALID"))


def has_byte_kernel(conv: Conv, weight: Array) -> bool:
    """Return whether a kernel of bytes computes a convolution."""
    return weight.ndim <= 5 and conv.padding_mode == "zeros"


def is_in_blocks(layer: ConvTranspose, weight: Array) -> bool:
    """Return whether every pixel becomes a square block of its own by a transposed convolution."""
    if weight.ndim != 4 or weight.shape[2] != weight.shape[3] or weight.shape[2] == 1 or layer.groups != 1:
        return False
    names = "stride", "padding", "output_padding", "dilation"
    rows = {name: spread(getattr(layer, name), 2, name, 0) for name in names}
    is_plain = set(rows["padding"]) == set(rows["output_padding"]) == {0} and set(rows["dilation"]) == {1}
    return is_plain and tuple(rows["stride"]) == weight.shape[2:]


def is_depthwise(weight: Array, groups: int) -> bool:
    """Return whether every channel of an image or a signal is convolved by itself."""
    return weight.ndim in (3, 4) and weight.shape[1] == 1 and 1 < groups == len(weight)


def is_exact_in_float32(weight: Array, bias: Array | None = None) -> bool:
    """Return whether float32 holds every partial sum of bytes times these weights, also if bytes are not centred."""
    return 2 * most_of(weight.astype(np.int64), bias) < 2**24
