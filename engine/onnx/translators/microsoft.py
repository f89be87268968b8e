"""Operators of onnxruntime's own domain, which its optimisers and quantisers put into files: said in ordinary ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError
from engine.onnx.node import Node
from engine.onnx.registry import Results, translates
from engine.onnx.translators.convolution import conv
from engine.onnx.translators.linear import gemm
from engine.onnx.value import Axis, Size, Value, constant
from engine.tensor import Array

_DOMAIN = "com.microsoft"


@translates("FusedMatMul", "TransposeMatMul", domain=_DOMAIN)
def fused_matmul(node: Node) -> Value | None:
    """alpha * a @ b, with either transposed first if asked for."""
    if node.number("transBatchA", 0) or node.number("transBatchB", 0):
        return None
    a = _turned(node, node.input(0)) if node.number("transA", 0) else node.input(0)
    b = _turned(node, node.input(1)) if node.number("transB", 0) else node.input(1)
    product = node.make("torch.matmul", a, b)
    alpha = node.real("alpha", 1.0)
    return product if alpha == 1.0 else node.expression(f"mul(@0,{alpha!r})", product)


def _turned(node: Node, x: Value) -> Value:
    if x.constant is not None and x.constant.ndim == 2:
        return constant(np.ascontiguousarray(x.constant.T))
    return node.make("torch.transpose", x, dim0=-2, dim1=-1)


def _activated(node: Node, y: Value) -> Value:
    """The activation that was fused with what made a value.

    Raises:
        ParameterError: there is no such activation.
    """
    name, given = node.text("activation", ""), node.attributes.get("activation_params", ())
    plain = {"": None, "Relu": "nn.ReLU", "Sigmoid": "nn.Sigmoid", "Tanh": "nn.Tanh"}
    if name in plain:
        type = plain[name]
        return y if type is None else node.make(type, y)
    numbers = [each for each in given if isinstance(each, (int, float))]
    if name == "LeakyRelu" and len(numbers) == 1:
        return node.make("nn.LeakyReLU", y, negative_slope=float(numbers[0]))
    if name == "Clip" and len(numbers) == 2:
        return node.make("torch.clamp", y, min=float(numbers[0]), max=float(numbers[1]))
    raise ParameterError("unknown fused activation", found=name)


@translates("FusedConv", domain=_DOMAIN)
def fused_conv(node: Node) -> Value:
    """A convolution, a sum where there is one, an activation."""
    inner = _plain(node, "Conv", ("activation", "activation_params"), node.inputs[:3])
    y = _first(conv(inner))
    if node.is_given(3):
        y = node.expression("add(@0,@1)", y, node.input(3))
    return _activated(node, y)


@translates("FusedGemm", domain=_DOMAIN)
def fused_gemm(node: Node) -> Value | None:
    """A product and an activation."""
    fused = [key for key in node.attributes if key.startswith("activation")]
    if len(fused) > 1:
        return None
    return _activated(node, _first(gemm(_plain(node, "Gemm", fused, node.inputs))))


def _first(made: Results) -> Value:
    """The result of an operator that has one."""
    if made is None:
        raise ParameterError("the operator has no result")
    return made if isinstance(made, Value) else made[0]


def _plain(node: Node, type: str, without: Sequence[str], inputs: Sequence[Value | None]) -> Node:
    """The standard's operator that was fused with something."""
    attributes = {key: value for key, value in node.attributes.items() if key not in without}
    return Node(
        type=type, name=node.name, domain="", version=13, inputs=inputs, attributes=attributes,
        outputs=node.outputs[:1], builder=node.builder, body=node.body, inline=node.inline,
    )  # fmt: skip


@translates("Gelu", domain=_DOMAIN)
def gelu(node: Node) -> Value:
    """nn.GELU."""
    return node.make("nn.GELU", node.input(0), approximate="none")


@translates("BiasGelu", domain=_DOMAIN)
def bias_gelu(node: Node) -> Value:
    """nn.GELU of a sum."""
    return node.make("nn.GELU", node.expression("add(@0,@1)", node.input(0), node.input(1)), approximate="none")


@translates("FastGelu", domain=_DOMAIN)
def fast_gelu(node: Node) -> Value:
    """nn.GELU by tanh, of a sum where there is a bias."""
    x = node.input(0)
    x = node.expression("add(@0,@1)", x, node.input(1)) if node.is_given(1) else x
    return node.make("nn.GELU", x, approximate="tanh")


@translates("QuickGelu", domain=_DOMAIN)
def quick_gelu(node: Node) -> Value:
    """x * sigmoid(alpha * x)"""
    x, alpha = node.input(0), node.real("alpha", 1.702)
    gate = node.make("nn.Sigmoid", node.expression(f"mul(@0,{alpha!r})", x))
    return node.expression("mul(@0,@1)", x, gate)


def _normalised(node: Node, x: Value, scale: Value, bias: Value | None, plain: bool = True) -> Value | None:
    """Layer normalisation over the last axis; without the mean (RMS) where it is not plain."""
    weight, shift = scale.constant, None if bias is None else bias.constant
    if weight is None or weight.ndim != 1 or (bias is not None and shift is None):
        return None
    eps = node.real("epsilon", 1e-5 if plain else 1e-6)
    weights = {"weight": weight} if shift is None else {"weight": weight, "bias": shift}
    if plain:
        return node.make(
            "nn.LayerNorm", x, weights=weights, elementwise_affine=True, eps=eps, normalized_shape=weight.shape
        )
    y = node.make("nn.RMSNorm", x, weights={"weight": weight}, elementwise_affine=True, eps=eps,
                  normalized_shape=weight.shape)  # fmt: skip
    return y if shift is None else node.expression("add(@0,@1)", y, constant(shift))


def _skip(node: Node, plain: bool) -> list[Value] | None:
    """The sum of two values, normalised; and the sum."""
    has_shift = plain
    scale, shift = node.input(2), node.optional(3) if has_shift else None
    bias = node.optional(4 if has_shift else 3)
    if any(node.outputs[1:3]):  # statistics are for training
        return None
    total = node.expression("add(@0,@1)", node.input(0), node.input(1))
    total = total if bias is None else node.expression("add(@0,@1)", total, bias)
    y = _normalised(node, total, scale, shift, plain)
    return None if y is None else [y, Value(), Value(), total]


@translates("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_norm(node: Node) -> list[Value] | None:
    """nn.LayerNorm of a sum."""
    return _skip(node, True)


@translates("SkipSimplifiedLayerNormalization", domain=_DOMAIN)
def skip_rms_norm(node: Node) -> list[Value] | None:
    """nn.RMSNorm of a sum."""
    return _skip(node, False)


@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", domain=_DOMAIN)
def rms_norm(node: Node) -> Value | None:
    """nn.RMSNorm."""
    rank = node.input(0).rank
    if any(node.outputs[1:]) or node.number("axis", -1) not in (-1, (rank or 0) - 1):
        return None
    return _normalised(node, node.input(0), node.input(1), None, plain=False)


@translates("EmbedLayerNormalization", domain=_DOMAIN)
def embedded(node: Node) -> list[Value] | None:
    """Rows of tables of words, places and segments, added and normalised."""
    words, segments = node.input(0), node.optional(1)
    places = node.array(3)
    spec = words.tensor
    if any(node.outputs[2:]) or places is None or spec is None or spec.rank != 2 or node.is_given(8):
        return None
    total = node.builder.add("Gather", node.name, [node.input(2), words], params={"axis": 0})[0]
    length: Size = Axis(words, 1) if spec.shape[1] is None else spec.shape[1]
    if isinstance(length, int):
        rows = constant(np.ascontiguousarray(places[:length]))
    else:
        rows = node.builder.add(
            "Tensor.slice", node.name, [constant(places), node.sizes([length])],
            params={"dims": (0,), "starts": (0,), "steps": (1,)}, labels=("input", "ends"),
        )[0]  # fmt: skip
    total = node.expression("add(@0,@1)", total, rows)
    if segments is not None and node.is_given(4):
        found = node.builder.add("Gather", node.name, [node.input(4), segments], params={"axis": 0})[0]
        total = node.expression("add(@0,@1)", total, found)
    y = _normalised(node, total, node.input(5), node.optional(6))
    return None if y is None else [y, Value()]


@translates("MatMulNBits", domain=_DOMAIN)
def matmul_n_bits(node: Node) -> Value | None:
    """nn.Linear whose weight is unpacked when the file is read."""
    bits, block = node.number("bits", 4), node.number("block_size", 0)
    n, k = node.number("N", 0), node.number("K", 0)
    packed, scales, zeros = node.array(1), node.array(2), node.array(3)
    if packed is None or scales is None or (node.is_given(3) and zeros is None) or node.is_given(4):
        return None
    if bits not in (2, 4, 8) or block < 1 or n < 1 or k < 1 or packed.dtype != np.uint8 or scales.dtype.kind != "f":
        return None
    blocks = -(-k // block)
    if packed.size * 8 != n * blocks * block * bits or scales.size != n * blocks:
        raise ParameterError("packed weights do not fit", found=packed.size, expected=f"{n} rows of {k} x {bits} bits")
    bias = node.array(5)
    if node.is_given(5) and bias is None:
        return None
    codes = _codes(packed.reshape(n, -1), bits).reshape(n, blocks, block)
    middle = np.full((n, blocks), 1 << (bits - 1), np.float32)
    if zeros is not None and zeros.dtype == np.uint8:
        middle = _codes(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float32)
    elif zeros is not None:
        middle = zeros.reshape(n, blocks).astype(np.float32)
    wide = (codes.astype(np.float32) - middle[..., None]) * scales.reshape(n, blocks, 1).astype(np.float32)
    weight = np.ascontiguousarray(wide.reshape(n, -1)[:, :k]).astype(scales.dtype)
    stored = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    return node.make("nn.Linear", node.input(0), weights=stored, bias=bias is not None, in_features=k, out_features=n)


def _codes(rows: Array, bits: int) -> Array:
    """Numbers of a few bits, the first in the lowest ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(((rows[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(rows), -1))


def _real(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """What quantised numbers stand for."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands)[0]


def _quantised(node: Node, y: Value, scale: Value | None, zero: Value | None) -> Value:
    """Numbers as the integers that stand for them."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [y, scale] + ([] if zero is None else [zero])
    return node.builder.add("QuantizeLinear", node.name, operands, outputs=node.outputs[:1])[0]


def real_array(codes: Array, scale: Array, zero: Array | None) -> Array:
    """What stored quantised numbers stand for; scales and zero points are one, or one a column."""
    wide = codes.astype(np.float32) - (np.float32(0) if zero is None else zero.astype(np.float32))
    return np.asarray(wide * scale.astype(np.float32), np.float32)


@translates("QGemm", domain=_DOMAIN)
def quantised_gemm(node: Node) -> Value | None:
    """A product of what quantised numbers stand for; quantised where a scale says so."""
    zero, scales = node.array(5), (node.array(1), node.array(4))
    columns = int(zero.size) if zero is not None else 1
    codes = node.array(3)
    if codes is None or scales[0] is None or scales[1] is None or codes.ndim != 2 or scales[0].size != 1:
        return None
    codes = codes.T if node.number("transB", 0) else codes
    if columns not in (1, codes.shape[1]) or (node.is_given(5) and zero is None):
        return None
    alpha = np.float32(node.real("alpha", 1.0))
    weight = real_array(codes, scales[1].reshape(-1), None if zero is None else zero.reshape(-1)) * alpha
    a = _real(node, node.input(0), node.optional(1), node.optional(2))
    y = node.make("torch.matmul", _turned(node, a) if node.number("transA", 0) else a, constant(weight))
    if node.is_given(6):
        step = constant(scales[0].reshape(()) * scales[1].reshape(-1) * alpha)
        bias = node.make("Tensor.to", node.input(6), dtype="torch.float")
        y = node.expression("add(@0,mul(@1,@2))", y, bias, step)
    return _quantised(node, y, node.optional(7), node.optional(8)) if node.is_given(7) else y


@translates("QLinearSoftmax", domain=_DOMAIN)
def quantised_softmax(node: Node) -> Value | None:
    """The softmax of what quantised numbers stand for, quantised."""
    x = _real(node, node.input(0), node.optional(1), node.optional(2))
    if node.number("opset", 13) < 13 or node.number("axis", -1) < -(x.rank or 1):
        return None
    return _quantised(node, node.make("nn.Softmax", x, dim=node.number("axis", -1)), node.input(3), node.optional(4))


_PAIRS = {"QLinearAdd": "add", "QLinearMul": "mul"}


@translates(*_PAIRS, domain=_DOMAIN)
def quantised_pair(node: Node) -> Value:
    """Arithmetic of what quantised numbers stand for, quantised."""
    a = _real(node, node.input(0), node.optional(1), node.optional(2))
    b = _real(node, node.input(3), node.optional(4), node.optional(5))
    y = node.expression(f"{_PAIRS[node.type]}(@0,@1)", a, b)
    return _quantised(node, y, node.optional(6), node.optional(7))


def _quantised_curve(type: str, **params: Any) -> Callable[[Node], Value]:
    def translator(node: Node) -> Value:
        x = _real(node, node.input(0), node.optional(1), node.optional(2))
        given: dict[str, Any] = {key: node.real(name, default) for key, (name, default) in params.items()}
        return _quantised(node, node.make(type, x, **given), node.optional(3), node.optional(4))

    return translator


translates("QLinearSigmoid", domain=_DOMAIN)(_quantised_curve("nn.Sigmoid"))
translates("QLinearLeakyRelu", domain=_DOMAIN)(_quantised_curve("nn.LeakyReLU", negative_slope=("alpha", 0.01)))


@translates("QLinearGlobalAveragePool", domain=_DOMAIN)
def quantised_average(node: Node) -> Value | None:
    """The mean of each channel of what quantised numbers stand for, quantised."""
    if node.number("channels_last", 0):
        return None
    x = _real(node, node.input(0), node.optional(1), node.optional(2))
    y = node.builder.add("GlobalAveragePool", node.name, [x])[0]
    return _quantised(node, y, node.optional(3), node.optional(4))


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


@translates("QLinearAveragePool", domain=_DOMAIN)
def quantised_average_pool(node: Node) -> Value | None:
    """The mean of each window of what quantised numbers stand for, quantised."""
    if node.number("channels_last", 0):
        return None
    x = _real(node, node.input(0), node.optional(1), node.optional(2))
    params = {name: node.attributes[name] for name in _POOL if name in node.attributes}
    y = node.builder.add("AveragePool", node.name, [x], params=params)[0]
    return _quantised(node, y, node.optional(3), node.optional(4))


@translates("QLinearConcat", domain=_DOMAIN)
def quantised_concat(node: Node) -> Value:
    """Quantised numbers joined, in one scale."""
    rows = range(2, len(node.inputs) - 2, 3)
    parts = [_real(node, node.input(k), node.optional(k + 1), node.optional(k + 2)) for k in rows]
    y = node.make("torch.cat", *parts, dim=node.number("axis", 0))
    return _quantised(node, y, node.optional(0), node.optional(1))


@translates("MatMulIntegerToFloat", domain=_DOMAIN)
def integer_matmul(node: Node) -> Value:
    """The product of what quantised numbers stand for."""
    a = _real(node, node.input(0), node.optional(2), node.optional(4))
    b = _columns(node, node.input(1), node.optional(3), node.optional(5))
    y = node.make("torch.matmul", a, b)
    return node.expression("add(@0,@1)", y, node.input(6)) if node.is_given(6) else y


@translates("DynamicQuantizeMatMul", domain=_DOMAIN)
def dynamic_matmul(node: Node) -> Value:
    """A product with the first matrix rounded to bytes, by its own extremes."""
    parts = node.builder.add("DynamicQuantizeLinear", node.name, [node.input(0)], outputs=("", "", ""))
    a = _real(node, *parts)
    b = _columns(node, node.input(1), node.optional(2), node.optional(3))
    y = node.make("torch.matmul", a, b)
    return node.expression("add(@0,@1)", y, node.input(4)) if node.is_given(4) else y


def _columns(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """What quantised numbers stand for, whose scale may be one a column."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands, params={"axis": -1})[0]


@translates("DynamicQuantizeLSTM", domain=_DOMAIN)
def quantised_lstm(node: Node) -> list[Value] | None:
    """An LSTM with the numbers that its weights stand for."""
    weights = []
    for place, scale, zero in ((1, 8, 9), (2, 10, 11)):
        found = [node.array(k) for k in (place, scale, zero)]
        if any(each is None for each in found):
            return None
        codes, step, middle = (each.astype(np.float32) for each in found if each is not None)
        shape = (-1, 1, step.shape[1] if step.ndim == 2 else 1)
        step, middle = (each.reshape(shape) for each in (step, middle))
        weights.append(constant(np.ascontiguousarray(((codes - middle) * step).swapaxes(1, 2)).astype(np.float32)))
    inputs = [node.input(0), *weights, *[node.optional(k) for k in range(3, 8)]]
    given = [value for value in inputs if value is not None]
    names = ("hidden_size", "direction", "clip", "activations", "activation_alpha", "activation_beta")
    params = {key: node.attributes[key] for key in names if key in node.attributes}
    count = max((k + 1 for k, name in enumerate(node.outputs) if name), default=1)
    return node.builder.add("DynamicQuantizeLSTM", node.name, given, outputs=tuple(node.outputs[:count]), params=params)


@translates("QuantizeLinear", "DequantizeLinear", "Trilu", domain=_DOMAIN)
def as_it_is(node: Node) -> list[Value]:
    """As in the standard."""
    return node.same()
