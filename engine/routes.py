"""Inputs of shapes that have passed all checks before, and what is known of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from engine.graph import RuntimeGraph
from engine.graph.footprint import Footprint
from engine.tensor import Array, TensorSpec

if TYPE_CHECKING:
    from engine.compiler.again import Again

Given: TypeAlias = Sequence[Any] | Mapping[str, Any] | Array


class Known(NamedTuple):
    """Of inputs of some shapes.

    specs: of the inputs of each run, of which there are so many parts.
    again: what runs them as machine code; None where nothing was compiled.
    """

    graph: RuntimeGraph
    specs: list[TensorSpec]
    footprint: Footprint
    parts: int
    again: Again | None


class Route(NamedTuple):
    """How inputs of some shapes were run.

    places: where each of the graph's inputs was found in what was given.
    again: as ``Known`` has it.
    """

    graph: RuntimeGraph
    places: list[Any]
    again: Again | None


def shapes_of(inputs: Given) -> tuple[Any, ...] | None:
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
