"""Folding of constant factors and terms after a convolution or linear layer into its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cancellation import cancellable_quick
from engine.expression import Call, Input, Literal, Node, postorder
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.passes.support.expressions import tree_of
from engine.passes.support.facts import Facts, only_consumer
from engine.passes.support.rewriting import Rewriter
from engine.passes.support.weights import FLOAT64, Weighted, weighted
from engine.pnnx import Graph
from engine.tensor import Array


def fold_scale(graph: RuntimeGraph) -> Graph:
    """Fold one multiplication and one addition of a constant for each channel into the weights before them."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        layer = _feeding(op, facts)
        if layer is None or rewriter.is_touched(op) or rewriter.is_touched(layer.op):
            continue
        weights = _weights(op, layer, facts)
        if weights is not None:
            rewriter.replace(layer.op, layer.operator(*weights, outputs=op.source.outputs))
            rewriter.drop(op)
    return rewriter.result()


def _feeding(op: RuntimeOperator, facts: Facts) -> Weighted | None:
    """Return the layer with weights whose only user is this operator, if its other operands are constant."""
    variable = {operand.name: operand for operand in op.inputs if not isinstance(facts.value(operand), np.ndarray)}
    if len(variable) != 1:
        return None
    (operand,) = variable.values()
    return weighted(operand.producer, facts) if only_consumer(operand) is op else None


def _weights(op: RuntimeOperator, layer: Weighted, facts: Facts) -> tuple[Array, Array] | None:
    tree = tree_of(op, facts)
    if tree is None or facts.spec(op.outputs[0]) != facts.spec(layer.output):
        return None
    line = _line(tree, op, layer.output, facts)
    if line is None:
        return None
    scale, shift = (_by_channel(each, layer) for each in (line.scale, line.shift))
    return None if scale is None or shift is None else layer.scaled(scale, shift)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A linear function scale * x + shift in float64, with its numbers of multiplications and additions in the tree."""

    scale: Array
    shift: Array
    products: int = 0
    sums: int = 0


def _line(root: Node, op: RuntimeOperator, x: RuntimeOperand, facts: Facts) -> _Line | None:
    """Return a tree as a linear function of ``x``; None if it is not one, or has several products or several sums."""
    values: dict[Node, _Line | Array | None] = {}
    for node in postorder(root):
        if isinstance(node, Input):
            operand = op.inputs[node.index]
            one, zero = np.ones((), FLOAT64), np.zeros((), FLOAT64)
            values[node] = _Line(scale=one, shift=zero) if operand is x else _constant(facts.value(operand))
        elif isinstance(node, Literal):
            values[node] = _constant(node.value)
        else:
            arguments = [values[child] for child in node.children]
            values[node] = _applied(node.function, arguments) if isinstance(node, Call) else None
    line = values[root]
    return line if isinstance(line, _Line) and line.products <= 1 and line.sums <= 1 else None


def _constant(value: object) -> Array | None:
    if isinstance(value, np.ndarray):
        return value.astype(FLOAT64) if value.dtype.kind == "f" else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return np.asarray(value, FLOAT64) if is_number else None


def _applied(function: str, arguments: list[_Line | Array | None]) -> _Line | None:
    """Return a function of a linear function and a constant, if the result is linear."""
    if function == "neg" and isinstance(arguments[0], _Line):
        line = arguments[0]
        return _Line(scale=-line.scale, shift=-line.shift, products=line.products, sums=line.sums)
    if len(arguments) != 2:
        return None
    first, second = arguments
    if isinstance(first, _Line) and isinstance(second, np.ndarray):
        return _combined(function, first, second)
    if isinstance(first, np.ndarray) and isinstance(second, _Line):
        if function == "sub":
            negative = _applied("neg", [second])
            return None if negative is None else _combined("add", negative, first)
        return _combined(function, second, first) if function in ("add", "mul") else None
    return None


def _combined(function: str, line: _Line, constant: Array) -> _Line | None:
    scale, shift, products, sums = line.scale, line.shift, line.products, line.sums
    if function in ("add", "sub"):
        shift = shift + constant if function == "add" else shift - constant
        return _Line(scale=scale, shift=shift, products=products, sums=sums + 1)
    if function not in ("mul", "div"):
        return None
    with np.errstate(all="ignore"):
        factor = constant if function == "mul" else 1 / constant
        return _Line(scale=scale * factor, shift=shift * factor, products=products + 1, sums=sums)


def _by_channel(values: Array, layer: Weighted) -> Array | None:
    """Return values as one a channel; None if they differ along another axis."""
    if values.ndim > layer.rank:
        return None
    shape = (1,) * (layer.rank - values.ndim) + values.shape
    others = [size for axis, size in enumerate(shape) if axis != layer.channel_axis]
    if set(others) - {1} or shape[layer.channel_axis] not in (1, layer.out_channels):
        return None
    return np.broadcast_to(values.reshape(-1), (layer.out_channels,))
