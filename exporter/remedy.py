"""What helps where a pair gives other answers: the converter loses less the less it simplifies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import engine
from exporter.errors import ConversionError

E = TypeVar("E", bound=engine.EngineError)
_MOST_NAMED = 3


def unfit(error: engine.EngineError) -> ConversionError:
    """What the engine says of a pair whose operators do not fit each other: PyTorch's did."""
    return ConversionError(f"pnnx wrote a pair that cannot be run: {error}")


def with_remedy(error: E, levels: Iterable[int], attempt: Callable[[int], object]) -> E:
    """The error, and the first of these levels of simplification at which the answers agree, or that there is none.

    Args:
        error: what was found at another level.
        levels: the ones to try, the most simplification first.
        attempt: converts at a level and holds the pair against the model.
    """
    tried = []
    for level in levels:
        tried.append(str(level))
        try:
            attempt(level)
        except engine.EngineError:
            continue
        return _with(error, f"the answers agree with --opt-level {level}")
    return _with(error, f"nor do they agree with --opt-level {' or '.join(tried)}") if tried else error


def _with(error: E, remedy: str) -> E:
    if error.found is None:
        return type(error)(f"{error.problem}; {remedy}", where=error.where)
    return type(error)(error.problem, where=error.where, found=error.found, expected=f"{error.expected}; {remedy}")


def own_constants(graph: engine.RuntimeGraph) -> str:
    """Constants that the converter computed itself, and who takes them; it computes some of them wrongly.

    A cell called in a loop from a state of zeros and a list that a script appends to are known to be.
    """
    makers = [op for op in graph.source.operators if op.type == "pnnx.Attribute" and op.name.startswith("pnnx_fold_")]
    found = []
    for maker in makers[:_MOST_NAMED]:
        takers = [op for op in graph.source.operators if set(op.inputs) & set(maker.outputs)]
        found.append(f"{maker.name} for {takers[0].name} ({takers[0].type})" if takers else maker.name)
    more = f" and {len(makers) - _MOST_NAMED} more" if len(makers) > _MOST_NAMED else ""
    return ", ".join(found) + more
