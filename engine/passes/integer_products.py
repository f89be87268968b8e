"""Convolutions and products of bytes, computed as float32 where that holds every sum.

Products of 8-bit integers are whole numbers, and so are their sums; as long as none of them can pass 2**24, float32
adds them without rounding, in any order. Whether one can is known from the weights.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import EngineError
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.onnx.conv import ConvInteger, distances
from engine.layers.onnx.matmul import MatMulInteger, centred_columns
from engine.layers.onnx.padding import pairs_of, per_axis
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Attribute, Graph, Operator, Parameter
from engine.stopping import wanted_quick
from engine.tensor import Array

_LIMIT: Final = 2**24
_WIDEST: Final = 255
_BYTES: Final = (np.dtype(np.uint8), np.dtype(np.int8))
_NAMES: Final = {
    ConvInteger: ("input", "weight", "x_zero_point", "w_zero_point"),
    MatMulInteger: ("a", "b", "a_zero_point", "b_zero_point"),
}


def integer_products(graph: RuntimeGraph) -> Graph:
    """Let products of bytes with stored weights be those of the same numbers as floats, where no sum is rounded."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in wanted_quick(graph.operators):
        if type(op.definition) in _NAMES:
            new = _as_floats(op, facts, rewriter)
            if new:
                rewriter.replace(op, *new)
    return rewriter.result()


def _as_floats(op: RuntimeOperator, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """The operators that compute the same; none where a sum could be rounded, or something is known only in a run."""
    names = _NAMES[type(op.definition)]
    x, zero = input_named(op, names[0]), facts.argument(op, names[2])
    product = _product(op, facts.argument(op, names[1]), facts.argument(op, names[3]))
    if x is None or product is None or not _is_of_bytes(x, facts):
        return []
    type_, params, weight = product
    new = [_cast(x.name, rewriter.fresh(f"{op.name}/float"), "torch.float")]
    if isinstance(zero, np.ndarray | int) and np.size(zero) == 1:
        new += _minus(op, rewriter, new[-1], (), f"{int(np.asarray(zero).reshape(()))}")
    else:
        middle = input_named(op, names[2])
        if middle is None or not _is_of_bytes(middle, facts, 1):
            return []
        new.append(_cast(middle.name, rewriter.fresh(f"{op.name}/zero"), "torch.float"))
        new += _minus(op, rewriter, new[0], new[-1].outputs, "@1")
    sums = rewriter.fresh(f"{op.name}/sums")
    stored = {"weight": Attribute(weight.shape, weight.dtype, weight)}
    new.append(Operator(type_, op.name, new[-1].outputs, (sums,), params, stored))
    return [*new, _cast(sums, op.outputs[0].name, "torch.int", rewriter.fresh(f"{op.name}/whole"))]


def _is_of_bytes(operand: RuntimeOperand, facts: Facts, size: int | None = None) -> bool:
    spec = facts.spec(operand)
    return spec is not None and spec.dtype in _BYTES and size in (None, spec.size)


def _cast(source: str, target: str, dtype: str, name: str = "") -> Operator:
    return Operator("Tensor.to", name or target, (source,), (target,), {"dtype": dtype})


def _minus(op: RuntimeOperator, rewriter: Rewriter, x: Operator, others: tuple[str, ...], text: str) -> list[Operator]:
    if text == "0":
        return []
    name = rewriter.fresh(f"{op.name}/centred")
    return [Operator("pnnx.Expression", name, (*x.outputs, *others), (name,), {"expr": f"sub(@0,{text})"})]


def _product(op: RuntimeOperator, weight: Any, zero: Any) -> tuple[str, dict[str, Parameter], Array] | None:
    """Type, parameters and weight of the operator for floats."""
    if not isinstance(weight, np.ndarray) or weight.dtype not in _BYTES or not isinstance(zero, np.ndarray | int):
        return None
    try:
        if isinstance(op.definition, ConvInteger):
            return _convolution(op.definition, _exact(distances(weight, zero, "w_zero_point", 0)))
        if weight.ndim != 2:
            return None
        columns = _exact(centred_columns(weight, zero, "b_zero_point").T)
    except EngineError:  # as a run says
        return None
    params: dict[str, Parameter] = {"bias": False}
    return None if columns is None else ("nn.Linear", params | _widths(columns, 1, "features"), columns)


def _exact(weight: Array) -> Array | None:
    """Filters as floats; None where a sum may have to be rounded."""
    sums = np.abs(weight.reshape(len(weight), -1)).sum(1)
    if not weight.size or _WIDEST * int(sums.max()) >= _LIMIT:
        return None
    return np.ascontiguousarray(weight, np.float32)


def _widths(weight: Array, groups: int, what: str) -> dict[str, Parameter]:
    return {f"in_{what}": weight.shape[1] * groups, f"out_{what}": weight.shape[0]}


def _convolution(layer: ConvInteger, weight: Array | None) -> tuple[str, dict[str, Parameter], Array] | None:
    if weight is None or layer.auto_pad not in ("NOTSET", "VALID"):
        return None
    rank = layer.rank(weight)
    pairs = pairs_of(layer.pads if layer.auto_pad == "NOTSET" else (), rank)
    if rank > 3 or any(before != after for before, after in pairs):
        return None
    params: dict[str, Parameter] = {
        "bias": False,
        "dilation": per_axis(layer.dilations, rank, "dilations"),
        "groups": layer.group,
        "kernel_size": tuple(weight.shape[2:]),
        "padding": tuple(before for before, _ in pairs),
        "padding_mode": "zeros",
        "stride": per_axis(layer.strides, rank, "strides"),
    }
    return f"nn.Conv{rank}d", params | _widths(weight, layer.group, "channels"), weight
