"""Valid integers of a model, found by running it with growing ones until it refuses them.

Integers are mostly indices or counts: rows of a table, positions on a canvas, repetitions. Only the model's own
behaviour shows which of them are valid. In an input with few columns (``x`` and ``y``; or a sentence, a position and a
kind) each column has a range of its own.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import torch

from exporter.errors import SourceError
from exporter.inputs import DTYPES, InputSpec
from exporter.tensors import answer, flatten

# Single precision holds every integer up to here; no table has more rows.
_LARGEST: Final = 2**24
# Most columns that are searched one by one.
_MOST_COLUMNS: Final = 8
_SEARCH_S: Final = 10.0
# Cost limits of a run with larger integers: multiples of the time and results of the first run, or these minima.
_TIMES: Final = 16
_RUN_S: Final = 0.1
_ELEMENTS: Final = 2**20


@dataclass(frozen=True, slots=True)
class Range:
    """Range of the integers of one input.

    Args:
        low, high: smallest and largest, vectors of one element, or of one for each column.
        start: 0, or 1 if the model rejects zeros.
    """

    low: Any
    high: Any
    start: int

    def of_columns(self, count: int) -> Range:
        """Return this range for another number of columns: the intersection of all columns if the number differs."""
        if len(self.high) == count:
            return self
        return Range(self.low.max().expand(count), self.high.min().expand(count), self.start)

    def __str__(self) -> str:
        low, high = int(self.low.min()), int(self.high.max())
        return f"{low} to {high}"


Ranges = tuple[Range | None, ...]


def is_integer(spec: InputSpec) -> bool:
    """Return whether an input holds integers, not booleans."""
    return spec.dtype[:1] in "iu"


def find_ranges(model: Any, inputs: Sequence[InputSpec], others: Sequence[Any], guess: Ranges | None = None) -> Ranges:
    """Find the integers that a model accepts.

    Args:
        model: run with all elements of an input, or of one of its columns, equal.
        inputs: the shapes and dtypes.
        others: a tensor for each input; those without integers are used.
        guess: ranges found at other shapes, kept if they hold at these, too.

    Returns:
        A range for each input of integers, None for the others. All maxima may be used together.

    Raises:
        SourceError: the model accepts neither zeros nor ones; with the reason.
    """
    columns = [_columns(spec) if is_integer(spec) else 0 for spec in inputs]
    if not any(columns):
        return (None,) * len(inputs)
    search = _Search(model, inputs, others, columns)
    if guess is not None:
        guess = tuple(each and each.of_columns(n) for each, n in zip(guess, columns, strict=True))
        if search.holds(guess):
            return guess
    start = search.start()
    high, low = search.furthest(start, 1), search.furthest(start, -1)
    return tuple(Range(a, b, start) if n else None for a, b, n in zip(low, high, columns, strict=True))


class _Search:
    """Runs of a model with integers that are equal in each column."""

    def __init__(self, model: Any, inputs: Sequence[InputSpec], others: Sequence[Any], columns: Sequence[int]) -> None:
        self._model, self._inputs, self._others, self._columns = model, inputs, others, columns
        self._until = time.monotonic() + _SEARCH_S
        self._seconds = self._elements = 0.0
        self._may_have_nan = True

    def start(self) -> int:
        """Return 0 or 1, whichever the model accepts."""
        try:
            self._measure(0)
        except SourceError as refused:
            try:
                self._measure(1)
            except SourceError:
                raise refused from None
            return 1
        return 0

    def holds(self, ranges: Ranges) -> bool:
        """Return whether the model accepts both ends of these ranges."""
        ends = ([getattr(each, end, torch.zeros(0)) for each in ranges] for end in ("high", "low"))
        try:
            for values in ends:
                self._run(values)
        except SourceError:
            return False
        return True

    def furthest(self, start: int, sign: int) -> list[Any]:
        """Return the largest integers (the smallest for sign -1) of all together, then of each input and column."""
        values = self._alike(start)
        for group in self._groups():
            self._move(values, group, sign)
        return values

    def _groups(self) -> Iterator[list[tuple[int, int]]]:
        """Yield groups of inputs and columns that change together."""
        places = [[(k, column) for column in range(n)] for k, n in enumerate(self._columns) if n]
        yield [*chain.from_iterable(places)]
        if len(places) > 1:
            yield from places
        yield from ([each] for columns in places if len(columns) > 1 for each in columns)

    def _move(self, values: list[Any], group: Sequence[tuple[int, int]], sign: int) -> None:
        """Move some of the values as far as the model accepts them: by doubling, then by bisection."""
        limit = min(_limit(self._inputs[k], sign) for k, _ in group)
        good = max(0, sign * int(values[group[0][0]][group[0][1]]))

        def takes(size: int) -> bool:
            tried = [each.clone() for each in values]
            for k, column in group:
                tried[k][column] = sign * size
            return self._takes(tried)

        good = _furthest(takes, good, limit)
        for k, column in group:
            values[k][column] = sign * good if good else values[k][column]

    def _takes(self, values: Sequence[Any]) -> bool:
        if time.monotonic() > self._until:
            return False
        try:
            seconds, elements, has_nan = self._run(values)
        except SourceError:
            return False
        is_cheap = seconds <= max(_RUN_S, _TIMES * self._seconds)
        return is_cheap and elements <= max(_ELEMENTS, _TIMES * self._elements) and (self._may_have_nan or not has_nan)

    def _measure(self, value: int) -> None:
        self._seconds, self._elements, self._may_have_nan = self._run(self._alike(value))

    def _alike(self, value: int) -> list[Any]:
        return [torch.full((n,), value) for n in self._columns]

    def _run(self, values: Sequence[Any]) -> tuple[float, int, bool]:
        tensors = [
            _spread(spec, value) if n else other
            for spec, value, n, other in zip(self._inputs, values, self._columns, self._others, strict=True)
        ]
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [*flatten(answer(self._model, tensors))]
        return time.monotonic() - begun, sum(each.numel() for each in results), any(map(has_nan, results))


def has_nan(tensor: Any) -> bool:
    """Return whether a tensor of any dtype holds a NaN."""
    return bool(tensor.isnan().any())


def _furthest(takes: Callable[[int], bool], good: int, limit: int) -> int:
    """Return the largest accepted size up to a limit, given that ``good`` and all smaller ones are accepted."""
    bad = limit + 1
    while good < limit and bad > limit:
        size = min(max(2 * good, 1), limit)
        good, bad = (size, bad) if takes(size) else (good, size)
    while bad - good > 1 and bad <= limit:
        size = (good + bad) // 2
        good, bad = (size, bad) if takes(size) else (good, size)
    return good


def _limit(spec: InputSpec, sign: int) -> int:
    bounds = torch.iinfo(getattr(torch, DTYPES[spec.dtype]))
    return min(_LARGEST, int(bounds.max if sign > 0 else -bounds.min))


def _columns(spec: InputSpec) -> int:
    return spec.shape[-1] if spec.shape[-1] <= _MOST_COLUMNS else 1


def _spread(spec: InputSpec, value: Any) -> Any:
    return value.expand(spec.shape).to(getattr(torch, DTYPES[spec.dtype]))
