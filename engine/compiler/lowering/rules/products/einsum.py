"""Einstein summation: of two operands a product of matrices, its dimensions put in order; of one its elements; of more
one product after the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import alone
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.products.products import multiplied, product
from engine.compiler.lowering.rules.registry import NotLoweredError, kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, row_major
from engine.layers.linear.einsum import Einsum, Labels


@kernels_for(Einsum, doubles=True)
def lower_einsum(context: Context) -> Made:
    """What both operands have and the result too makes the stack; what the result has not is summed over.

    Of each operand its diagonals are taken before, and sums over dimensions that nothing else has.
    """
    views = [context.tensor(index) for index, _ in enumerate(context.arguments())]
    equation = context.layer(Einsum).labelled([each.shape for each in views])
    composition, output = Composition(context), equation.output
    if len({*output}) < len(output):
        raise NotLoweredError("there is no kernel that repeats a dimension")
    operands: list[tuple[View, Labels]] = []
    for number, (view, term) in enumerate(zip(views, equation.terms, strict=True)):
        others = {*output}.union(*(each for k, each in enumerate(equation.terms) if k != number))
        operands.append(_lone(composition, *_diagonal(view, term), others))
    while len(operands) > 2:
        needed = {*output}.union(*(term for _, term in operands[2:]))
        operands[:2] = [_contracted(composition, *operands[0], *operands[1], needed)]
    if len(operands) == 1:
        ((view, term),) = operands
        turned = derived(view, view.phantom.transpose([term.index(label) for label in output]))
        return composition.finish(Operand(0), turned)
    ((first, a), (second, b)), steps = operands, composition.steps
    if output and output[-1] not in b:  # columns lie side by side in the result
        (first, second), (a, b) = (second, first), (b, a)
    left, right, (batch, rows, columns) = _factors(context, (first, a), (second, b), output, steps)
    order = [output.index(label) for label in (*batch, *rows, *columns)]
    made = product(context, left, right, alone(context.op), order)
    return Made(views=made.views, steps=[*steps, *made.steps], fusions=made.fusions)


def _contracted(
    composition: Composition, first: View, a: Labels, second: View, b: Labels, needed: Collection[str]
) -> tuple[View, Labels]:
    """The product of two operands of several, summed over what neither the result nor another one has."""
    context, kept = composition.context, tuple(each for each in dict.fromkeys((*a, *b)) if each in needed)
    if all(label in needed for label in (*a, *b)):
        wide = [_spread(view, term, kept) for view, term in ((first, a), (second, b))]
        return composition.map(apply("mul", Operand(0), Operand(1)), *wide), kept
    left, right, groups = _factors(context, (first, a), (second, b), kept, composition.steps)
    labels = tuple(label for group in groups for label in group)
    sizes: dict[str, int] = {}
    for view, term in ((first, a), (second, b)):
        for label, size in zip(term, view.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    target = row_major((*lead, left.shape[-2], right.shape[-1]), context.dtype)
    composition.steps += multiplied(context, left, right, target)
    return derived(target, target.phantom.reshape([sizes[label] for label in labels])), labels


def _spread(view: View, term: Labels, labels: Labels) -> View:
    """An operand with a dimension of its own, or of 1, for each label."""
    order = [term.index(label) for label in labels if label in term]
    places = tuple(slice(None) if label in term else None for label in labels)
    return derived(view, view.phantom.transpose(order)[places])


def _factors(
    context: Context,
    left: tuple[View, Labels],
    right: tuple[View, Labels],
    output: Labels,
    steps: list[KernelStep],
) -> tuple[View, View, tuple[list[str], list[str], list[str]]]:
    """Two operands as stacks of matrices, and the labels of the stack, the rows and the columns."""
    (first, a), (second, b) = left, right
    batch = [label for label in output if label in a and label in b]
    rows, columns = ([each for each in output if each in term and each not in batch] for term in (a, b))
    summed = [label for label in a if label in b and label not in output]
    sizes = [dict(zip(term, view.shape, strict=True)) for term, view in ((a, first), (b, second))]
    terms = {label: max(each[label] for each in sizes) for label in summed}
    return (
        _matrices(context, first, a, (batch, rows, summed), terms, steps),
        _matrices(context, second, b, (batch, summed, columns), terms, steps),
        (batch, rows, columns),
    )


def _diagonal(view: View, term: Labels) -> tuple[View, Labels]:
    """An operand with every label once: where one repeats, both dimensions are walked together."""
    labels = tuple(dict.fromkeys(term))
    if len(labels) == len(term):
        return view, term
    places = [[axis for axis, each in enumerate(term) if each == label] for label in labels]
    sizes = [{view.shape[axis] for axis in axes} for axes in places]
    if any(len(each) > 1 for each in sizes):
        raise NotLoweredError("there is no kernel for a diagonal of a dimension that is repeated")
    strides = [sum(view.phantom.strides[axis] for axis in axes) for axes in places]
    return derived(view, as_strided(view.phantom, [each.pop() for each in sizes], strides)), labels


def _lone(composition: Composition, view: View, term: Labels, others: Collection[str]) -> tuple[View, Labels]:
    """An operand summed over the dimensions that neither the result nor another operand has."""
    axes = [axis for axis, label in enumerate(term) if label not in others]
    if not axes:
        return view, term
    total = composition.reduce(view, axes, "sum")
    kept = [axis for axis in range(len(term)) if axis not in axes]
    result = derived(total, total.phantom.reshape([view.shape[axis] for axis in kept]))
    return result, tuple(term[axis] for axis in kept)


def _matrices(
    context: Context,
    view: View,
    labels: Labels,
    groups: tuple[list[str], list[str], list[str]],
    terms: Mapping[str, int],
    steps: list[KernelStep],
) -> View:
    """An operand as (stack, rows, columns), each of the last two of any number of labels; and the copy this may take.

    Args:
        groups: labels of the stack, of rows and of columns.
        terms: sizes of what is summed over, where an operand may have 1.
    """
    order = [label for group in groups for label in group]
    turned = view.phantom.transpose([labels.index(label) for label in order])
    sizes = [terms.get(label, size) for label, size in zip(order, turned.shape, strict=True)]
    wide = derived(view, np.broadcast_to(turned, sizes))
    ends = len(groups[0]), len(groups[0]) + len(groups[1])
    merged = (*sizes[: ends[0]], math.prod(sizes[ends[0] : ends[1]]), math.prod(sizes[ends[1] :]))
    found = wide.derive(wide.phantom.reshape(merged))
    if found is not None:
        return found
    copied = row_major(wide.shape, wide.dtype)
    steps.append(context.copy(wide, copied))
    return derived(copied, copied.phantom.reshape(merged))
