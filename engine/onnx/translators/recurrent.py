"""Recurrent networks: the layers of PyTorch, with other orders of gates and dimensions.

pnnx does not name operands and omits optional ones without a trace: those of its pairs are identified by their ranks
and widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers import Annotations
from engine.layers.onnx.operands.adapter import present
from engine.layers.operands.fitting import check_shape
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.tensor import Array, Shape, format_shape

_NAMES: Final = ("x", "w", "r", "b", "lengths", "h", "c", "p")
_DIRECTIONS: Final = ("forward", "reverse", "bidirectional")
_ORDERS: Final[Mapping[str, Sequence[int]]] = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Place in ONNX's order of each gate of PyTorch's: ONNX has i, o, f, c for LSTM, and z, r, h for GRU."""


@translates("LSTM", "GRU", "RNN")
def recurrent(node: Node) -> list[Value]:
    """Translate to nn.LSTM, nn.GRU or nn.RNN."""
    given = _named(node) if node.names_results else _identified(node)
    options: dict[str, Any] = {}
    if node.type == "LSTM":
        options["couples_gates"] = bool(node.number("input_forget", 0))
    if node.type == "GRU":
        options["resets_first"] = not node.number("linear_before_reset", 0)
    return network(node, node.type, given, options)


def network(node: Node, kind: str, given: Mapping[str, Value], options: Mapping[str, Any]) -> list[Value]:
    """Append a network of PyTorch; return Y and the last states.

    Args:
        kind: LSTM, GRU or RNN.
        given: operands by name: x, w, r, and b, lengths, h, c, p, and scales of w and r where there are some.
        options: parameters that only this kind has.
    """
    direction, is_batch_first = node.text("direction", "forward"), node.number("layout", 0)
    if direction not in _DIRECTIONS:
        raise ParameterError("unknown direction", found=direction, expected=", ".join(_DIRECTIONS))
    if is_batch_first not in (0, 1):
        raise ParameterError("unknown layout", found=is_batch_first, expected="0 or 1")
    count, gates = 2 if direction == "bidirectional" else 1, len(_ORDERS[kind])
    width, units = _sizes(node, given, count, gates)
    weights = _weights(node, kind, given, count, units)
    params = {
        "input_size": width, "hidden_size": units, "num_layers": 1, "bias": "b" in given,
        "batch_first": bool(is_batch_first), "bidirectional": count == 2, **_options(node, kind),
    }  # fmt: skip
    params |= {"reverse": True} if direction == "reverse" else {}
    params |= {key: value for key, value in options.items() if value}
    operands, labels = [given["x"]], ["input"]
    for name in ("h", "c"):
        if (state := given.get(name)) is not None:
            state = _begun(node, state, given.get("lengths"), bool(is_batch_first))
            operands.append(_turned(node, f"{node.name}_{name}", state) if is_batch_first else state)
            labels.append(f"initial_{name}")
    if "lengths" in given:
        operands, labels = [*operands, given["lengths"]], [*labels, "lengths"]
    stored = {name: value.constant for name, value in weights.items() if value.constant is not None}
    type = f"nn.{kind}"
    if len(stored) < len(weights) or labels != ["input", "initial_h", "initial_c"][: len(labels)]:
        type, stored = f"engine.{kind}", {}
        operands, labels = [*operands, *weights.values()], [*labels, *weights]
    results = 3 if kind == "LSTM" else 2
    used = max((k + 1 for k, name in enumerate(node.outputs) if name), default=1) if node.names_results else results
    y, *last = node.builder.add(
        type, node.name, operands, outputs=("",) * used, params=params, attributes=stored, labels=labels
    )
    y = node.make("Tensor.reshape", y, shape=(0, 0, count, units), zero_copies=True)
    if is_batch_first:
        last = [_turned(node, node.name, each) for each in last]
    else:
        y = node.make("torch.permute", y, dims=(0, 2, 1, 3))
    values = [y, *last]
    specs = [value.tensor for value in values if value.tensor is not None]
    if node.names_results or len(specs) < len(values):
        return values
    return [values[k] for k in present(specs, Annotations(outputs=tuple(node.declared)))]


def _begun(node: Node, state: Value, lengths: Value | None, is_batch_first: bool) -> Value:
    """Return initial states, 0 for sequences without steps: so are their last states in onnxruntime."""
    if lengths is None or (lengths.constant is not None and lengths.constant.all()):
        return state
    shape = (-1, 1, 1) if is_batch_first else (1, -1, 1)
    is_empty = node.make("Tensor.reshape", node.make("torch.eq", lengths, other=0), shape=shape)
    return node.make("Tensor.masked_fill", state, is_empty, value=0.0)


def _turned(node: Node, name: str, states: Value) -> Value:
    """Swap the directions and the batch of states."""
    return node.builder.add("torch.permute", name, [states], params={"dims": (1, 0, 2)})[0]


def _options(node: Node, kind: str) -> dict[str, Any]:
    """Return the parameters for activations and clipping, without those that are usual."""
    found: dict[str, Any] = {}
    names = tuple(str(name).lower() for name in node.attributes.get("activations", ()))
    if kind == "RNN" and names and set(names) == {"relu"}:
        return {"nonlinearity": "relu", **_clip(node)}
    if names:
        found["activations"] = names
    for key in ("activation_alpha", "activation_beta"):
        if node.attributes.get(key):
            found[key] = tuple(map(float, node.attributes[key]))
    return {**found, **_clip(node)}


def _clip(node: Node) -> dict[str, Any]:
    return {"clip": node.real("clip", 0.0)} if "clip" in node.attributes else {}


def _sizes(node: Node, given: Mapping[str, Value], count: int, gates: int) -> tuple[int, int]:
    """Return the width of the input, and the number of units; check the shapes of the weights."""
    w, r = (given[name].tensor for name in ("w", "r"))
    units = node.number("hidden_size", 0) or (r.shape[-1] if r is not None and r.rank else None)
    x = given["x"].tensor
    width = w.shape[-1] if w is not None and w.rank else x.shape[-1] if x is not None and x.rank else None
    if units is None or width is None:
        raise ShapeError("the sizes of W are not known before a run", expected="a declared shape")
    rows = gates * units
    shapes: dict[str, tuple[str, Shape]] = {
        "w": ("W", (count, rows, width)), "r": ("R", (count, rows, units)), "b": ("bias", (count, 2 * rows)),
        "p": ("peepholes", (count, 3 * units)),
    }  # fmt: skip
    for name, (title, shape) in shapes.items():
        spec = given[name].tensor if name in given else None
        if spec is not None:
            check_shape(spec.shape, shape, f"{title} does not fit")
    return width, units


def _weights(node: Node, kind: str, given: Mapping[str, Value], count: int, units: int) -> dict[str, Value]:
    """Return the weights of each direction by PyTorch's names, rows in its order of gates."""
    order = np.arange(len(_ORDERS[kind]) * units).reshape(-1, units)[list(_ORDERS[kind])].reshape(-1)
    found = {}
    for d, suffix in enumerate(("", "_reverse")[:count]):
        for name, label in (("w", "weight_ih"), ("r", "weight_hh"), ("w_scale", "scale_ih"), ("r_scale", "scale_hh")):
            if name in given:
                found[f"{label}_l0{suffix}"] = _rows(node, given[name], d, order)
        if "b" in given:
            for k, label in enumerate(("bias_ih", "bias_hh")):
                found[f"{label}_l0{suffix}"] = _rows(node, given["b"], d, order + k * len(order))
        if "p" in given:  # of i, o and f
            rows = np.arange(3 * units).reshape(3, units)[[0, 2, 1]].reshape(-1)
            found[f"weight_peephole_l0{suffix}"] = _rows(node, given["p"], d, rows)
    return found


def _rows(node: Node, weights: Value, direction: int, rows: Array) -> Value:
    if weights.constant is not None:
        return node.constant(np.ascontiguousarray(weights.constant[direction][rows]))
    own = node.make("Tensor.select", weights, dim=0, index=direction)
    return node.make("torch.index_select", own, node.constant(rows), dim=0)


def _named(node: Node) -> dict[str, Value]:
    """Return the operands by name."""
    given = dict(zip(_NAMES, node.inputs, strict=False))
    for name, rank in {"w": 3, "r": 3, "b": 2, "lengths": 1, "h": 3, "c": 3, "p": 2, "x": 3}.items():
        value = given.get(name)
        if value is not None and value.tensor is not None and value.rank != rank:
            found = format_shape(value.tensor.shape)
            raise ShapeError(f"operand '{name}' does not fit", found=found, expected=f"{rank} axes")
    if node.type != "LSTM" and (given.get("c") or given.get("p")):
        raise ShapeError("an operand does not fit", found="a cell state", expected="an LSTM")
    _ = [node.input(k) for k in range(3)]
    return {name: value for name, value in given.items() if value is not None}


def _identified(node: Node) -> dict[str, Value]:
    """Return unnamed operands by rank: W and R have three axes, bias and peepholes two, lengths one."""
    given = [value for value in node.inputs if value is not None]
    shapes: list[Shape] = [() if value.tensor is None else value.tensor.shape for value in given]
    if [len(shape) for shape in shapes[:3]] != [3, 3, 3]:
        raise ShapeError(
            "input and weights are needed", found=", ".join(map(format_shape, shapes)),
            expected="[T, B, I], [D, G*H, I], [D, G*H, H]",
        )  # fmt: skip
    found = dict(zip(("x", "w", "r"), given, strict=False))
    for value, shape in zip(given[3:], shapes[3:], strict=True):
        is_cell = node.type == "LSTM" and "h" in found
        is_peephole = is_cell and shape[1:] == (3 * (shapes[2][2] or 0),)
        name = {1: "lengths", 2: "p" if is_peephole else "b", 3: "c" if is_cell else "h"}.get(len(shape))
        if name is None or name in found:
            raise ShapeError("an operand does not fit", found=format_shape(shape))
        found[name] = value
    return found
