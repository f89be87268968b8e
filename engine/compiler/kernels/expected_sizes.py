"""Sizes a tile is chosen for: a static size itself, or a range around the hint of a symbolic one."""

from __future__ import annotations

from collections.abc import Callable

from engine.ir.dims import hint, is_symbolic

# Number of sizes averaged over.
SAMPLES = 16


def expected_sizes(size: int) -> range:
    """Return the sizes to choose a tile for; a symbolic size is expected from half to one and a half times its hint.

    A program with a tile of seven columns is correct for images of seven columns or more.
    """
    size_now = hint(size)
    if not is_symbolic(size):
        return range(size_now, size_now + 1)
    least = -(-size_now // 2)
    return range(least, size_now + least + 1)


def mean_of(sizes: range, function: Callable[[int], float]) -> float:
    """Return the mean of a function over these sizes."""
    some = sizes[:: -(-len(sizes) // SAMPLES)]
    return sum(map(function, some)) / len(some)


def mean_count(sizes: range, width: int) -> float:
    """Return the mean number of tiles of this width that cover these sizes."""
    return mean_of(sizes, lambda size: -(-size // width))
