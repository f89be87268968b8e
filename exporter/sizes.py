"""Shapes at which a pair with dynamic dimensions is tried, in addition to the two of the export.

A converter may keep values computed from the two examples: a padding of 1, an even length. So dimensions are tried at
odd and prime sizes below, between and above both. Dimensions with the same sizes in both examples count as one size;
several sizes first change together, in proportion, then one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import gcd

from exporter.inputs import InputSpec

_Pair = tuple[int, int]
_Resize = Callable[[int, int, _Pair], int]
"""Function from the index of an input, a dimension of it and its two sizes to the size to try."""


def other_shapes(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> tuple[tuple[InputSpec, ...], ...]:
    """Return further shapes to try, all different; a model may refuse any of them."""
    found = dict.fromkeys(_applied(resize, first, second) for resize in _resizes(first, second))
    return tuple(
        each for each in found if each not in (tuple(first), tuple(second)) and all(min(s.shape) > 0 for s in each)
    )


def _resizes(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> Iterator[_Resize]:
    places = {(k, dim): pair for k, dim, pair in _places(first, second) if pair[0] != pair[1]}
    pairs = tuple(dict.fromkeys(places.values()))
    steps = gcd(*(b - a for a, b in pairs))
    # The sizes of this pair are chosen; the others are derived from them.
    a, b = max(pairs, key=lambda pair: abs(pair[1] - pair[0]))
    for size in _sizes(a, b):
        yield _in_proportion(round((size - a) * steps / (b - a)), steps)
    if len(pairs) > 1:
        for pair in pairs:
            yield from (_of_one_pair(pair, size) for size in (_next_prime(max(pair)), _odd_below(min(pair))))
    for place, pair in places.items():
        if list(places.values()).count(pair) > 1 and place[0] == next(k for k, dim in places if places[k, dim] == pair):
            yield _of_one_place(place, _next_prime(max(pair)))


def _places(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> Iterator[tuple[int, int, _Pair]]:
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        yield from ((k, dim, pair) for dim, pair in enumerate(zip(a.shape, b.shape, strict=True)))


def _sizes(a: int, b: int) -> Iterator[int]:
    """Yield sizes to try for one that was ``a`` and ``b``: in equal steps, then odd ones above, below and between."""
    low, high = min(a, b), max(a, b)
    yield 2 * high - low
    yield 3 * high - 2 * low
    yield 2 * low - high
    yield _next_prime(high)
    yield _odd_below(low)
    yield (low // 2) | 1
    yield ((low + high) // 2) | 1


def _odd_below(size: int) -> int:
    return size - 1 - size % 2


def _next_prime(size: int) -> int:
    return next(n for n in count(size + 1) if all(n % k for k in range(2, int(n**0.5) + 1)))


def _in_proportion(step: int, steps: int) -> _Resize:
    return lambda k, dim, pair: pair[0] + step * (pair[1] - pair[0]) // steps


def _of_one_pair(changed: _Pair, size: int) -> _Resize:
    return lambda k, dim, pair: size if pair == changed else pair[0]


def _of_one_place(place: tuple[int, int], size: int) -> _Resize:
    return lambda k, dim, pair: size if (k, dim) == place else pair[0]


def _applied(resize: _Resize, first: Sequence[InputSpec], second: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    shapes = [list(spec.shape) for spec in first]
    for k, dim, pair in _places(first, second):
        shapes[k][dim] = resize(k, dim, pair) if pair[0] != pair[1] else pair[0]
    return tuple(InputSpec(shape=tuple(shape), dtype=spec.dtype) for shape, spec in zip(shapes, first, strict=True))
