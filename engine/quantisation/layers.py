"""Layers that can be computed in fewer bits: with int8 those with stored weights, with bfloat16 attention as well."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import ClassVar, Final

import numpy as np

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.attention.attention import ScaledDotProductAttention
from engine.layers.attention.multihead import MultiheadAttention
from engine.layers.convolution.conv import Conv
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.elementwise.piecewise import Hardtanh, ReLU
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import Matmul
from engine.layers.normalisation.softmax import Softmax
from engine.layers.recurrent.recurrent import Recurrent
from engine.passes.support.byte_products import has_byte_kernel, is_in_blocks
from engine.passes.support.facts import Facts, input_named, only_consumer, stored_tensor
from engine.passes.support.rewriting import stored, tensor
from engine.pnnx import Operator, Parameter
from engine.quantisation.histogram import Affine
from engine.tensor import Array

LARGEST: Final = 127
"""Largest magnitude of a signed byte that is used: weights are symmetric, so that their zero point is 0."""

_FLOAT32: Final = np.dtype(np.float32)
# Beginnings of the names of a recurrent network's weights that become int8.
_MULTIPLIED: Final = ("weight_ih", "weight_hh")
_LABELS: Final = ("input", "weight", "bias")
# Operators between the softmax and a product of attention.
_MOST_STEPS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantisableLayer:
    """Layer that multiplies, and may do so in fewer bits.

    Args:
        operators: of the graph that compute it, in execution order; it is named after the last.

    Attributes:
        rounds_input: whether with int8 it rounds its float32 input itself.
    """

    rounds_input: ClassVar[bool] = False
    operators: tuple[RuntimeOperator, ...]

    @property
    def name(self) -> str:
        """Name of the operator that makes its output."""
        return self.operators[-1].name

    @property
    def input(self) -> str:
        """Operand that is multiplied first."""
        return self.operators[0].inputs[0].name

    @property
    def output(self) -> str:
        """Operand that it makes."""
        return self.operators[-1].outputs[0].name

    @property
    def result(self) -> str:
        """The output of a convolution, or that of the rectifier that alone reads it; empty for other layers."""
        return ""

    @property
    def channel_axis(self) -> int:
        """Axis of the channels of inputs and outputs, counted from the last."""
        return -1


class Int8Layer(QuantisableLayer, ABC):
    """Layer with stored weights, which may become int8."""

    __slots__ = ()

    @property
    @abstractmethod
    def saved_bytes(self) -> int:
        """Bytes by which its weights become smaller with int8."""

    @abstractmethod
    def in_int8(
        self, prefix: str, input: str, output: str, scale: np.float32, correction: Array | None = None
    ) -> Iterator[Operator]:
        """Yield operators that compute the layer with quantised weights from its input, rounded if it does not do so.

        Args:
            prefix: beginning of all names that are new, and the name of the operator that makes the output.
            input, output: operands that it reads and makes.
            scale: that of the input.
            correction: added to the bias, one number an output channel.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantisableProduct(Int8Layer):
    """Convolution or linear layer.

    Args:
        weight: output channels first, float32.
        bias: one number an output channel, float32; None without one.
        convolution: the convolution, also a transposed one; None for a linear layer.
    """

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
        return -1 - self.spatial_rank

    @property
    def result(self) -> str:
        if self.convolution is None:
            return ""
        output = self.operators[0].outputs[0]
        reader = only_consumer(output)
        if reader is not None and isinstance(reader.definition, ReLU | Hardtanh):
            return reader.outputs[0].name
        return output.name

    @property
    def saved_bytes(self) -> int:
        return self.weight.nbytes - self.weight.size - 4 * len(self.weight)

    def multiplied(self, factors: Array) -> QuantisableProduct:
        """Return the layer with the weights of each input channel multiplied by a factor."""
        grouped = self.weight.reshape(self.groups, -1, *self.weight.shape[1:])
        scaled = grouped * factors.reshape(self.groups, 1, -1, *[1] * self.spatial_rank)
        return with_fields(self, weight=scaled.reshape(self.weight.shape))

    def in_int8(
        self, prefix: str, input: str, output: str, scale: np.float32, correction: Array | None = None
    ) -> Iterator[Operator]:
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
            yield from _bias(f"{prefix}/bias", np.asarray(bias, np.float32), scale * scales)
        if self.convolution is not None:
            yield _convolution(self.convolution, prefix, inputs, output)
        elif bias is None:
            yield Operator("torch.matmul", prefix, inputs, (output,))
        else:
            product = f"{prefix}/product"
            yield Operator("torch.matmul", product, inputs[:2], (product,))
            yield Operator("pnnx.Expression", prefix, (product, inputs[2]), (output,), {"expr": "add(@0,@1)"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantisableNetwork(Int8Layer):
    """LSTM, GRU or plain recurrent network. With int8 it rounds each row that it multiplies.

    Args:
        weights: by name.
        states: operands of the initial states, by the names of its arguments; zeros for others.
    """

    rounds_input: ClassVar[bool] = True
    weights: Mapping[str, Array]
    states: Mapping[str, str]

    @property
    def saved_bytes(self) -> int:
        found = [each for name, each in self.weights.items() if name.startswith(_MULTIPLIED)]
        return sum(each.nbytes - each.size - 4 * len(each) for each in found)

    def in_int8(
        self, prefix: str, input: str, output: str, scale: np.float32, correction: Array | None = None
    ) -> Iterator[Operator]:
        weights, op, is_own = dict(self.weights), self.operators[0], prefix == self.name
        for name, each in self.weights.items():
            if name.startswith(_MULTIPLIED):
                weights[name], weights[name.replace("weight", "scale")] = per_channel(each)
        others = [each.name if is_own else f"{prefix}/{k}" for k, each in enumerate(op.outputs[1:])]
        attributes = {name: stored(each) for name, each in weights.items()}
        kind, params = f"nn.{type(op.definition).__name__}", {**op.params, "rounds": "each"}
        inputs, labels = (input, *self.states.values()), ("input", *self.states)
        yield Operator(kind, prefix, inputs, (output, *others), params, attributes, labels=labels)


def find_layers(graph: RuntimeGraph) -> list[Int8Layer]:
    """Return the layers of a built graph that have an int8 kernel, in execution order."""
    facts = Facts(graph)
    return [layer for op in graph.operators if (layer := _quantisable(op, facts)) is not None]


def find_products(graph: RuntimeGraph) -> list[QuantisableLayer]:
    """Return the layers of a built graph that may multiply bfloat16, also those without an int8 kernel.

    These are attention, as an operator or as softmax between two products, and convolutions and recurrent networks.
    """
    layers = {layer.name: layer for layer in find_layers(graph)}
    groups = [(op,) if isinstance(op.definition, Conv | Recurrent) else _attention(op) for op in graph.operators]
    others = [QuantisableLayer(operators=each) for each in groups if each and each[-1].name not in layers]
    return [*layers.values(), *others]


def per_channel(weight: Array) -> tuple[Array, Array]:
    """Return weights as signed bytes and their scales, one for each of the channels along the first axis."""
    flat = weight.reshape(len(weight), -1)
    largest = np.abs(flat).max(1)
    scales = np.where(largest > LARGEST * np.finfo(np.float32).tiny, largest / LARGEST, 1).astype(np.float32)
    quantised = np.clip(np.rint(flat / scales[:, None]), -LARGEST, LARGEST).astype(np.int8)
    return quantised.reshape(weight.shape), scales


def quantise_operators(prefix: str, input: str, affine: Affine) -> Iterator[Operator]:
    """Yield operators that round an operand to bytes and dequantise it, as the operand ``prefix``."""
    scale, zero = f"{prefix}/scale", f"{prefix}/zero"
    yield tensor(scale, np.asarray(affine.scale, np.float32))
    yield tensor(zero, np.asarray(affine.zero_point, np.uint8))
    yield Operator("QuantizeLinear", f"{prefix}/bytes", (input, scale, zero), (f"{prefix}/bytes",))
    yield Operator("DequantizeLinear", prefix, (f"{prefix}/bytes", scale, zero), (prefix,))


def _bias(name: str, bias: Array, scales: Array) -> Iterator[Operator]:
    """Yield operators that make a bias: integers with the scales of the sums, unless one does not fit into 32 bits."""
    whole = np.rint(np.divide(bias, scales, out=np.full(bias.shape, np.inf), where=scales > 0, dtype=np.float64))
    if not np.abs(whole).max(initial=0) < 2**31:
        yield tensor(name, bias)
        return
    stored = (f"{name}/integers", f"{name}/scale", f"{name}/zero")
    for each, values in zip(stored, (whole.astype(np.int32), scales, np.zeros(len(scales), np.int32)), strict=True):
        yield tensor(each, values)
    yield Operator("DequantizeLinear", name, stored, (name,), {"axis": 0})


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


def _attention(op: RuntimeOperator) -> tuple[RuntimeOperator, ...]:
    """Return the operators of the attention whose only operator, or whose softmax, this is; none for others."""
    if isinstance(op.definition, ScaledDotProductAttention | MultiheadAttention):
        return (op,)
    before = _scores(op) if isinstance(op.definition, Softmax) else []
    after = _weighted(op) if before else []
    return (*before, op, *after) if after else ()


def _scores(op: RuntimeOperator, steps: int = _MOST_STEPS) -> list[RuntimeOperator]:
    """Return the operators from a product of two computed tensors to the one before this; none without a product."""
    for operand in op.inputs:
        maker = operand.producer
        if maker is None or only_consumer(operand) is not op:
            continue
        before = [] if _is_product(maker) or not steps else _scores(maker, steps - 1)
        if before or _is_product(maker):
            return [*before, maker]
    return []


def _weighted(op: RuntimeOperator) -> list[RuntimeOperator]:
    """Return the operators after this one up to the only product that they end in; none for others."""
    found: dict[str, RuntimeOperator] = {}
    waiting = [op]
    while waiting and len(found) <= _MOST_STEPS:
        users = [each for each in waiting.pop().successors if each.name not in found]
        found |= {each.name: each for each in users}
        waiting += [each for each in users if not _is_product(each)]
    after = sorted(found.values(), key=lambda each: each.index)
    is_inside = not waiting and all(each.layer is not None for each in after)
    return after if is_inside and [*filter(_is_product, after)] == after[-1:] else []


def _is_product(op: RuntimeOperator) -> bool:
    return isinstance(op.definition, Matmul) and all(stored_tensor(each) is None for each in op.inputs)


def _quantisable(op: RuntimeOperator, facts: Facts) -> Int8Layer | None:
    layer = op.definition
    if isinstance(layer, Recurrent):
        return _network(op, layer, facts)
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
    return QuantisableProduct(
        operators=(op,),
        weight=np.array(weight, np.float32, order="C"),
        bias=None if bias is None else np.array(bias, np.float32),
        convolution=layer if isinstance(layer, Conv | ConvTranspose) else None,
    )


def _network(op: RuntimeOperator, layer: Recurrent, facts: Facts) -> QuantisableNetwork | None:
    assert op.layer is not None
    found = {
        name: each.constant if each.index is None else facts.value(op.inputs[each.index])
        for name, each in op.layer.keywords.items()
    }
    weights = {name: each for name, each in found.items() if isinstance(each, np.ndarray) and each.dtype == _FLOAT32}
    begun = [name for each in layer.state_names if not _is_zero(facts.argument(op, name := f"initial_{each}"))]
    states = {name: operand for name in begun if (operand := input_named(op, name)) is not None}
    if facts.argument(op, "lengths") is not None or len(weights) < len(found) or len(states) < len(begun):
        return None
    specs = [facts.spec(each) for each in (op.inputs[0], *states.values())]
    if any(each is None or each.dtype != _FLOAT32 or each.shape is None for each in specs):
        return None
    names = {argument: operand.name for argument, operand in states.items()}
    return QuantisableNetwork(operators=(op,), weights=weights, states=names)


def _is_zero(state: object) -> bool:
    """Return whether a network begins with zeros."""
    return state is None or (isinstance(state, np.ndarray) and not state.any())


def _is_float32(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == _FLOAT32
