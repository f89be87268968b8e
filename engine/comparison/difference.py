"""Difference of two values.

Floating-point values are judged by their largest error relative to the *scale* of the reference, its largest finite
magnitude: an element near zero among large ones is not expected to be exact. Integers and booleans must be equal.
NaN and infinities must be where the reference has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.tensor import BFLOAT16, Array, DType, dtype_name, format_shape

ATOL: Final = 1e-6
# Sums of float32 in another order differ by some 1e-6 of their scale in deep networks; wrong formulas by 1e-4 and more.
_RTOL: Final = 1e-4
_COARSE_RTOL: Final[dict[DType, float]] = {np.dtype(np.float16): 1e-2, BFLOAT16: 5e-2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Result of comparing a computed value with its reference.

    Args:
        max_abs: the largest absolute error; infinite if only one of the two is finite, or they cannot be compared.
        scale: the largest finite magnitude of the reference.
        allowed: the largest absolute error that passes.
        problem: a fault other than the size of the error: shape, kind of numbers, NaN; None if there is none.
    """

    max_abs: float
    scale: float = 0.0
    allowed: float = 0.0
    problem: str | None = None

    @property
    def relative(self) -> float:
        """The largest error as a share of the reference's scale."""
        if self.max_abs == 0:
            return 0.0
        return self.max_abs / self.scale if self.scale else float("inf")

    @property
    def diverges(self) -> bool:
        """Return whether the value differs from the reference by more than is allowed."""
        return self.problem is not None or not self.max_abs <= self.allowed


def measure(computed: object, reference: Array, *, rtol: float | None = None, atol: float = ATOL) -> Difference:
    """Compare a value with its reference.

    Args:
        computed: an array, a Python number or a list of numbers; anything else is a problem of its own.
        rtol: allowed error as a share of the scale; by default 1e-4, and more for half precision.
        atol: allowed absolute error, added to it.
    """
    found = as_numbers(computed)
    if found is None:
        return _incomparable(f"the operand is not a tensor but {type(computed).__name__}")
    if found.shape != reference.shape:
        return _incomparable(f"shape {format_shape(found.shape)}, reference {format_shape(reference.shape)}")
    if _kind(found.dtype) != _kind(reference.dtype):
        return _incomparable(f"dtype {dtype_name(found.dtype)}, reference {dtype_name(reference.dtype)}")
    if _kind(reference.dtype) in "bi":
        return _exact(found, reference)
    return _approximate(found, reference, _share(found.dtype, reference.dtype) if rtol is None else rtol, atol)


def as_numbers(value: object) -> Array | None:
    """Return a tensor, a number or a list of numbers as an array; None for any other value."""
    if isinstance(value, np.ndarray):
        return value
    items = value if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(item, (bool, int, float, complex)) for item in items):
        return np.asarray(value)
    return None


def planes(array: Array) -> Array:
    """Return floating-point values in double precision; complex ones as a stack of real and imaginary parts."""
    if array.dtype.kind == "c":
        wide = array.astype(np.complex128)
        return np.stack([wide.real, wide.imag])
    return array.astype(np.float64)


def _incomparable(problem: str) -> Difference:
    return Difference(max_abs=float("inf"), problem=problem)


def _kind(dtype: DType) -> str:
    return {"u": "i", "V": "f"}.get(dtype.kind, dtype.kind)  # bfloat16 has kind V


def _share(*dtypes: DType) -> float:
    return max(_COARSE_RTOL.get(dtype, _RTOL) for dtype in dtypes)


def _exact(found: Array, reference: Array) -> Difference:
    wanted = reference.astype(np.float64)
    max_abs = float(np.max(np.abs(found.astype(np.float64) - wanted), initial=0))
    return Difference(max_abs=max_abs, scale=float(np.max(np.abs(wanted), initial=0)))


def _approximate(found: Array, reference: Array, rtol: float, atol: float) -> Difference:
    got, want = planes(found), planes(reference)
    finite = np.isfinite(want)
    scale = float(np.max(np.abs(want), initial=0, where=finite))
    unlike = ~np.where(finite, np.isfinite(got), (got == want) | (np.isnan(got) & np.isnan(want)))
    both = finite & ~unlike
    max_abs = float(np.max(np.abs(got[both] - want[both]), initial=0))
    if unlike.any():
        problem = f"{int(unlike.sum())} of {unlike.size} elements are NaN or infinite in only one of the two"
        return Difference(max_abs=float("inf"), scale=scale, allowed=atol + rtol * scale, problem=problem)
    return Difference(max_abs=max_abs, scale=scale, allowed=atol + rtol * scale)
