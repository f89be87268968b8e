"""Einstein summation: a matrix product with reordered dimensions; more operands are multiplied one after another."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.linear import linear
from engine.compiler.lowering.rules.products.matmul import multiplied, product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View, row_major
from engine.layers.linear.einsum import Einsum, Labels
from engine.promotion import broadcast_sizes
from engine.tensor import Array

_PRODUCT = apply("mul", Operand(0), Operand(1))
# Rows and columns from which a batch of products is as fast as one product with the batch as rows, and most batch
# dimensions, of which an operand may lack some, that need no copy.
MIN_ROWS, MIN_COLUMNS, MAX_STACKED = 4, 4, 2
_Groups = tuple[list[str], list[str], list[str]]
_Term = tuple[View, Labels]


@kernels_for(Einsum, doubles=True)
def lower_einsum(context: Context) -> Lowered:
    """Lower an einsum: labels of both operands and the result are the batch; labels not in the result are summed.

    Repeated labels of an operand become its diagonal, and labels that occur nowhere else are summed first.
    """
    views = [context.tensor(index) for index, _ in enumerate(context.arguments())]
    equation = context.layer(Einsum).labelled([each.shape for each in views])
    composition, output = Composition(context), equation.output
    if len({*output}) < len(output):
        raise NotLoweredError("there is no kernel that repeats a dimension")
    operands: list[_Term] = []
    for number, (view, term) in enumerate(zip(views, equation.terms, strict=True)):
        others = {*output}.union(*(each for k, each in enumerate(equation.terms) if k != number))
        operands.append(_without_lone_labels(composition, *_diagonal(view, term), others))
    while len(operands) > 2:
        needed = {*output}.union(*(term for _, term in operands[2:]))
        operands[:2] = [contracted(composition, *operands[0], *operands[1], needed)]
    if len(operands) == 1:
        ((view, term),) = operands
        turned = derived(view, view.meta.transpose([term.index(label) for label in output]))
        return composition.finish(Operand(0), turned)
    left, right = operands
    if {*left[1], *right[1]} == {*output}:
        return composition.finish(_PRODUCT, *(_expanded(*each, output) for each in operands))
    if output and output[-1] not in right[1]:  # columns are contiguous in the result
        left, right = right, left
    lowered = _pair(context, left, right, output, composition.steps)
    return Lowered(views=lowered.views, steps=[*composition.steps, *lowered.steps], fusions=lowered.fusions)


def _pair(context: Context, left: _Term, right: _Term, output: Labels, steps: list[KernelStep]) -> Lowered:
    """Lower the last product, to the result's order if its rows and columns are contiguous there, or transposed."""
    sizes = _sizes(left, right)
    groups = _groups(left[1], right[1], output)
    if not _are_neighbours(groups, output) and (found := _neighbours(left[1], right[1], output, sizes)) is not None:
        groups = found
    (batch, rows, columns), known = groups, _known(right[0])
    summed = _summed(left[1], right[1], output)
    a = _matrices(context, *left, (batch, rows, summed), sizes, steps)
    if known is not None and not batch and [*rows, *columns] == [*output]:
        weight = _weight(known, right[1], (columns, summed), sizes)
        return linear(context, a, weight, None, is_split=True)
    b = _matrices(context, *right, (batch, summed, columns), sizes, steps)
    order = [output.index(label) for label in (*batch, *rows, *columns)]
    return product(context, a, b, unfused(context.op), order)


def contracted(
    composition: Composition, first: View, a: Labels, second: View, b: Labels, needed: Collection[str]
) -> tuple[View, Labels]:
    """Return the product of two operands of several, summed over labels that occur nowhere else, and its labels."""
    context, kept = composition.context, tuple(each for each in dict.fromkeys((*a, *b)) if each in needed)
    if all(label in needed for label in (*a, *b)):
        wide = [_expanded(view, term, kept) for view, term in ((first, a), (second, b))]
        return composition.map(_PRODUCT, *wide), kept
    sizes, summed = _sizes((first, a), (second, b)), _summed(a, b, kept)
    batch, rows, columns = _groups(a, b, kept)
    left = _matrices(context, first, a, (batch, rows, summed), sizes, composition.steps)
    right = _matrices(context, second, b, (batch, summed, columns), sizes, composition.steps)
    labels = (*batch, *rows, *columns)
    lead = broadcast_sizes(left.shape[:-2], right.shape[:-2])
    target = row_major((*lead, left.shape[-2], right.shape[-1]), context.dtype)
    composition.steps += multiplied(context, left, right, target)
    return derived(target, target.meta.reshape([sizes[label] for label in labels])), labels


def _expanded(view: View, term: Labels, labels: Labels) -> View:
    """Return an operand with a dimension, possibly of size 1, for each label."""
    order = [term.index(label) for label in labels if label in term]
    places = (*(slice(None) if label in term else None for label in labels), Ellipsis)
    return derived(view, view.meta.transpose(order)[places])


def _groups(a: Labels, b: Labels, output: Labels) -> _Groups:
    """Return the result's labels: of the batch (in both operands), of the rows and of the columns (in one)."""
    batch = [label for label in output if label in a and label in b]
    rows, columns = ([each for each in output if each in term and each not in batch] for term in (a, b))
    return batch, rows, columns


def _are_neighbours(groups: _Groups, output: Labels) -> bool:
    """Return whether rows are contiguous labels in the result, and columns the last ones."""
    _, rows, columns = groups
    at = output.index(rows[0]) if rows else 0
    is_last = bool(columns) or not output
    return is_last and [*output[len(output) - len(columns) :]] == columns and [*output[at : at + len(rows)]] == rows


def _neighbours(a: Labels, b: Labels, output: Labels, sizes: Mapping[str, int]) -> _Groups | None:
    """Return as few row and column labels as are contiguous in the result, others as batch; None if that is slow.

    A matrix that is the same for the whole batch is read where it lies.
    """
    end = first = len(output)
    while first and output[first - 1] not in a:
        first -= 1
    begin = first
    while begin and output[begin - 1] not in b:
        begin -= 1
    found = [*output[:begin]], [*output[begin:first]], [*output[first:end]]
    whole = _groups(a, b, output)
    spans = [[math.prod(sizes[label] for label in group) for group in groups[1:]] for groups in (found, whole)]
    is_broad = all(n >= min(m, least) for n, m, least in zip(*spans, (MIN_ROWS, MIN_COLUMNS), strict=True))
    return found if is_broad and len(found[0]) <= MAX_STACKED else None


def _summed(a: Labels, b: Labels, output: Labels) -> list[str]:
    return [label for label in a if label in b and label not in output]


def _sizes(*operands: _Term) -> dict[str, int]:
    """Return the size of every label: the one that is not 1."""
    sizes: dict[str, int] = {}
    for view, term in operands:
        for label, size in zip(term, view.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return sizes


def _known(view: View) -> Array | None:
    """Return the elements of a view that no run changes, else None."""
    data = view.storage.data
    if data is None:
        return None
    return np.ndarray(view.shape, view.dtype, data, view.offset, view.meta.strides)


def _weight(known: Array, labels: Labels, groups: tuple[list[str], list[str]], sizes: Mapping[str, int]) -> Array:
    """Return an operand as the weight of a linear layer: (columns, terms)."""
    order = [label for group in groups for label in group]
    turned = known.transpose([labels.index(label) for label in order])
    columns, terms = (math.prod(sizes[label] for label in group) for group in groups)
    return np.broadcast_to(turned, [sizes[label] for label in order]).reshape(columns, terms)


def _diagonal(view: View, term: Labels) -> tuple[View, Labels]:
    """Return an operand with every label once: repeated dimensions become their diagonal."""
    labels = tuple(dict.fromkeys(term))
    if len(labels) == len(term):
        return view, term
    places = [[axis for axis, each in enumerate(term) if each == label] for label in labels]
    sizes = [{view.shape[axis] for axis in axes} for axes in places]
    if any(len(each) > 1 for each in sizes):
        raise NotLoweredError("there is no kernel for a diagonal of a dimension that is repeated")
    strides = [sum(view.meta.strides[axis] for axis in axes) for axes in places]
    return derived(view, view.meta.as_strided([each.pop() for each in sizes], strides)), labels


def _without_lone_labels(
    composition: Composition, view: View, term: Labels, others: Collection[str]
) -> tuple[View, Labels]:
    """Sum an operand over labels that occur neither in the result nor in another operand."""
    axes = [axis for axis, label in enumerate(term) if label not in others]
    if not axes:
        return view, term
    total = composition.reduce(view, axes, "sum")
    kept = [axis for axis in range(len(term)) if axis not in axes]
    result = derived(total, total.meta.reshape([view.shape[axis] for axis in kept]))
    return result, tuple(term[axis] for axis in kept)


def _matrices(
    context: Context,
    view: View,
    labels: Labels,
    groups: _Groups,
    sizes: Mapping[str, int],
    steps: list[KernelStep],
) -> View:
    """Return an operand as (batch, rows, columns), each of any number of labels; add the copy this may take.

    Args:
        groups: labels of the batch, which an operand may lack, of rows and of columns.
        sizes: of the labels; an operand may have 1.
    """
    order = tuple(label for group in groups for label in group)
    turned, count = _expanded(view, labels, order), len(groups[0])
    wide = derived(view, turned.meta.broadcast_to((*turned.shape[:count], *(sizes[each] for each in order[count:]))))
    merged = (*wide.shape[:count], *(math.prod(sizes[label] for label in group) for group in groups[1:]))
    found = wide.derive(wide.meta.reshape(merged))
    if found is not None:
        return found
    copied = row_major(wide.shape, wide.dtype)
    steps.append(context.copy(wide, copied))
    return derived(copied, copied.meta.reshape(merged))
