"""Sizes that are chosen for together, where images come in many: one choice for all of them is one code.

What is best for 57 columns is seldom best for 58. A choice by the average over the sizes near one is a little worse for
each, and the same for all of them: of twelve thousand sizes of a picture a layer meets a dozen.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.channels import few

# Sizes below are looked at one by one: with few pixels what is left over at an edge is a large share.
EXACT = 16
# Classes from a size to twice as much.
STEPS = 4
# Choices that are kept for a class, the best first: where there is no code for it another is better than none.
MOST_RANKED = 12
# Sizes of a class that an average is taken of.
SAMPLES = 16


def alike(size: int) -> range:
    """The sizes for which the same is chosen: below ``EXACT`` this one alone, then a quarter of what lies to double."""
    if size < EXACT:
        return range(size, size + 1)
    step = (1 << (size.bit_length() - 1)) // STEPS
    first = size - size % step
    return range(first, first + step)


def chosen_for(size: int, *, is_open: bool) -> range:
    """The sizes for which the same is chosen as for one: itself alone, unless images come in many."""
    return alike(size) if is_open else range(size, size + 1)


def tried(limit: int, sizes: range, *, is_open: bool) -> Sequence[int]:
    """Widths of pieces of such sizes that are tried, up to a limit: all, or a few where images come in many sizes."""
    return few(limit, sizes.start) if is_open else range(1, min(limit, sizes.start) + 1)


def mean_count(sizes: range, width: int) -> float:
    """How many pieces of a width cover such a size, on average."""
    some = sizes[:: -(-len(sizes) // SAMPLES)]
    return sum(-(-size // width) for size in some) / len(some)
