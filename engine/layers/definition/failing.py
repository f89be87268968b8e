"""What a layer of this package raised without having foreseen it, as an error that says what does not fit.

numpy refuses operands with exceptions of its own. Those that can only mean operands (dtypes it has no loop for, shapes
that do not broadcast, sizes no memory holds, numbers beyond 64 bits) become a ShapeError that shows the operands;
whatever else it is stays an ExecutionError, for it is a fault of the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.errors import EngineError, ExecutionError, ShapeError
from engine.tensor import scalar_tensor, spec_of

_LONGEST: Final = 500
_SHOWN: Final = 200
# What numpy says, where its exceptions are of no class of their own.
_DTYPES: Final = (
    "not supported for the input types",
    "Cannot cast",
    "ufunc '",
    "data type",
    "dtype",
    "numpy boolean",
    "not 'complex'",
)
_SIZES: Final = (
    "array is too big", "Maximum allowed dimension exceeded", "dimensions are too large", "too many dimensions",
    "maximum supported dimension", "more dimensions than allowed", "index arrays cannot be above", "supports up to",
    "number of dimensions must be", "Maximum allowed size exceeded", "iterator is too large",
    "maximum number of dimension",
)  # fmt: skip
_RANKS: Final = ("of unsized object", "over a 0-d array", "too many indices for array")
_FITS: Final = (
    "broadcast",
    "cannot reshape array",
    "mismatch in its core dimension",
    "shape-mismatch",
    "must match exactly",
    "shapes",
    "not aligned",
    "into shape ()",
)


def unforeseen(exc: Exception, operands: Sequence[object]) -> EngineError:
    """The error for an exception of a layer.

    Args:
        operands: the operator's inputs, for the message.
    """
    problem = _problem(exc)
    if problem is None:
        return ExecutionError(f"failed with {type(exc).__name__}: {exc}"[:_LONGEST])
    return ShapeError(problem, found=_shown(operands))


def _problem(exc: Exception) -> str | None:
    text = str(exc)
    if isinstance(exc, MemoryError) or (
        isinstance(exc, (ValueError, IndexError, RuntimeError)) and _says(text, _SIZES)
    ):
        return "what is computed of these operands is too large"
    if isinstance(exc, TypeError) and _says(text, _DTYPES):
        return "operands of these dtypes cannot be computed with"
    if isinstance(exc, ValueError) and _says(text, _FITS):
        return "operands do not fit each other"
    if isinstance(exc, IndexError) and "arrays used as indices" in text:
        return "an index must be of integers"
    if isinstance(exc, OverflowError) or "cannot convert float" in text:
        return "a number among the operands is out of range"
    if isinstance(exc, ValueError) and _says(text, ("zero-size array to reduction", "of an empty sequence")):
        return "there are no elements to choose from"
    if _says(text, _RANKS):
        return "an operand has too few dimensions"
    if isinstance(exc, np.linalg.LinAlgError):
        return f"a matrix cannot be computed with ({text[:_SHOWN]})"
    return None


def _says(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)


def _shown(operands: Sequence[object]) -> str:
    return ", ".join(_operand(each) for each in operands)[:_SHOWN] or "no operands"


def _operand(value: object) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return str(spec_of(value))
    if isinstance(value, (bool, int, float, complex)):
        return str(spec_of(scalar_tensor(value)))
    return f"{type(value).__name__} {value!r}"[:40]
