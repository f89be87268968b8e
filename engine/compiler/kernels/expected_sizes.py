"""Sizes that a tile is chosen for: a known one alone, of a symbolic one those that it is expected to have."""

from __future__ import annotations

from collections.abc import Callable

from engine.ir.dims import hint, is_symbolic

# Sizes that an average is taken of.
SAMPLES = 16


def expected_sizes(size: int) -> range:
    """Return the sizes that a tile is chosen for: of a symbolic one, from half to one and a half times the hint.

    A program with a tile of seven columns is right for images of seven columns or more.
    """
    size_now = hint(size)
    if not is_symbolic(size):
        return range(size_now, size_now + 1)
    least = -(-size_now // 2)
    return range(least, size_now + least + 1)


def mean_of(sizes: range, function: Callable[[int], float]) -> float:
    """Return the average of a function of such sizes."""
    some = sizes[:: -(-len(sizes) // SAMPLES)]
    return sum(map(function, some)) / len(some)


def mean_count(sizes: range, width: int) -> float:
    """Return how many pieces of a width cover such a size, on average."""
    return mean_of(sizes, lambda size: -(-size // width))
