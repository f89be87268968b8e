"""Layers that can be computed with int8: convolutions and linear layers with stored weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final

import numpy as np

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import Matmul
from engine.passes.support.byte_products import has_byte_kernel, is_in_blocks
from engine.passes.support.facts import Facts
from engine.passes.support.rewriting import tensor
from engine.pnnx import Operator, Parameter
from engine.quantisation.histogram import Affine
from engine.tensor import Array

LARGEST: Final = 127
"""Largest magnitude of a signed byte that is used: weights are symmetric, so that their zero point is 0."""

_FLOAT32: Final = np.dtype(np.float32)
_LABELS: Final = ("input", "weight", "bias")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantisableLayer:
    """Convolution or linear layer with stored weights.

    Args:
        name: of its operator.
        input, output: operands that it reads and makes.
        weight: output channels first, float32.
        bias: one number an output channel, float32; None without one.
        convolution: the convolution, also a transposed one; None for a linear layer.
    """

    name: str
    input: str
    output: str
    weight: Array
    bias: Array | None
    convolution: Conv | ConvTranspose | None

    @property
    def spatial_rank(self) -> int:
        """Number of axes after the channels of an input; 0 for a linear layer."""
        return 0 if self.convolution is None else self.convolution.spatial_rank

    @property
    def groups(self) -> int:
        """Number of groups of input channels, each with weights for some of the output channels."""
        return self.convolution.groups if isinstance(self.convolution, Conv) else 1

    @property
    def channel_axis(self) -> int:
        """Axis of the channels of inputs and outputs, counted from the last."""
        return -1 - self.spatial_rank

    def multiplied(self, factors: Array) -> QuantisableLayer:
        """Return the layer with the weights of each input channel multiplied by a factor."""
        grouped = self.weight.reshape(self.groups, -1, *self.weight.shape[1:])
        scaled = grouped * factors.reshape(self.groups, 1, -1, *[1] * self.spatial_rank)
        return with_fields(self, weight=scaled.reshape(self.weight.shape))

    def in_int8(self, prefix: str, input: str, output: str, correction: Array | None = None) -> Iterator[Operator]:
        """Yield operators that compute the layer with quantised weights from an operand that was dequantised.

        Args:
            prefix: beginning of all names that are new, and the name of the operator that makes the output.
            input, output: operands that it reads and makes.
            correction: added to the bias, one number an output channel.
        """
        bias = self.bias if correction is None else (0 if self.bias is None else self.bias) + correction
        weight, scales = per_channel(self.weight)
        axis = 0
        if not isinstance(self.convolution, Conv):
            weight, axis = weight.swapaxes(0, 1), 1
        stored = (f"{prefix}/weight", f"{prefix}/weight_scale", f"{prefix}/weight_zero")
        for name, values in zip(stored, (weight, scales, np.zeros(len(scales), np.int8)), strict=True):
            yield tensor(name, values)
        yield Operator("DequantizeLinear", f"{prefix}/dequantised", stored, (f"{prefix}/dequantised",), {"axis": axis})
        inputs = (input, f"{prefix}/dequantised", *([] if bias is None else [f"{prefix}/bias"]))
        if bias is not None:
            yield tensor(f"{prefix}/bias", np.asarray(bias, np.float32))
        if self.convolution is not None:
            yield _convolution(self.convolution, prefix, inputs, output)
        elif bias is None:
            yield Operator("torch.matmul", prefix, inputs, (output,))
        else:
            product = f"{prefix}/product"
            yield Operator("torch.matmul", product, inputs[:2], (product,))
            yield Operator("pnnx.Expression", prefix, (product, inputs[2]), (output,), {"expr": "add(@0,@1)"})


def find_layers(graph: RuntimeGraph) -> list[QuantisableLayer]:
    """Return the layers of a built graph that have an int8 kernel, in execution order."""
    facts = Facts(graph)
    return [layer for op in graph.operators if (layer := _quantisable(op, facts)) is not None]


def per_channel(weight: Array) -> tuple[Array, Array]:
    """Return weights as signed bytes and their scales, one for each of the channels along the first axis."""
    flat = weight.reshape(len(weight), -1)
    largest = np.abs(flat).max(1)
    scales = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    quantised = np.clip(np.rint(flat / scales[:, None]), -LARGEST, LARGEST).astype(np.int8)
    return quantised.reshape(weight.shape), scales


def quantise_operators(prefix: str, input: str, affine: Affine) -> Iterator[Operator]:
    """Yield operators that round an operand to bytes and dequantise it, as the operand ``prefix``."""
    scale, zero = f"{prefix}/scale", f"{prefix}/zero"
    yield tensor(scale, np.asarray(affine.scale, np.float32))
    yield tensor(zero, np.asarray(affine.zero_point, np.uint8))
    yield Operator("QuantizeLinear", f"{prefix}/bytes", (input, scale, zero), (f"{prefix}/bytes",))
    yield Operator("DequantizeLinear", prefix, (f"{prefix}/bytes", scale, zero), (prefix,))


def _convolution(conv: Conv | ConvTranspose, name: str, inputs: tuple[str, ...], output: str) -> Operator:
    """Return a convolution between other operands: input, weight and, if there is one, bias."""
    params: dict[str, Parameter] = {
        "stride": conv.stride,
        "padding": conv.padding,
        "dilation": conv.dilation,
        "groups": conv.groups,
    }
    kind = "conv" if isinstance(conv, Conv) else "conv_transpose"
    return Operator(f"F.{kind}{conv.spatial_rank}d", name, inputs, (output,), params, labels=_LABELS[: len(inputs)])


def _quantisable(op: RuntimeOperator, facts: Facts) -> QuantisableLayer | None:
    layer = op.definition
    if type(layer) not in (Conv, ConvTranspose, Linear, Matmul) or not op.inputs or not op.outputs:
        return None
    weight = facts.argument(op, "other" if isinstance(layer, Matmul) else "weight")
    bias = None if isinstance(layer, Matmul) else facts.argument(op, "bias")
    given = facts.spec(op.inputs[0])
    if not _is_float32(weight) or not (bias is None or _is_float32(bias)):
        return None
    if given is None or given.dtype != _FLOAT32 or given.shape is None or not weight.size:
        return None
    if isinstance(layer, Conv):
        if len(given.shape) != layer.spatial_rank + 2 or not has_byte_kernel(layer, weight):
            return None
    elif isinstance(layer, ConvTranspose):
        if len(given.shape) != weight.ndim or not is_in_blocks(layer, weight):
            return None
    elif weight.ndim != 2 or len(given.shape) < 2 or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    if isinstance(layer, Matmul | ConvTranspose):
        weight = weight.swapaxes(0, 1)
    return QuantisableLayer(
        name=op.name,
        input=op.inputs[0].name,
        output=op.outputs[0].name,
        weight=np.array(weight, np.float32, order="C"),
        bias=None if bias is None else np.array(bias, np.float32),
        convolution=layer if isinstance(layer, Conv | ConvTranspose) else None,
    )


def _is_float32(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == _FLOAT32
