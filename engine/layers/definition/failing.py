"""Unexpected exceptions of this package's layers, converted to errors.

A layer checks its operands before numpy does. Remaining exceptions that, by their class or the rank of the operands,
can only be caused by operands become a ShapeError that shows them. All others become an ExecutionError: a fault of
the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.errors import EngineError, ExecutionError, ShapeError
from engine.tensor import scalar_tensor, spec_of

_LONGEST: Final = 500
_SHOWN: Final = 200
_NO_LOOP: Final = "ufunc '"
"""Prefix of numpy's message that it has no loop for some dtypes; not all of these errors have a class of their own."""
# Some numpy functions accept no more dimensions, none more than twice as many, and many layers add one.
_MOST_DIMENSIONS: Final = 31


def unforeseen(exc: Exception, operands: Sequence[object]) -> EngineError:
    """Return the error for an exception of a layer.

    Args:
        operands: the operator's inputs, for the message.
    """
    problem = _problem(exc, operands)
    if problem is None:
        return ExecutionError(f"failed with {type(exc).__name__}: {exc}"[:_LONGEST])
    return ShapeError(problem, found=_shown(operands))


def _problem(exc: Exception, operands: Sequence[object]) -> str | None:
    if isinstance(exc, MemoryError):
        return "there is not enough memory to compute the result of these operands"
    if isinstance(exc, TypeError) and str(exc).startswith(_NO_LOOP):
        return "the operation is not defined for operands of these dtypes"
    if isinstance(exc, OverflowError):
        return "a number among the operands is out of range"
    if isinstance(exc, np.linalg.LinAlgError):
        return f"linear algebra failed for a matrix ({str(exc)[:_SHOWN]})"
    if any(np.ndim(each) > _MOST_DIMENSIONS for each in operands if isinstance(each, np.ndarray)):
        return "an operand has too many dimensions"
    return None


def _shown(operands: Sequence[object]) -> str:
    return ", ".join(_operand(each) for each in operands)[:_SHOWN] or "no operands"


def _operand(value: object) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return str(spec_of(value))
    if isinstance(value, (bool, int, float, complex)):
        return str(spec_of(scalar_tensor(value)))
    return f"{type(value).__name__} {value!r}"[:40]
