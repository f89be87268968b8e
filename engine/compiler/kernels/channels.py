"""Channels as vectors, each (lanes, channels in it), and as panels of vectors computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Value, as_value, constant, hint, vector
from engine.compiler.kernels.functions import half

Panel: TypeAlias = tuple[tuple[int, int], ...]

T = TypeVar("T")

# Largest unroll factor of a K loop, and the products an iteration should have.
MOST_UNROLLED = 4
ENOUGH_PRODUCTS = 28


def fitting_lanes(size: int, lanes: int) -> int:
    """Return the lanes of the narrowest vector that holds a size (of a symbolic size its hint), at most ``lanes``."""
    size = hint(size)
    while lanes > 1 and lanes // 2 >= size:
        lanes //= 2
    return lanes


def candidate_sizes(limit: int, size: int | None = None) -> list[int]:
    """Return candidate numbers up to a limit, each at most 3/4 of the next; only those not larger than ``size``."""
    numbers = []
    while limit > 0:
        if size is None or limit <= size:
            numbers.append(limit)
        limit = min(limit - 1, 3 * limit // 4)
    return numbers[::-1]


def vectors_of(channels: int, lanes: int) -> list[tuple[int, int]]:
    """Return the vectors of some channels as (lanes, channels in it); the last is the narrowest that fits."""
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


def unroll_factor(sums: int) -> int:
    """Return the unroll factor of a K loop with this many accumulators: a power of two.

    Enough products hide the loop overhead; more only adds code to compile.
    """
    terms = 1
    while terms < MOST_UNROLLED and terms * sums < ENOUGH_PRODUCTS:
        terms *= 2
    return terms


def width_of(panel: Sequence[tuple[int, int]]) -> int:
    """Return the floats in some vectors, empty lanes included."""
    return sum(lanes for lanes, _ in panel)


def starts_of(panel: Panel) -> list[int]:
    """Return the offset of each vector, in floats."""
    return [width_of(panel[:k]) for k in range(len(panel))]


def load_panel(f: Function, address: Value, panel: Panel, *, is_padded: bool = False) -> list[Value]:
    """Load the consecutive vectors of a panel.

    Args:
        is_padded: whether memory holds the empty lanes too; otherwise they are zero and not read.
    """
    offsets = zip(starts_of(panel), panel, strict=True)
    return [
        f.load_lanes(vector(lanes), f.at(address, first), lanes if is_padded else real)
        for first, (lanes, real) in offsets
    ]


def load_stored(f: Function, address: Value, panel: Panel, dtype: str, host: Host) -> list[Value]:
    """Load the consecutive vectors of a panel of float32 or 16-bit floats; nothing behind them is read."""
    size = half.SIZES.get(dtype)
    if size is None:
        return load_panel(f, address, panel)
    offsets = zip(starts_of(panel), panel, strict=True)
    return [
        half.from_half(f, f.load_bytes(f.at(address, first, size), lanes, real, size), dtype, host)
        for first, (lanes, real) in offsets
    ]


def panels_of(channels: int, lanes: int, size: int) -> tuple[Panel, ...]:
    """Return the panels of some channels, ``size`` vectors each; only the last panel may differ from the others."""
    vectors = vectors_of(channels, lanes)
    return tuple(tuple(vectors[k : k + size]) for k in range(0, len(vectors), size))


def cases(f: Function, index: Index, parts: Sequence[T]) -> Iterator[T]:
    """Yield the variants to emit code for, each inside the branch that runs for it: the first, and a different last.

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
