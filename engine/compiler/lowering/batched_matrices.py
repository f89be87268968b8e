"""Views as batches of matrices, and the products of attention that a matmul or an einsum computes.

The last two dimensions are the matrix; the batch dimensions before them are merged or split where all operands allow
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.compiler.kernels.map import merge_loops
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.lowering.steps import NotLoweredError, derived
from engine.compiler.storage import View
from engine.errors import EngineError
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.linear.einsum import Einsum, Labels
from engine.layers.linear.matmul import Matmul
from engine.tensor import Dim

if TYPE_CHECKING:
    from engine.compiler.lowering.lowering import Lowering


def merge_batch(lead: Sequence[int], views: Sequence[View]) -> tuple[tuple[int, ...], list[Matrix]]:
    """Return the sizes of a batch with merged dimensions, and the strides of each view in it.

    Args:
        views: of at least two dimensions; the batch dimensions broadcast to ``lead``.
    """
    wide = [view.meta.broadcast_to((*lead, *view.shape[-2:])) for view in views]
    strides = [[step // each.itemsize for step in each.strides[: len(lead)]] for each in wide]
    loops = merge_loops(lead, strides)
    matrices = []
    for index, view in enumerate(views):
        row, column = view.strides[-2:]
        matrices.append(Matrix(tuple(steps[index] for _, steps in loops), row, column))
    return tuple(size for size, _ in loops), matrices


def batch_splits(stack: Sequence[int], finer: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return the finer dimensions that each batch dimension is split into; None where that is not possible."""
    found: list[tuple[int, ...]] = []
    rest = list(finer)
    for size in stack:
        taken: list[int] = []
        while rest and (math.prod(taken) != size or not taken):
            taken.append(rest.pop(0))
        if math.prod(taken) != size or not taken:
            return None
        found.append(tuple(taken))
    if found and all(size == 1 for size in rest):
        return [*found[:-1], (*found[-1], *rest)]
    return None if rest else found


def split_batch(view: View, stack: Sequence[int], finer: Sequence[int]) -> View:
    """Return a view of matrices whose batch dimensions are split into finer ones.

    Raises:
        NotLoweredError: that is not possible.
    """
    lead = view.shape[:-2]
    if not lead or tuple(stack) == tuple(finer):
        return view
    parts = batch_splits(stack, finer)
    if parts is None:
        raise NotLoweredError("its batch dimensions cannot be split so")
    held = zip(lead, parts[len(parts) - len(lead) :], strict=True)
    sizes = [size for dim, part in held for size in (part if dim != 1 else (1,) * len(part))]
    return derived(view, view.meta.reshape((*sizes, *view.shape[-2:])))


PRODUCTS = Matmul, Einsum


@dataclass(frozen=True, slots=True)
class MatrixFactor:
    """Operand as a batch of matrices.

    Args:
        axes: its dimensions in the order batch, rows, columns, None for a missing one; None as a whole where they are
            in that order.
    """

    operand: RuntimeOperand
    axes: tuple[int | None, ...] | None = None

    def reordered(self, view: View) -> View:
        """Return the operand's view in that order."""
        if self.axes is None:
            return view
        turned = view.meta.transpose([axis for axis in self.axes if axis is not None])
        return derived(view, turned[tuple(None if axis is None else slice(None) for axis in self.axes)])


@dataclass(frozen=True, slots=True)
class ValueProduct:
    """Product of attention weights, whose dimensions are in order, with a value.

    Args:
        axes: dimensions of the result in the order batch, rows, columns; None where they are in that order.
    """

    value: MatrixFactor
    axes: tuple[int, ...] | None = None

    def in_order(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return a shape of the result in that order."""
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def reordered(self, result: View) -> View:
        """Return the result's view in that order."""
        return result if self.axes is None else derived(result, result.meta.transpose(self.axes))


def score_factors(lowering: Lowering, op: RuntimeOperator) -> tuple[MatrixFactor, MatrixFactor] | None:
    """Return the factors of an operator that computes a batch of products in order, rows by columns, or None."""
    if type(op.definition) is Matmul:
        return (MatrixFactor(op.inputs[0]), MatrixFactor(op.inputs[1])) if len(op.inputs) == 2 else None
    found = _labelled(lowering, op)
    if found is None or len(found[1]) < 2:
        return None
    terms, output = found
    *stack, row, column = output
    left, right = (0, 1) if row in terms[0] else (1, 0)
    summed = [label for label in terms[left] if label in terms[right] and label not in output]
    if len(summed) != 1 or row in terms[right] or column in terms[left]:
        return None
    orders = (*stack, row, *summed), (*stack, *summed, column)
    factors = [_factor(op.inputs[k], terms[k], order) for k, order in zip((left, right), orders, strict=True)]
    first, second = factors
    return None if first is None or second is None else (first, second)


def value_product_of(lowering: Lowering, op: RuntimeOperator, weights: RuntimeOperand) -> ValueProduct | None:
    """Return the product of an operator that multiplies weights by a value, or None."""
    if type(op.definition) is Matmul:
        is_product = len(op.inputs) == 2 and op.inputs[0] is weights and op.inputs[1] is not weights
        return ValueProduct(MatrixFactor(op.inputs[1])) if is_product else None
    found = _labelled(lowering, op)
    if found is None or op.inputs[0] is op.inputs[1]:
        return None
    terms, output = found
    given, other = (0, 1) if op.inputs[0] is weights else (1, 0)
    if len(terms[given]) < 2:
        return None
    *stack, row, summed = terms[given]
    own = [label for label in output if label not in terms[given]]
    order = (*stack, row, *own)
    if len(own) != 1 or output[-1] != own[0] or {*output} != {*order} or row in terms[other]:
        return None
    value = _factor(op.inputs[other], terms[other], (*stack, summed, *own))
    return None if value is None else ValueProduct(value, tuple(output.index(label) for label in order))


def _labelled(lowering: Lowering, op: RuntimeOperator) -> tuple[tuple[Labels, ...], Labels] | None:
    """Return the terms and the output of an einsum of two operands with equal sizes for each label, or None."""
    specs = [lowering.spec(each) for each in op.inputs]
    layer = op.definition
    if not isinstance(layer, Einsum) or len(specs) != 2:
        return None
    shapes = [each.shape for each in specs if each is not None]
    if len(shapes) < 2:
        return None
    try:
        equation = layer.labelled(shapes)
    except EngineError:  # the run reports the error
        return None
    sizes: dict[str, Dim] = {}
    for term, shape in zip(equation.terms, shapes, strict=True):
        if any(sizes.setdefault(label, size) != size for label, size in zip(term, shape, strict=True)):
            return None
    is_plain = all(len({*labels}) == len(labels) for labels in (*equation.terms, equation.output))
    return (equation.terms, equation.output) if is_plain else None


def _factor(operand: RuntimeOperand, term: Labels, order: Sequence[str]) -> MatrixFactor | None:
    """Return an operand with its dimensions in an order; None if it has others, or lacks rows or columns."""
    if not {*term} <= {*order} or any(label not in term for label in order[-2:]):
        return None
    return MatrixFactor(operand, tuple(term.index(label) if label in term else None for label in order))
