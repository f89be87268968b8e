"""Machine code held against the reference on one graph: the same answer, or a refusal of both."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

import engine
from engine.layers.definition.known import RANDOM_MODULES
from tests.engine.layers.samples import Sample

# Of the largest element of an output: what sums in another order may change.
_LARGEST_ERROR: Final = 1e-4
# Why machine code need not answer where the reference does.
_NOT_COMPILED: Final = ("no operator of the graph has a kernel", "is too large to be kept")
# What the last bits of float32 operands may change where an output is far smaller than they are, as tails are, and
# distances from a mean.
_ROUNDING: Final = 8 * float(np.finfo(np.float32).eps)
_WIDEST_TAIL: Final = 2048.0
# Steps between neighbouring numbers near zero that sums in another order may be apart.
_LAST_STEPS: Final = 8
# Beyond these an angle that was computed is nobody's: the last bit of a sum is a turn.
_LARGEST_ANGLE: Final = 4e8
_ANGLES: Final = re.compile(r"\b(sin|cos|tan)\b", re.IGNORECASE)


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
    if isinstance(found, engine.CompileError) and any(reason in str(found) for reason in _NOT_COMPILED):
        found = expected
    if isinstance(expected, engine.EngineError):
        if not isinstance(found, engine.EngineError):
            raise Disagreement(
                f"the reference refuses: {expected}; machine code gives {[each.shape for each in found]}"
            )
        raise expected
    if isinstance(found, engine.EngineError):
        raise Disagreement(f"machine code refuses: {type(found).__name__} {found}") from found
    if not is_random(graph) and not _has_far_angles(graph, inputs):
        rounding = rounding_of(inputs)
        for index, (mine, its) in enumerate(zip(found, expected, strict=True)):
            compare(f"output {index}", mine, its, rounding)
    return expected


def rounding_of(inputs: list[Any]) -> float:
    """What the last bits of these may change in any output."""
    return _ROUNDING * min(_largest(inputs), _WIDEST_TAIL)


def _largest(inputs: list[Any]) -> float:
    """The largest finite magnitude among them."""
    arrays = [np.asarray(each) for each in inputs if isinstance(each, (np.ndarray, np.generic))]
    finite = [each[np.isfinite(each)].astype(np.float64) for each in arrays if each.dtype.kind in "fiu"]
    return max((float(np.abs(each).max(initial=0)) for each in finite), default=0.0)


def _has_far_angles(graph: engine.RuntimeGraph, inputs: list[Any]) -> bool:
    """Whether sines are asked of angles that no float32 tells apart."""
    if _largest(inputs) <= _LARGEST_ANGLE:
        return False
    return any(_ANGLES.search(f"{op.type} {op.params}") for op in graph.operators)


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
        part.__module__ for op in graph.operators if op.layer is not None for part in type(op.definition).__mro__
    }
    return bool(modules & RANDOM_MODULES)


def compare(where: str, found: Any, expected: Any, rounding: float = 0.0) -> None:
    """Hold one output against another, as far as sums in another order may change it.

    Args:
        rounding: a difference that the last bits of the operands explain.

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
    is_close = error <= max(_LARGEST_ERROR * scale, rounding, _coarseness(expected.dtype))
    if not (is_close and np.array_equal(mine[~finite], its[~finite], equal_nan=True)):
        raise Disagreement(f"{where}: differs by {error} of {scale}: {mine.flat[:6]} and {its.flat[:6]}")


def _coarseness(dtype: np.dtype[Any]) -> float:
    """A difference that numbers near zero have no digits for, however small they are themselves."""
    return _LAST_STEPS * float(np.finfo(dtype).smallest_subnormal) if dtype.kind in "fc" else 0.0
