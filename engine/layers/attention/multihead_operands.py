"""Roles of the operands and outputs of nn.MultiheadAttention.

The converter writes operands in the order the traced module first used them and puts ``$attn_mask`` on the last, so
neither order nor label is reliable. Specs are: query, key and value are floating, of the rank of the output, and end in
one of the module's widths; the rest are masks. A matrix that fits both as a key padding mask (batch, keys) and as an
attention mask (queries, keys) is the attention mask if the label says so. Of two such, the tracer meets the padding
mask first if they are bools, the attention mask first if they are numbers.

The annotations of the operands decide before the run's shapes do: at another batch size than the file's an ambiguity
may arise or vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import ShapeError
from engine.ir.dims import is_same
from engine.layers.operands.axes import may_equal, may_match
from engine.promotion import Category, dtype_category
from engine.tensor import Dim, Shape, TensorSpec, format_shape

Sequences = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """Indices of the operands that are masks.

    Args:
        attention: (queries, keys) or (batch * heads, queries, keys).
        padding: (batch, keys) or (keys,).
    """

    attention: int | None = None
    padding: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Layout of an attention module's sequences.

    Args:
        rank: 3 for sequences with a batch axis, 2 without.
        batch_first: whether the batch is axis 0, not 1.
        heads: number of heads.
        widths: of query, key and value.
    """

    rank: int
    batch_first: bool
    heads: int
    widths: tuple[int, int, int]

    def batch(self, sequence: Shape) -> Dim:
        """Return the number of sequences; 1 without a batch axis."""
        return 1 if self.rank == 2 else sequence[0 if self.batch_first else 1]

    def length(self, sequence: Shape) -> Dim:
        """Return the number of positions."""
        return sequence[1 if self.rank == 3 and self.batch_first else 0]


def find_sequences(specs: Sequence[TensorSpec], arrangement: Arrangement, labelled: int | None) -> Sequences | None:
    """Return the operands that are query, key and value: one is all three, of two the second is key and value.

    Args:
        specs: of all operands.
        labelled: the operand labelled ``attn_mask``.
    """
    found = [index for index, spec in enumerate(specs) if _looks_like_sequence(spec, arrangement)]
    if len(found) > 1:
        query = specs[found[1] if found[0] == labelled else found[0]].shape
        found = [each for each in found if not _is_mask(specs[each].shape, query, arrangement, each == labelled)]
    if not 1 <= len(found) <= 3:
        return None
    return found[0], found[min(1, len(found) - 1)], found[-1]


def find_masks(
    specs: Sequence[TensorSpec], sequences: Sequences, arrangement: Arrangement, labelled: int | None
) -> Masks | None:
    """Return the operands that are masks; None if these specs do not decide."""
    rest = [index for index in range(len(specs)) if index not in sequences]
    query, key = specs[sequences[0]].shape, specs[sequences[1]].shape
    batch, queries, keys = arrangement.batch(query), arrangement.length(query), arrangement.length(key)
    stacked = None if batch is None else batch * arrangement.heads
    matrices = ((queries, keys), (stacked, queries, keys))
    rows = (keys,) if arrangement.rank == 2 else (batch, keys)
    # A single mask without a label is refused in a run if it has either shape: symbolic sizes need no guard.
    equal = is_same if len(rest) == 1 and labelled not in rest else _is_equal
    attention = [index for index in rest if any(equal(specs[index].shape, each) for each in matrices)]
    padding = [index for index in rest if _is_equal(specs[index].shape, rows)]
    if len(rest) == 2:
        orders = (rest[::-1], rest) if specs[rest[0]].dtype == np.bool_ else (rest, rest[::-1])
        fitting = [Masks(attention=a, padding=p) for a, p in orders if a in attention and p in padding]
        return fitting[0] if fitting else None
    if len(rest) != 1:
        return None if rest else Masks()
    if attention == padding == rest and None in specs[rest[0]].shape:
        return None  # dynamic sizes: those of a run decide
    if attention == rest and (labelled in rest or not padding):
        return Masks(attention=rest[0])
    return Masks(padding=rest[0]) if padding == rest and not attention else None


def _is_equal(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and a == b


def check_masks(masks: Masks, specs: Sequence[TensorSpec], sequences: Sequences, arrangement: Arrangement) -> None:
    """Refuse masks that were identified by the file's shapes, but whose own shapes do not fit.

    Raises:
        ShapeError: naming the mask.
    """
    query, key = specs[sequences[0]].shape, specs[sequences[1]].shape
    batch, matrix = arrangement.batch(query), (arrangement.length(query), arrangement.length(key))
    stacked = None if batch is None else batch * arrangement.heads
    fitting: dict[str, list[Shape]] = {
        "attention": [matrix, (stacked, *matrix)],
        "padding": [matrix[1:] if arrangement.rank == 2 else (batch, *matrix[1:])],
    }
    for name, shapes in fitting.items():
        index = getattr(masks, name)
        if index is not None and not any(may_match(specs[index].shape, shape) for shape in shapes):
            expected = " or ".join(map(format_shape, shapes))
            raise ShapeError(f"{name} mask does not fit", found=format_shape(specs[index].shape), expected=expected)


def _looks_like_sequence(spec: TensorSpec, arrangement: Arrangement) -> bool:
    floating = dtype_category(spec.dtype) is Category.FLOATING
    return floating and spec.rank == arrangement.rank and spec.shape[-1] in arrangement.widths


def _is_mask(shape: Shape, query: Shape, arrangement: Arrangement, labelled: bool) -> bool:
    """Return whether a possible sequence is a mask (batch * heads, queries, keys) or, unbatched, (queries, keys)."""
    batch, queries = arrangement.batch(query), arrangement.length(query)
    if arrangement.rank == 2:
        return labelled and shape[0] == queries
    if not may_equal(arrangement.batch(shape), batch):
        return True
    return labelled and batch is not None and shape[:2] == (batch * arrangement.heads, queries)
