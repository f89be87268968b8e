"""Abstract values of operands while the batch is followed through a graph.

Sizes are symbolic: the number of items is a size like any other, and the shape of a tensor tells along which axis it
holds the items. A value that is known before a run is what its description says it is: independent of the batch, or
computed from the number of items alone. Of every other tensor one of these is known:

``Shared``: the same for every batch: weights, constants.
``Items``: slices along one axis belong to one item each.
``Mixed``: not proved to be any of these; it names the responsible operator.

An item may have several slices along an axis of length ``outer * n * inner``: element ``(o * n + i) * inner + j``
belongs to item ``i``. Windows of an image that are folded into the batch have an ``inner`` size, time steps an
``outer`` one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Shared:
    """The same for every batch."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Not proved to keep items apart.

    Args:
        reason: names the operator: ``m (ReduceMax) reduces the batch axis``.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Items:
    """A tensor that holds the batch along one axis.

    Args:
        axis: counted from the front.
        outer, inner: sizes before and after the item's number within the axis.
        is_number: the elements are the number of their item, as of ``arange(n)``, and nothing else depends on it.
        numbers: places along the last axis where the elements are the number of their item: index tuples.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    is_number: bool = False
    numbers: frozenset[int] = frozenset()

    @property
    def layout(self) -> tuple[int, int]:
        """The sizes around the item's number."""
        return self.outer, self.inner

    @property
    def is_numbered(self) -> bool:
        """Return whether an element depends on the place of its item in the batch."""
        return self.is_number or bool(self.numbers)


Value: TypeAlias = Any
"""One of these classes, or a tuple, list or dict of them, nested like the operand's value."""

SHARED: Final = Shared()


class MixesError(Exception):
    """Raised by a rule: why an operator does not keep the items apart; completes "<operator> ..."."""


def leaves(value: Any) -> list[Any]:
    """Return the leaves of a nested value."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def nested(function: Callable[..., Value], *values: Any) -> Value:
    """Apply a function to the leaves of equally nested values."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: nested(function, *(each[key] for each in values)) for key in first}
    if isinstance(first, (tuple, list)):
        return type(first)(nested(function, *each) for each in zip(*values, strict=True))
    return function(*values)
