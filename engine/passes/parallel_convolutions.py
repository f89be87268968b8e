"""Parallel convolutions whose results are added, as in networks trained for re-parameterisation (RepVGG)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np

from engine.cancellation import cancellable_quick
from engine.expression import Call, Input, Node
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.convolution.conv import Conv
from engine.layers.convolution.window import Window
from engine.passes.support.algebra import reading, uses
from engine.passes.support.expressions import tree_of
from engine.passes.support.facts import Facts
from engine.passes.support.rewriting import Rewriter
from engine.passes.support.weights import FLOAT64, Weighted, finite, normalisation, weighted
from engine.pnnx import Graph
from engine.tensor import Array


def parallel_convolutions(graph: RuntimeGraph) -> Graph:
    """Sum the weights of convolutions of one tensor whose results are added, and of a parallel normalisation.

    All must see the pixels that the largest of them sees, and give images of one size whatever that of the input.
    Weights are added in float64 and rounded once.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        tree = None if rewriter.is_touched(op) else tree_of(op, facts)
        if tree is None or not isinstance(tree, Call) or tree.function != "add":
            continue
        for placed in _groups(op, tree, rewriter, facts):
            if _merge(op, tree, placed, rewriter):
                break  # the facts about the sum are no longer valid; the next round continues
    return rewriter.result()


@dataclass(frozen=True, slots=True, eq=False)
class _Branch:
    """A summand: a convolution, or a normalisation of the tensor, which is a convolution of single pixels.

    Args:
        conv: None for a normalisation.
        scale, shift: of a normalisation; (C,), float64.
    """

    op: RuntimeOperator
    input: RuntimeOperand
    conv: Weighted | None
    scale: Array | None = None
    shift: Array | None = None

    @property
    def taps(self) -> int:
        """Number of pixels that a result depends on."""
        return 0 if self.conv is None else prod(self.conv.weight.shape[2:])


_Places: TypeAlias = tuple[Sequence[int], ...]
_Placed: TypeAlias = tuple[_Branch, _Places]


def _terms(tree: Node) -> Iterator[Node]:
    """Yield the terms of a sum, in order."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and node.function == "add" and len(node.args) == 2:
            pending.extend(reversed(node.args))
        else:
            yield node


def _groups(op: RuntimeOperator, tree: Node, rewriter: Rewriter, facts: Facts) -> Iterator[list[_Placed]]:
    """Return branches of one tensor without other users, with their taps among those of the first; at least two."""
    groups: dict[str, list[_Branch]] = {}
    times = Counter(op.inputs[index].name for index in uses(tree))
    for node in _terms(tree):
        operand = op.inputs[node.index] if isinstance(node, Input) else None
        if operand is None or times[operand.name] > 1 or rewriter.only_consumer(operand) is not op:
            continue
        branch = _branch(operand, rewriter, facts)
        if branch is not None:
            groups.setdefault(branch.input.name, []).append(branch)
    for found in groups.values():
        found.sort(key=lambda each: -each.taps)
        placed = [(each, places) for each in found if (places := _places(each, found[0])) is not None]
        if len(placed) > 1:
            yield placed


def _branch(operand: RuntimeOperand, rewriter: Rewriter, facts: Facts) -> _Branch | None:
    op = operand.producer
    if op is None or op.layer is None or rewriter.is_touched(op):
        return None
    conv = weighted(op, facts)
    if conv is not None:
        is_plain = type(conv.layer) is Conv and conv.layer.padding_mode == "zeros" and conv.channel_axis == 1
        return _Branch(op, conv.input, conv) if is_plain else None
    norm = normalisation(op, facts)
    return None if norm is None else _Branch(op, op.inputs[0], None, *norm.affine(FLOAT64))


def _places(branch: _Branch, base: _Branch) -> _Places | None:
    """Return the positions of a branch's taps among those of the largest, per axis; None if some are missing."""
    if base.conv is None:
        return None
    windows, whole = _windows(base.conv), base.conv
    if branch.conv is None:
        is_square = whole.weight.shape[1] * whole.groups == whole.out_channels
        if not is_square or branch.input.spec is None or branch.input.spec.rank != whole.rank:
            return None
        parts = [Window(kernel=1)] * len(windows)
    else:
        if branch.conv.groups != whole.groups or branch.conv.weight.shape[:2] != whole.weight.shape[:2]:
            return None
        parts = _windows(branch.conv)
    found = [_along(*pair) for pair in zip(parts, windows, strict=True)]
    return tuple(each for each in found if each is not None) if None not in found else None


def _windows(conv: Weighted) -> list[Window]:
    """Return the windows of a convolution with their padding."""
    assert isinstance(conv.layer, Conv)
    kernel = conv.weight.shape[2:]
    pairs = zip(conv.layer.windows_of(kernel), conv.layer.padding_of(kernel), strict=True)
    return [replace(window, before=before, after=after) for window, (before, after) in pairs]


def _along(part: Window, whole: Window) -> Sequence[int] | None:
    """Return a window's taps among those of another with as many positions for any size; None if one is missing."""
    rooms = [window.before + window.after - window.extent for window in (part, whole)]
    if part.stride != whole.stride or rooms[0] != rooms[1]:
        return None
    offsets = [tap * part.dilation - part.before + whole.before for tap in range(part.kernel)]
    places = [offset // whole.dilation for offset in offsets if offset % whole.dilation == 0]
    return places if len(places) == part.kernel and 0 <= places[0] <= places[-1] < whole.kernel else None


def _merge(op: RuntimeOperator, tree: Node, placed: Sequence[_Placed], rewriter: Rewriter) -> bool:
    """Replace all by one convolution, and the sum as well if it has no other terms."""
    base, *others = (branch for branch, _ in placed)
    assert base.conv is not None
    weights = _summed(base.conv, placed)
    if weights is None:
        return False
    merged = {each.op.outputs[0].name for each in others}
    rest = [node for node in _terms(tree) if not (isinstance(node, Input) and op.inputs[node.index].name in merged)]
    for each in others:
        rewriter.drop(each.op)
    if len(rest) == 1:
        rewriter.replace(base.op, base.conv.operator(*weights, outputs=op.source.outputs))
        rewriter.drop(op)
        return True
    rewriter.replace(base.op, base.conv.operator(*weights))
    total = reduce(lambda a, b: Call("add", (a, b)), rest)
    rewriter.replace(op, reading(op.source, total, op.source.inputs))
    return True


def _summed(base: Weighted, placed: Sequence[_Placed]) -> tuple[Array, Array] | None:
    """Return weights and biases added up, in the layout of the largest convolution; None if one is not finite."""
    weight: Array = np.zeros(base.weight.shape, FLOAT64)
    bias = np.zeros(base.out_channels, FLOAT64)
    with np.errstate(all="ignore"):
        for each, places in placed:
            if each.conv is not None:
                weight[np.ix_(*map(range, weight.shape[:2]), *places)] += each.conv.weight
                bias += 0 if each.conv.bias is None else each.conv.bias
            elif each.scale is not None and each.shift is not None:
                channels = np.arange(len(bias))
                pixel: tuple[Any, ...] = tuple(place[0] for place in places)
                weight[(channels, channels % weight.shape[1]) + pixel] += each.scale
                bias += each.shift
        return finite(weight.astype(base.weight.dtype), bias.astype(base.weight.dtype))
