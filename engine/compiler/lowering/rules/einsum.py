"""Einstein summation of two operands: a product of matrices, its dimensions put in order."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import alone
from engine.compiler.lowering.rules.products import product
from engine.compiler.lowering.rules.registry import NotLoweredError, kernels_for
from engine.compiler.lowering.stacks import derived
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, row_major
from engine.layers.linear.einsum import Einsum, Labels


@kernels_for(Einsum)
def lower_einsum(context: Context) -> Made:
    """What both operands have and the result too makes the stack; what the result has not is summed over."""
    if len(context.arguments()) != 2:
        raise NotLoweredError("there is no kernel for a sum of products of other than two operands")
    first, second = context.tensor(0), context.tensor(1)
    equation = context.layer(Einsum).labelled([first.shape, second.shape])
    (a, b), output = equation.terms, equation.output
    if output and output[-1] not in b:  # columns lie side by side in the result
        (first, second), (a, b) = (second, first), (b, a)
    batch = [label for label in output if label in a and label in b]
    rows, columns = ([each for each in output if each in term and each not in batch] for term in (a, b))
    summed = [label for label in a if label in b and label not in output]
    if len({*a}) < len(a) or len({*b}) < len(b) or {*a, *b} != {*output, *summed}:
        raise NotLoweredError("there is no kernel for diagonals, or for sums over dimensions of one operand")
    sizes = [dict(zip(term, view.shape, strict=True)) for term, view in ((a, first), (b, second))]
    terms = {label: max(each[label] for each in sizes) for label in summed}
    steps: list[KernelStep] = []
    left = _matrices(context, first, a, (batch, rows, summed), terms, steps)
    right = _matrices(context, second, b, (batch, summed, columns), terms, steps)
    order = [output.index(label) for label in (*batch, *rows, *columns)]
    made = product(context, left, right, alone(context.op), order)
    return Made(views=made.views, steps=[*steps, *made.steps], fusions=made.fusions)


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
