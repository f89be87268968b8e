"""Compare machine code with the reference on one graph: both give the same answer, or both refuse."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

import engine
from engine.layers.definition.known import RANDOM_MODULES
from engine.tensor import Array
from tests.engine.layers.samples import Sample
from tests.fuzz.conditioning import has_any_infinity, is_ill_conditioned, rounding_of, undecided

# Of the largest element of an output: what sums in another order may change.
_LARGEST_ERROR: Final = 1e-4
# Why machine code need not answer where the reference does.
_NOT_COMPILED: Final = (
    "no operator of the graph has a kernel",
    "exceeds the memory limit",
    "machine code takes only tensors",
    "too many axes for machine code",
)
# Steps between neighbouring numbers near zero that sums in another order may be apart.
_LAST_STEPS: Final = 8


class DisagreementError(Exception):
    """The two do not say the same."""


def by_both(graph: engine.RuntimeGraph, sample: Sample) -> list[Any]:
    """The reference's outputs for a sample's inputs, after machine code gave the same.

    Raises:
        EngineError: both refuse.
        DisagreementError: one of them does, or they answer otherwise.
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
            raise DisagreementError(
                f"the reference refuses: {expected}; machine code gives {[each.shape for each in found]}"
            )
        raise expected
    if isinstance(found, engine.EngineError):
        raise DisagreementError(f"machine code refuses: {type(found).__name__} {found}") from found
    is_decided = not is_random(graph) and not is_ill_conditioned(graph, inputs)
    for index, (mine, its) in enumerate(zip(found, expected, strict=True)):
        compare_forms(f"output {index}", mine, its)
    if is_decided:
        rounding, masks = rounding_of(inputs, graph), undecided(graph, inputs, expected)
        for index, (mine, its, free) in enumerate(zip(found, expected, masks, strict=True)):
            any_infinity = has_any_infinity(graph, its)
            compare(f"output {index}", mine, its, rounding, undecided=free, any_infinity=any_infinity)
    return expected


def _tried(session: engine.Session, inputs: list[Any]) -> Any:
    try:
        return session.run(inputs)
    except engine.EngineError as error:
        return error
    finally:
        session.close()


def is_random(graph: engine.RuntimeGraph) -> bool:
    """Return whether a layer of the graph draws random numbers, so that no two runs give the same."""
    modules = {
        part.__module__ for op in graph.operators if op.layer is not None for part in type(op.definition).__mro__
    }
    return bool(modules & RANDOM_MODULES)


def compare_forms(where: str, found: Any, expected: Any) -> None:
    """Hold the shape and dtype of one output against another's.

    Raises:
        DisagreementError: they differ.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        raise DisagreementError(f"{where}: {found.dtype} {found.shape} and {expected.dtype} {expected.shape}")


def compare(
    where: str,
    found: Any,
    expected: Any,
    rounding: float = 0.0,
    *,
    undecided: Array | None = None,
    any_infinity: bool = False,
) -> None:
    """Hold one output against another, as far as sums in another order may change it.

    Args:
        rounding: a difference that the last bits of the operands explain.
        undecided: elements that are compared only where they are finite in both; the mask broadcasts to them.
        any_infinity: one element that is not finite is as good as another.

    Raises:
        DisagreementError: another shape, dtype or number.
    """
    compare_forms(where, found, expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    mine, its = found.astype(wide), expected.astype(wide)
    if any_infinity:
        mine, its = (np.where(np.isfinite(each), each, np.nan) for each in (mine, its))
    is_free = np.zeros(its.shape, bool) if undecided is None else np.broadcast_to(undecided, its.shape)
    finite = np.isfinite(its) & (np.isfinite(mine) | ~is_free)
    scale = np.abs(its[finite]).max(initial=0)
    with np.errstate(all="ignore"):
        error = np.abs(mine - its)[finite]
        allowed = np.maximum(last_digit(expected.dtype) * np.abs(its[finite]), _LARGEST_ERROR * scale)
    is_close = (error <= np.maximum(allowed, max(rounding, _coarseness(expected.dtype)))).all()
    others = ~finite & ~is_free
    if not (is_close and np.array_equal(mine[others], its[others], equal_nan=True)):
        largest = error.max(initial=0)
        raise DisagreementError(
            f"{where}: differs by {largest} of {scale}: {mine.reshape(-1)[:6]} and {its.reshape(-1)[:6]}"
        )


def last_digit(dtype: np.dtype[Any]) -> float:
    """Return the relative distance of neighbouring numbers of 16 bits, 0 for wider ones.

    Sums are taken in float32 and rounded once; where two of them lie on both sides of a half, their last digits differ.
    """
    is_narrow = dtype.itemsize == 2 and dtype.kind not in "biu"
    return float(ml_dtypes.finfo(dtype).eps) if is_narrow else 0.0


def _coarseness(dtype: np.dtype[Any]) -> float:
    """A difference that numbers near zero have no digits for, however small they are themselves."""
    return _LAST_STEPS * float(np.finfo(dtype).smallest_subnormal) if dtype.kind in "fc" else 0.0
