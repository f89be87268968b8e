"""Channels that structured pruning leaves: constant ones, and those whose weights in the next layer are zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_fields
from typing import Final, TypeAlias

import numpy as np

from engine.cancellation import cancellable_quick
from engine.expression import Call, postorder
from engine.expression.elementwise import ELEMENTWISE
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.creation.container import Expression
from engine.layers.elementwise.base import Elementwise, UnaryFunction
from engine.layers.elementwise.functions import Unary
from engine.layers.linear.linear import Linear
from engine.passes.support.facts import Facts, is_pure, is_static
from engine.passes.support.rewriting import Rewriter
from engine.passes.support.weights import FLOAT64, Weighted, finite, is_depthwise, weighted
from engine.pnnx import Graph
from engine.tensor import Array

MULTIPLE: Final = 16
"""Channels are kept in multiples of this: fewer would not fill the vectors of a kernel, and save no time."""

_Step: TypeAlias = RuntimeOperator | Weighted
"""An element-wise operator of one tensor, or a depthwise convolution."""


def unused_channels(graph: RuntimeGraph) -> Graph:
    """Remove channels between two layers that are constant, or that the second layer multiplies by zeros.

    Only element-wise operators and depthwise convolutions may lie between the layers. Constants other than 0 go into
    the bias of the second layer, if it pads nothing. Results stay the same for finite inputs.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        maker = None if rewriter.is_touched(op) else weighted(op, facts)
        if maker is None or not _is_dense(maker):
            continue
        *between, user = (maker, *_path(maker, rewriter, facts))
        if between and isinstance(user, Weighted) and _is_dense(user):
            _remove(maker, between[1:], user, rewriter, facts)
    return rewriter.result()


def _is_dense(step: Weighted) -> bool:
    """Return whether every output channel depends on every input channel."""
    return step.groups == 1 and isinstance(step.layer, (Conv, Linear))


def _path(maker: Weighted, rewriter: Rewriter, facts: Facts) -> Iterator[_Step]:
    """Yield the operators that a layer's channels pass through unmixed, and the layer after them, if any."""
    operand = maker.output
    while (op := rewriter.only_consumer(operand)) is not None and not rewriter.is_touched(op):
        step = weighted(op, facts)
        if step is None and _is_elementwise(op):
            yield op
        elif step is not None and step.input is operand and type(step.layer) is type(maker.layer):
            yield step
            if not is_depthwise(step):
                return
        else:
            return
        operand = op.outputs[0]


def _is_elementwise(op: RuntimeOperator) -> bool:
    """Return whether an operator is a function of each element of its only operand."""
    if len(op.inputs) != 1 or not is_static(op) or not is_pure(op):
        return False
    layer = op.definition
    if isinstance(layer, Expression):
        return all(node.function in ELEMENTWISE for node in postorder(layer.tree) if isinstance(node, Call))
    return isinstance(layer, (Elementwise, UnaryFunction, Unary))


def _remove(maker: Weighted, between: Sequence[_Step], user: Weighted, rewriter: Rewriter, facts: Facts) -> None:
    count = maker.out_channels
    is_constant, values = _constants(maker, between)
    columns = user.weight.swapaxes(0, 1).reshape(count, -1)
    is_free = is_constant & ((values == 0) | (not user.pads_with_zeros)) | ~columns.any(axis=1)
    kept_count = -(-max(count - int(is_free.sum()), 1) // MULTIPLE) * MULTIPLE
    if kept_count >= count:
        return
    kept = np.sort(np.argsort(is_free, kind="stable")[:kept_count])
    removed = np.setdiff1d(np.arange(count), kept)
    weights = user.weight.astype(FLOAT64).reshape(*user.weight.shape[:2], -1).sum(axis=2)
    bias = np.zeros(user.out_channels) if user.bias is None else user.bias.astype(FLOAT64)
    shifted = finite(user.weight[:, kept], (bias + weights[:, removed] @ values[removed]).astype(user.weight.dtype))
    if shifted is None:
        return
    rewriter.replace(user.op, user.operator(*shifted))
    for step in (maker, *between):
        if isinstance(step, Weighted):
            rewriter.replace(step.op, step.operator(step.weight[kept], step.bias_or_zeros[kept]))
        operand = step.output if isinstance(step, Weighted) else step.outputs[0]
        if (spec := facts.spec(operand)) is not None:
            shape = list(spec.shape)
            shape[maker.channel_axis] = kept_count
            rewriter.annotate(operand.name, with_fields(spec, shape=tuple(shape)))


def _constants(maker: Weighted, between: Sequence[_Step]) -> tuple[Array, Array]:
    """Return which channels are constant after these operators, and their values in float64; both (C,).

    Values of other channels are 0.
    """
    is_constant: Array = np.logical_not(maker.weight.reshape(maker.out_channels, -1).any(axis=1))
    values = np.where(is_constant, maker.bias_or_zeros, maker.weight.dtype.type(0))
    for step in between:
        if isinstance(step, Weighted):
            taps = step.weight.reshape(step.out_channels, -1)
            is_zero = is_constant & (values == 0) | ~taps.any(axis=1)
            is_constant = is_zero if step.pads_with_zeros else is_constant | is_zero
            values = np.where(is_zero, 0, taps.sum(axis=1) * values) + step.bias_or_zeros
        else:
            assert step.layer is not None
            values = np.asarray(step.layer.forward([values]))
        is_constant = is_constant & np.isfinite(values)
        values = np.where(is_constant, values, values.dtype.type(0))
    return is_constant, values.astype(FLOAT64)
