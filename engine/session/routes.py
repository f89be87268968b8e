"""Inputs of shapes that have passed all checks before, and the way they went."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from engine.graph import RuntimeGraph
from engine.tensor import Array

if TYPE_CHECKING:
    from engine.compiler.again import Again

T = TypeVar("T")
Given: TypeAlias = Sequence[Any] | Mapping[str, Any] | Array
Shapes: TypeAlias = tuple[Any, ...]

# What is known of shapes is small; a client that sends ever new ones must not make it much.
_MAX_KNOWN: Final = 256


class Table(dict[Shapes, T]):
    """What is known of inputs by their shapes, up to a number of them; many threads may use it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def keep(self, key: Shapes, known: T) -> None:
        """Know it from now on; where there is no room all others are forgotten."""
        with self._lock:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[key] = known


class Route(NamedTuple):
    """How inputs of some shapes were run.

    places: where each of the graph's inputs was found in what was given.
    again: what runs them as machine code; None where nothing was compiled.
    """

    graph: RuntimeGraph
    places: list[Any]
    again: Again | None


def shapes_of(inputs: Given) -> Shapes | None:
    """Names or places, shapes and dtypes; None where not all are arrays."""
    is_named = type(inputs) is dict or isinstance(inputs, Mapping)  # the first is what most are, and asked sooner
    if is_named:
        given: Collection[tuple[Any, Any]] = inputs.items()  # type: ignore[union-attr]  # it is one
    elif isinstance(inputs, np.ndarray):
        given = [(0, inputs)]
    elif isinstance(inputs, (list, tuple)):
        given = list(enumerate(inputs))
    else:
        return None
    key = tuple([(place, each.shape, each.dtype) for place, each in given if type(each) is np.ndarray])
    return (is_named, *key) if len(key) == len(given) else None


def places_in(inputs: Given, arrays: Sequence[Array]) -> list[Any] | None:
    """Where in what was given each of these arrays is; None where one was made of it."""
    if isinstance(inputs, np.ndarray):
        inputs = [inputs]
    given: Collection[tuple[Any, Any]] = inputs.items() if isinstance(inputs, Mapping) else list(enumerate(inputs))
    found = {id(each): place for place, each in given}
    if len(found) < len(given) or any(id(array) not in found for array in arrays):
        return None  # of an array that is given twice nobody knows which input it was
    return [found[id(array)] for array in arrays]
