"""Machine code held against the reference on one graph: the same answer, or a refusal of both."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import engine
from engine.layers.known import RANDOM_MODULES
from tests.layers.samples import Sample

# Of the largest element of an output: what sums in another order may change.
_LARGEST_ERROR: Final = 1e-4
# Where every number of an output is as small as rounding.
_SMALLEST: Final = 1e-9


class Disagreement(Exception):
    """The two do not say the same."""


def by_both(graph: engine.RuntimeGraph, sample: Sample) -> list[Any]:
    """The reference's outputs for a sample's inputs, after machine code gave the same.

    Raises:
        EngineError: both refuse.
        Disagreement: one of them does, or they answer otherwise.
    """
    return agreed(graph, sample.sets[0].inputs)


def agreed(graph: engine.RuntimeGraph, inputs: list[Any]) -> list[Any]:
    """The same for any inputs."""
    expected = _tried(engine.Session(graph, backend="reference"), inputs)
    found = _tried(engine.Session(graph, backend="compiled", threads=1, cache=None), inputs)
    if isinstance(found, engine.CompileError) and "no operator of the graph has a kernel" in str(found):
        found = expected
    if isinstance(expected, engine.EngineError):
        if not isinstance(found, engine.EngineError):
            raise Disagreement(
                f"the reference refuses: {expected}; machine code gives {[each.shape for each in found]}"
            )
        raise expected
    if isinstance(found, engine.EngineError):
        raise Disagreement(f"machine code refuses: {type(found).__name__} {found}") from found
    if not is_random(graph):
        for index, (mine, its) in enumerate(zip(found, expected, strict=True)):
            compare(f"output {index}", mine, its)
    return expected


def _tried(session: engine.Session, inputs: list[Any]) -> Any:
    try:
        return session.run(inputs)
    except engine.EngineError as error:
        return error
    finally:
        session.close()


def is_random(graph: engine.RuntimeGraph) -> bool:
    """Whether a layer of the graph draws numbers, so that no two runs give the same."""
    modules = {
        part.__module__ for op in graph.operators if op.layer is not None for part in type(op.layer.layer).__mro__
    }
    return bool(modules & RANDOM_MODULES)


def compare(where: str, found: Any, expected: Any) -> None:
    """Hold one output against another, as far as sums in another order may change it.

    Raises:
        Disagreement: another shape, dtype or number.
    """
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise Disagreement(f"{where}: {found.dtype} {found.shape} and {expected.dtype} {expected.shape}")
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    mine, its = found.astype(wide), expected.astype(wide)
    finite = np.isfinite(its)
    scale = np.abs(its[finite]).max(initial=0)
    with np.errstate(all="ignore"):
        error = np.abs(mine - its)[finite].max(initial=0)
    same = np.array_equal(mine[~finite], its[~finite], equal_nan=True) and error <= _LARGEST_ERROR * max(
        scale, _SMALLEST / _LARGEST_ERROR
    )
    if not same:
        raise Disagreement(f"{where}: differs by {error} of {scale}: {mine.flat[:6]} and {its.flat[:6]}")
