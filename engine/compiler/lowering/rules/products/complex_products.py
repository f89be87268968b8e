"""Products of complex numbers of float32, as real products with twice the terms and twice the columns.

(a + bi)(c + di) are the elements of [a b] times [[c d], [-d c]]. The left factor already lies so in memory. Such blocks
are made of the right factor, before the run if it is a weight.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.matmul import multiplied
from engine.compiler.lowering.rules.registry import FALLBACKS
from engine.compiler.lowering.steps import COMPLEX64, Lowered, NotLoweredError, as_words, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.linear.matmul import Matmul
from engine.promotion import broadcast_sizes
from engine.tensor import Array


def lower_complex_matmul(context: Context) -> Lowered:
    """Lower input @ other, of any rank."""
    left, right, composition = _factor(context, 0), _factor(context, 1), Composition(context)
    if not left.shape or not right.shape:
        raise NotLoweredError("an operand is a scalar")
    words = as_words(context.elements(0))
    rows = composition.shaped(words, (*words.shape[:-2], 2 * words.shape[-2]))
    rows = derived(rows, rows.meta[None]) if len(left.shape) == 1 else rows
    blocks = _blocks(composition, right)
    lead = broadcast_sizes(left.shape[:-2], right.shape[:-2])
    target = row_major((*lead, rows.shape[-2], blocks.shape[-1]), FLOAT32)
    composition.steps += multiplied(context, rows, blocks, target)
    pairs = target.meta.view(COMPLEX64)
    pairs = pairs[..., 0, :] if len(left.shape) == 1 else pairs
    return context.lowered(derived(target, pairs[..., 0] if len(right.shape) == 1 else pairs), *composition.steps)


FALLBACKS[Matmul] = lower_complex_matmul


def _factor(context: Context, index: int) -> View | Array:
    """Return an operand, as an array if it is known before the run."""
    value = context.argument(index)
    if not isinstance(value, View | np.ndarray) or value.dtype != COMPLEX64:
        raise NotLoweredError("there are products only of complex64 with complex64")
    return value


def _blocks(composition: Composition, factor: View | Array) -> View:
    """Return a factor with [[c d], [-d c]] for c + di; a vector is a column."""
    context = composition.context
    if isinstance(factor, np.ndarray):
        packed = context.lowering.packed("complex", [factor], lambda: _packed(factor))
        *lead, terms, columns = factor.shape if factor.ndim > 1 else (*factor.shape, 1)
        return derived(packed, packed.meta.reshape(*lead, 2 * terms, 2 * columns))
    words = as_words(factor)
    words = words if len(factor.shape) > 1 else derived(words, words.meta[:, None])
    *lead, terms, columns, _ = words.shape
    blocks = row_major((*lead, terms, 2, columns, 2), FLOAT32)
    composition.steps.append(context.copy(words, derived(blocks, blocks.meta[..., 0, :, :])))
    for part, tree in ((1, apply("neg", Operand(0))), (0, Operand(0))):
        place = derived(blocks, blocks.meta[..., 1, :, 1 - part])
        composition.map(tree, derived(words, words.meta[..., part]), target=place)
    return derived(blocks, blocks.meta.reshape(*lead, 2 * terms, 2 * columns))


def _packed(factor: Array) -> Array:
    """Return the blocks of a known factor."""
    first = factor if factor.ndim > 1 else factor[:, None]
    second = np.empty_like(first)
    second.real, second.imag = -first.imag, first.real  # a product with i would turn infinities into NaN
    return np.ascontiguousarray(np.stack([first, second], -2)).view(FLOAT32)
