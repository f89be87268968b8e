"""Channels side by side: in vectors, each (lanes, channels in it), and in panels of vectors computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

from engine.compiler.codegen.ir import Function, Index, Value, as_value, constant, hint, vector

Panel: TypeAlias = tuple[tuple[int, int], ...]

T = TypeVar("T")

# Terms of a sum that a turn of an innermost loop multiplies at most, and products that it has at least where it can.
MOST_TERMS = 4
ENOUGH_PRODUCTS = 28


def fitting_lanes(size: int, lanes: int) -> int:
    """Lanes of the narrowest vector that holds a size, ``lanes`` at most; an open size is taken by its hint."""
    size = hint(size)
    while lanes > 1 and lanes // 2 >= size:
        lanes //= 2
    return lanes


def few(limit: int, size: int | None = None) -> list[int]:
    """Some of the numbers up to a limit, each a good part less than the one before; those that fit a size."""
    numbers = []
    while limit > 0:
        if size is None or limit <= size:
            numbers.append(limit)
        limit = min(limit - 1, 3 * limit // 4)
    return numbers[::-1]


def vectors_of(channels: int, lanes: int) -> list[tuple[int, int]]:
    """How channels fall into vectors: (lanes, channels in it); the last is the narrowest that holds the rest."""
    full, rest = divmod(channels, lanes)
    widths = [(lanes, lanes)] * full
    if rest:
        narrow = lanes
        while narrow // 2 >= rest and narrow > 4:
            narrow //= 2
        if rest == 1:
            narrow = 1
        widths.append((narrow, rest))
    return widths


def terms_a_turn(sums: int) -> int:
    """How many terms a turn of an innermost loop multiplies, for so many sums in registers: a power of two.

    What a turn takes beside products is hidden by enough of them; more are but more code, which LLVM has to make.
    """
    terms = 1
    while terms < MOST_TERMS and terms * sums < ENOUGH_PRODUCTS:
        terms *= 2
    return terms


def width_of(panel: Sequence[tuple[int, int]]) -> int:
    """Floats of some vectors (lanes, channels), empty lanes included."""
    return sum(lanes for lanes, _ in panel)


def starts_of(panel: Panel) -> list[int]:
    """Where each of some vectors begins, in floats after the first."""
    return [width_of(panel[:k]) for k in range(len(panel))]


def load_panel(f: Function, address: Value, panel: Panel, *, is_padded: bool = False) -> list[Value]:
    """The vectors of a panel that lie side by side from an address on.

    Args:
        is_padded: whether empty lanes lie in memory too; else they are zero, and unread.
    """
    pieces = zip(starts_of(panel), panel, strict=True)
    return [
        f.load_lanes(vector(lanes), f.at(address, first), lanes if is_padded else real)
        for first, (lanes, real) in pieces
    ]


def panels_of(channels: int, lanes: int, size: int) -> tuple[Panel, ...]:
    """The vectors of some channels, ``size`` of them to a panel; only the last panel may differ from the others."""
    vectors = vectors_of(channels, lanes)
    return tuple(tuple(vectors[k : k + size]) for k in range(0, len(vectors), size))


def cases(f: Function, index: Index, parts: Sequence[T]) -> Iterator[T]:
    """What code is to be written for, so that it runs for the part of an index: the first, and the last if it differs.

    for panel in cases(f, index, panels):
        ...
    """
    first, last = parts[0], parts[-1]
    if first == last:
        yield first
        return
    is_last = f.compare("eq", as_value(index), as_value(len(parts) - 1))
    with f.when(f.binary("xor", is_last, constant(1, "i1"))):
        yield first
    with f.when(is_last):
        yield last
