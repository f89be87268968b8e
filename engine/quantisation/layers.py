"""Layers that can be computed with int8: convolutions and linear layers with stored weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import Matmul
from engine.passes.support.facts import Facts
from engine.pnnx import Attribute, Operator, Parameter
from engine.quantisation.histogram import Affine
from engine.tensor import Array

# Largest magnitude of a signed byte that is used: weights are symmetric, so that their zero point is 0.
_LARGEST: Final = 127
_FLOAT32: Final = np.dtype(np.float32)
# Convolution kernels of bytes read two or four channels at a time.
_MAX_SPATIAL_RANK: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantisableLayer:
    """Convolution or linear layer with stored weights.

    Args:
        name: of its operator.
        input, output: operands that it reads and makes.
        weight: output channels first, float32.
        bias: one number an output channel, float32; None without one.
        convolution: the convolution; None for a linear layer.
    """

    name: str
    input: str
    output: str
    weight: Array
    bias: Array | None
    convolution: Conv | None

    def in_float32(self, prefix: str, input: str, output: str) -> Iterator[Operator]:
        """Yield operators that compute the layer in float32, between other operands.

        Args:
            prefix: beginning of all names that are new.
            input, output: operands that it reads and makes.
        """
        yield constant(f"{prefix}/weight", self.weight)
        inputs, labels = [input, f"{prefix}/weight"], ["input", "weight"]
        if self.bias is not None:
            yield constant(f"{prefix}/bias", self.bias)
            inputs, labels = [*inputs, f"{prefix}/bias"], [*labels, "bias"]
        type_, params = "F.linear", dict[str, Parameter]()
        if self.convolution is not None:
            rank = self.convolution.spatial_rank
            type_ = f"F.conv{rank}d"
            params = {**self._window(), "padding": self.convolution.padding, "groups": self.convolution.groups}
        yield Operator(type_, prefix, tuple(inputs), (output,), params, labels=tuple(labels))

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
        if self.convolution is None:
            weight, axis = np.ascontiguousarray(weight.T), 1
        yield constant(f"{prefix}/weight", weight)
        yield constant(f"{prefix}/weight_scale", scales)
        yield constant(f"{prefix}/weight_zero", np.zeros(len(scales), np.int8))
        stored = (f"{prefix}/weight", f"{prefix}/weight_scale", f"{prefix}/weight_zero")
        yield Operator("DequantizeLinear", f"{prefix}/dequantised", stored, (f"{prefix}/dequantised",), {"axis": axis})
        inputs = [input, f"{prefix}/dequantised"]
        if bias is not None:
            yield constant(f"{prefix}/bias", np.asarray(bias, np.float32))
            inputs.append(f"{prefix}/bias")
        if self.convolution is not None:
            yield Operator("Conv", prefix, tuple(inputs), (output,), self._onnx_window())
        elif bias is None:
            yield Operator("torch.matmul", prefix, tuple(inputs), (output,))
        else:
            product = f"{prefix}/product"
            yield Operator("torch.matmul", product, tuple(inputs[:2]), (product,))
            yield Operator("pnnx.Expression", prefix, (product, inputs[2]), (output,), {"expr": "add(@0,@1)"})

    def _window(self) -> dict[str, Parameter]:
        assert self.convolution is not None
        return {"stride": self.convolution.stride, "dilation": self.convolution.dilation}

    def _onnx_window(self) -> dict[str, Parameter]:
        conv = self.convolution
        assert conv is not None
        pairs = conv.padding_of(self.weight.shape[2:])
        return {
            "strides": conv.stride,
            "dilations": conv.dilation,
            "pads": (*(before for before, _ in pairs), *(after for _, after in pairs)),
            "group": conv.groups,
            "kernel_shape": self.weight.shape[2:],
        }


def find_layers(graph: RuntimeGraph) -> list[QuantisableLayer]:
    """Return the layers of a built graph that have an int8 kernel, in execution order."""
    facts = Facts(graph)
    return [layer for op in graph.operators if (layer := _quantisable(op, facts)) is not None]


def per_channel(weight: Array) -> tuple[Array, Array]:
    """Return weights as signed bytes and their scales, one for each of the channels along the first axis."""
    flat = weight.reshape(len(weight), -1)
    largest = np.abs(flat).max(1)
    scales = np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)
    quantised = np.clip(np.rint(flat / scales[:, None]), -_LARGEST, _LARGEST).astype(np.int8)
    return quantised.reshape(weight.shape), scales


def quantise_operators(prefix: str, input: str, affine: Affine) -> Iterator[Operator]:
    """Yield operators that round an operand to bytes and dequantise it, as the operand ``prefix``."""
    scale, zero = f"{prefix}/scale", f"{prefix}/zero"
    yield constant(scale, np.asarray(affine.scale, np.float32))
    yield constant(zero, np.asarray(affine.zero_point, np.uint8))
    yield Operator("QuantizeLinear", f"{prefix}/bytes", (input, scale, zero), (f"{prefix}/bytes",))
    yield Operator("DequantizeLinear", prefix, (f"{prefix}/bytes", scale, zero), (prefix,))


def constant(name: str, data: Array) -> Operator:
    """Return an operator that makes a stored tensor."""
    stored = np.ascontiguousarray(data).reshape(data.shape)
    return Operator("pnnx.Attribute", name, (), (name,), {}, {"data": Attribute(data.shape, data.dtype, stored)})


def _quantisable(op: RuntimeOperator, facts: Facts) -> QuantisableLayer | None:
    layer = op.definition
    if type(layer) not in (Conv, Linear, Matmul) or not op.inputs or not op.outputs:
        return None
    names: Mapping[str, str] = {"input": "input", "weight": "other"} if isinstance(layer, Matmul) else {}
    weight = facts.argument(op, names.get("weight", "weight"))
    bias = None if isinstance(layer, Matmul) else facts.argument(op, "bias")
    given = facts.spec(op.inputs[0])
    if not _is_float32(weight) or not (bias is None or _is_float32(bias)):
        return None
    if given is None or given.dtype != _FLOAT32 or given.shape is None or not weight.size:
        return None
    if isinstance(layer, Conv):
        if not _has_kernel(layer, weight, len(given.shape)):
            return None
    elif weight.ndim != 2 or len(given.shape) < 2 or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    if isinstance(layer, Matmul):
        weight = weight.T
    return QuantisableLayer(
        name=op.name,
        input=op.inputs[0].name,
        output=op.outputs[0].name,
        weight=np.array(weight, np.float32, order="C"),
        bias=None if bias is None else np.array(bias, np.float32),
        convolution=layer if isinstance(layer, Conv) else None,
    )


def _has_kernel(conv: Conv, weight: Array, rank: int) -> bool:
    is_paired = conv.groups == 1 or weight.shape[1] % 2 == 0
    is_plain = conv.padding_mode == "zeros" and rank == conv.spatial_rank + 2
    return is_paired and is_plain and conv.spatial_rank <= _MAX_SPATIAL_RANK


def _is_float32(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == _FLOAT32
