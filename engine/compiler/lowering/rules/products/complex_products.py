"""Products of complex numbers of float32, as real products with twice the terms and twice the columns.

(a + bi)(c + di) are the elements of [a b] times [[c d], [-d c]]. The left factor already lies so in memory. Such blocks
are made of the right factor, before the run if it is a weight.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.einsum import contracted
from engine.compiler.lowering.rules.registry import FALLBACKS
from engine.compiler.lowering.steps import COMPLEX64, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.linear.einsum import Einsum, Labels
from engine.layers.linear.matmul import Matmul
from engine.tensor import Array

# Labels of the real and imaginary parts of a factor and of the product, in turn; equations cannot contain them.
_PARTS = (".real and imaginary", ".imaginary and real")


def lower_complex_einsum(context: Context) -> Lowered:
    """Lower sums of products of two operands or more."""
    shapes = [_factor(context, index).shape for index, _ in enumerate(context.arguments())]
    equation = context.layer(Einsum).labelled(shapes)
    return _product(context, equation.terms, equation.output)


def lower_complex_matmul(context: Context) -> Lowered:
    """Lower input @ other, of any rank."""
    ranks = [len(_factor(context, index).shape) for index in (0, 1)]
    if not all(ranks):
        raise NotLoweredError("an operand is a scalar")
    stacks = [[f".{k}" for k in range(rank - 2, 0, -1)] for rank in ranks]
    left = (*stacks[0], *["row"][: ranks[0] - 1], "term")
    right = (*stacks[1], "term", *["column"][: ranks[1] - 1])
    output = (*max(stacks, key=len), *left[len(stacks[0]) : -1], *right[len(stacks[1]) + 1 :])
    return _product(context, (left, right), output)


FALLBACKS.update({Einsum: lower_complex_einsum, Matmul: lower_complex_matmul})


def _factor(context: Context, index: int) -> View | Array:
    """Return an operand, as an array if it is known before the run."""
    value = context.argument(index)
    if not isinstance(value, View | np.ndarray) or value.dtype != COMPLEX64:
        raise NotLoweredError("there are products only of complex64 with complex64")
    if not isinstance(value, np.ndarray):
        return context.elements(index)
    return value


def _product(context: Context, terms: Sequence[Labels], output: Labels) -> Lowered:
    """Lower the product of all operands, multiplied one after the other."""
    composition = Composition(context)
    if len(terms) < 2 or any(len({*term}) < len(term) for term in (*terms, output)):
        raise NotLoweredError("there is no kernel that repeats a dimension of complex numbers")
    left, labels, parts = as_words(context.elements(0)), (*terms[0], _PARTS[0]), _PARTS
    for number, term in enumerate(terms[1:], 1):
        needed = {*output, parts[1]}.union(*terms[number + 1 :])
        if any(label not in needed for label in {*labels[:-1]} ^ {*term}):
            raise NotLoweredError("there is no kernel that sums complex numbers of one operand")
        right, of_right = _blocks(composition, number, _Reading.of(labels, term, needed, parts))
        left, labels = contracted(composition, left, labels, right, of_right, needed)
        parts = parts[::-1]
    pairs = derived(left, left.meta.view(COMPLEX64)[..., 0])
    turned = derived(pairs, pairs.meta.transpose([labels.index(label) for label in output]))
    return context.lowered(turned, *composition.steps)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Order in which a product reads the blocks of its right factor.

    Args:
        term: labels of the factor.
        parts: labels of a block's rows and columns.
        rows: number of labels before those of a block's rows.
        labels: of the blocks, in that order.
    """

    term: Labels
    parts: tuple[str, str]
    rows: int
    labels: Labels

    @classmethod
    def of(cls, left: Labels, term: Labels, needed: Collection[str], parts: tuple[str, str]) -> _Reading:
        """Return the order: batch, then summed labels, both as in the left factor, then columns."""
        stack = [label for label in left if label in term and label in needed]
        summed = [label for label in left if label in term and label not in needed]
        columns = [label for label in term if label not in left]
        return cls(term, parts, len(stack) + len(summed), (*stack, *summed, parts[0], *columns, parts[1]))

    def pack(self, factor: Array) -> Array:
        """Return the blocks of a known factor."""
        order = [self.term.index(label) for label in self.labels if label not in self.parts]
        first = factor.transpose(order)
        second = np.empty_like(first)
        second.real, second.imag = -first.imag, first.real  # a product with i would turn infinities into NaN
        rows = np.stack([first, second], self.rows)
        return np.ascontiguousarray(rows).view(FLOAT32).reshape(*rows.shape, 2)


def _blocks(composition: Composition, index: int, reading: _Reading) -> tuple[View, Labels]:
    """Return a factor with [[c d], [-d c]] for c + di, and its labels."""
    context = composition.context
    factor = _factor(context, index)
    if isinstance(factor, np.ndarray):
        sizes = {**dict(zip(reading.term, factor.shape, strict=True)), **dict.fromkeys(reading.parts, 2)}
        packed = context.lowering.packed(("complex", reading), [factor], lambda: reading.pack(factor))
        return derived(packed, packed.meta.reshape([sizes[label] for label in reading.labels])), reading.labels
    words, blocks = as_words(factor), row_major((*factor.shape, 2, 2), FLOAT32)
    composition.steps.append(context.copy(words, derived(blocks, blocks.meta[..., 0, :])))
    for part, tree in ((1, apply("neg", Operand(0))), (0, Operand(0))):
        place = derived(blocks, blocks.meta[..., 1, 1 - part])
        composition.map(tree, derived(words, words.meta[..., part]), target=place)
    return blocks, (*reading.term, *reading.parts)
