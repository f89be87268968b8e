"""Recurrent networks, a node for each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.layers.recurrent import recurrent
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import INT32, Writer
from engine.promotion import float_dtype
from engine.tensor import DType

_ORDERS: Final = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""Place in PyTorch's order of each gate of ONNX's: i, o, f, c for LSTM, and z, r, h for GRU."""
_PEEPHOLES: Final = (0, 2, 1)
_NAMES: Final = ("Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid",
                 "Elu", "Softsign", "Softplus")  # fmt: skip


@writes(recurrent.LSTM)
def lstm(
    to: Writer,
    layer: recurrent.LSTM,
    input: Value,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    lengths: Value | None = None,
    **weights: Value,
) -> Any:
    if layer.proj_size:
        to.refuse("ONNX has no LSTM with a projection", "train the network without proj_size")
    options = {"input_forget": 1 if layer.couples_gates else None}
    return _network(to, layer, input, [initial_h, initial_c], lengths, weights, options)


@writes(recurrent.GRU, recurrent.RNN)
def gru(
    to: Writer,
    layer: recurrent.GRU | recurrent.RNN,
    input: Value,
    initial_h: Value | None = None,
    lengths: Value | None = None,
    **weights: Value,
) -> Any:
    resets_last = isinstance(layer, recurrent.GRU) and not layer.resets_first
    return _network(
        to, layer, input, [initial_h], lengths, weights, {"linear_before_reset": 1 if resets_last else None}
    )


def _network(
    to: Writer,
    layer: recurrent.Recurrent,
    input: Value,
    states: Sequence[Value | None],
    lengths: Value | None,
    weights: Mapping[str, Value],
    options: Mapping[str, Any],
) -> Any:
    """Write all layers; ONNX has the steps first, and the directions of an output before its batch."""
    dtype, kind = float_dtype(input.dtype), type(layer).__name__
    x = to.cast(input, dtype)
    is_single, directions = input.rank == 2, len(layer.suffixes)
    x = to.unsqueeze(x, 1) if is_single else to.transpose(x, (1, 0, 2)) if layer.batch_first else x
    starts = [None if each is None else to.cast(each, dtype) for each in states]
    starts = [each if each is None or not is_single else to.unsqueeze(each, 1) for each in starts]
    ends = None if lengths is None else to.cast(lengths, INT32)
    direction = "bidirectional" if layer.bidirectional else "reverse" if layer.reverse else None
    attributes = {"hidden_size": layer.hidden_size, "direction": direction, "clip": layer.clip, **_activations(layer)}
    finals: list[Sequence[Value]] = []
    for index in range(layer.num_layers):
        own = [None if each is None else _slice(to, each, index, directions, layer.num_layers) for each in starts]
        *cell, peepholes = _weights(to, kind, layer, weights, index, dtype)
        inputs = [x, *cell, ends, *own, *([peepholes] if kind == "LSTM" else [])]
        y, *last = to.ops(kind, inputs, [None] * (1 + len(states)), **attributes, **options)
        if directions == 1:  # (T, D, B, H) -> (T, B, D * H)
            x = to.op("Squeeze", y, [1])
        else:
            x = to.op("Reshape", to.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, -1])
        finals.append(last)
    final = [each[0] if len(each) == 1 else to.op("Concat", *each, axis=0) for each in zip(*finals, strict=True)]
    if is_single:
        x, *final = (to.op("Squeeze", each, [1]) for each in (x, *final))
    elif layer.batch_first:
        x = to.op("Transpose", x, perm=[1, 0, 2])
    found = dict(zip(("output", *layer.state_names), (x, *final), strict=True))
    results = tuple(found[name] for name in layer.outputs)
    return results[0] if len(results) == 1 else results


def _activations(layer: recurrent.Recurrent) -> dict[str, Any]:
    if layer.is_usual and layer.usual != ("relu",):
        return {}
    by_name = {name.lower(): name for name in _NAMES}
    names = [by_name[name.lower()] for name in layer.activations or layer.usual]
    return {
        "activations": names * len(layer.suffixes) if len(names) == len(layer.usual) else names,
        "activation_alpha": list(layer.activation_alpha) or None,
        "activation_beta": list(layer.activation_beta) or None,
    }


def _slice(to: Writer, states: Value, index: int, directions: int, layers: int) -> Value:
    return states if layers == 1 else to.slice(states, 0, index * directions, (index + 1) * directions)


def _weights(
    to: Writer, kind: str, layer: recurrent.Recurrent, weights: Mapping[str, Value], index: int, dtype: DType
) -> list[Value | None]:
    """Return W, R, B and P of a layer: (D, rows, columns), rows in ONNX's order of gates."""

    def own(name: str, end: str, order: Sequence[int]) -> Value:
        weight, scale = weights[f"{name}_{end}"], weights.get(f"{name.replace('weight', 'scale')}_{end}")
        if scale is None or scale is weight:
            return _ordered(to, to.cast(weight, dtype), order)
        to.require(20 if weight.dtype == np.int8 else 21)
        pair = [_ordered(to, each, order) for each in (weight, scale)]
        codes, scale = (each if each.constant is None else to.store(each.constant) for each in pair)
        return to.cast(to.op("DequantizeLinear", codes, scale, dtype=scale.dtype, shape=codes.sizes, axis=0), dtype)

    def stacked(name: str, order: Sequence[int]) -> Value | None:
        if f"{name}_l{index}" not in weights:
            return None
        rows = [own(name, f"l{index}{each}", order) for each in layer.suffixes]
        constants = [each.constant for each in rows if each.constant is not None]
        if len(constants) == len(rows):
            return to.store(np.stack(constants), f"{to.scope}.{name}_l{index}")
        parts = [to.unsqueeze(each, 0) for each in rows]
        return parts[0] if len(parts) == 1 else to.op("Concat", *parts, axis=0)

    order, bias = _ORDERS[kind], None
    w, r, *biases = (stacked(name, order) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    both = [each for each in biases if each is not None]
    constants = [each.constant for each in both if each.constant is not None]
    if len(constants) == 2:
        bias = to.store(np.concatenate(constants, 1), f"{to.scope}.bias_l{index}")
    elif both:
        bias = to.op("Concat", *both, axis=1)
    return [w, r, bias, stacked("weight_peephole", _PEEPHOLES)]


def _ordered(to: Writer, weights: Value, order: Sequence[int]) -> Value:
    """Return rows of gates in another order."""
    (rows,) = to.known(weights.shape[:1], "the number of units")
    places = np.arange(rows).reshape(len(order), -1)[list(order)].reshape(-1)
    if weights.constant is not None:
        return replace(weights, constant=np.ascontiguousarray(weights.constant[places]))
    return to.take(weights, places, 0, shape=weights.sizes)
