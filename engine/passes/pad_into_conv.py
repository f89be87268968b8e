"""Zero padding that a convolution or a pool can do itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import TypeAlias

import numpy as np

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.convolution.pad import Pad
from engine.layers.pooling.pool import AvgPool
from engine.passes.support.facts import Facts, input_named, is_static, only_consumer
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Parameter

Pairs: TypeAlias = list[tuple[int, int]]


def pad_into_conv(graph: RuntimeGraph) -> Graph:
    """Move zero padding into a convolution, or into a pool that counts its padding, if nothing else is padded.

    If the padding before and after differ, the convolution must be able to express it: ``same``.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        user = only_consumer(op.outputs[0]) if isinstance(op.definition, Pad) else None
        if user is None or rewriter.is_touched(op) or rewriter.is_touched(user):
            continue
        padding = _padding(op, user, facts)
        if padding is not None:
            inputs = tuple(op.inputs[0].name if name == op.outputs[0].name else name for name in user.source.inputs)
            params = {**user.source.params, "padding": padding}
            rewriter.replace(user, with_fields(user.source, inputs=inputs, params=params))
            rewriter.drop(op)
    return rewriter.result()


def _padding(op: RuntimeOperator, user: RuntimeOperator, facts: Facts) -> Parameter:
    """Return the padding with which the user does the work of both; None if there is none."""
    layer = user.definition if user.layer is not None and is_static(user) else None
    takes_it_once = input_named(user, "input") is op.outputs[0] and user.inputs.count(op.outputs[0]) == 1
    if not isinstance(layer, (Conv, AvgPool)) or not takes_it_once or not user.type.startswith(("nn.", "F.")):
        return None  # ONNX's own types spell padding differently
    added = _zeros(op, layer.spatial_rank, facts)
    if added is None:
        return None
    return _of_conv(user, layer, added, facts) if isinstance(layer, Conv) else _of_pool(layer, added)


def _zeros(op: RuntimeOperator, rank: int, facts: Facts) -> Pairs | None:
    """Return the numbers of zeros before and after each of the last ``rank`` axes; None if it is not zero padding."""
    layer, spec = op.definition, facts.spec(op.inputs[0])
    value = facts.argument(op, "value")
    is_zero = value is None or (isinstance(value, (int, float)) and value == 0 and math.copysign(1, value) > 0)
    if not isinstance(layer, Pad) or not is_static(op) or layer.mode != "constant" or not is_zero:
        return None
    pairs = [(before or 0, after or 0) for before, after in layer.pairs]
    others, pairs = pairs[:-rank], pairs[-rank:]
    if (
        spec is None
        or spec.rank not in (rank + 1, rank + 2)
        or any(map(any, others))
        or min(map(min, pairs), default=0) < 0
    ):
        return None
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _of_conv(user: RuntimeOperator, layer: Conv, added: Pairs, facts: Facts) -> Parameter:
    operand, stored = input_named(user, "weight"), facts.argument(user, "weight")
    weight = stored if isinstance(stored, np.ndarray) else None if operand is None else facts.spec(operand)
    kernel = tuple(size for size in weight.shape[2:] if size is not None) if weight is not None else ()
    if layer.padding_mode != "zeros" or len(kernel) != layer.spatial_rank:
        return None
    total = _sums(layer.padding_of(kernel), added)
    if (numbers := _symmetric(total)) is not None:
        return numbers
    is_same = set(layer.stride) == {1} and total == with_fields(layer, padding="same").padding_of(kernel)
    return "same" if is_same else None


def _of_pool(layer: AvgPool, added: Pairs) -> Parameter:
    if isinstance(layer.padding, str):
        return None
    windows = layer.windows
    numbers = _symmetric(_sums([(window.before, window.after) for window in windows], added))
    is_counted = layer.count_include_pad or layer.divisor_override is not None
    if numbers is None or layer.ceil_mode or not is_counted:
        return None
    fits = all(number <= window.kernel // 2 for number, window in zip(numbers, windows, strict=True))
    return numbers if fits else None


def _sums(first: Sequence[tuple[int, int]], second: Pairs) -> Pairs:
    return [(a + c, b + d) for (a, b), (c, d) in zip(first, second, strict=True)]


def _symmetric(pairs: Pairs) -> tuple[int, ...] | None:
    return tuple(before for before, _ in pairs) if all(before == after for before, after in pairs) else None
