"""The way that works, where a pair cannot be had or gives other answers: each is tried before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import engine
from exporter.errors import ConversionError

E = TypeVar("E", bound=engine.EngineError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Another way to export a model.

    Args:
        name: what a message calls it, as in "with --opt-level 1".
        attempt: exports the model so, holds the result against it and returns what to add to the name; raises
            EngineError where that fails.
    """

    name: str
    attempt: Callable[[], str]


def unfit(error: engine.EngineError) -> engine.EngineError:
    """Return what to say of a pair that cannot be built: where operators do not fit each other, PyTorch's did."""
    if isinstance(error, (engine.ParameterError, engine.ShapeError, engine.GraphError)):
        return ConversionError(f"pnnx wrote a pair that cannot be run: {error}")
    return error


def with_remedy(error: E, ways: Iterable[Way]) -> E:
    """Add the first way that works to what an error says, or all that were tried."""
    tried = []
    for way in ways:
        tried.append(way.name)
        try:
            detail = way.attempt()
        except engine.EngineError:
            continue
        return _with(error, f"the answers agree {way.name}{detail}")
    return _with(error, f"nor do they agree {_listed(tried)}") if tried else error


def _listed(names: Sequence[str]) -> str:
    """Return names as a list: "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _with(error: E, remedy: str) -> E:
    error.remark = f"{error.remark}; {remedy}" if error.remark else remedy
    return error
