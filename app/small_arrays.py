"""Arrays of a few numbers: numpy takes microseconds to ask them anything, however few they are."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Of more, numpy is faster.
_FEW: Final = 32


def few_values(array: NDArray[Any]) -> list[float] | None:
    """The values of an array of a few floating-point numbers; None of others."""
    if array.size > _FEW or array.dtype.kind != "f":
        return None
    values: list[float] = array.ravel().tolist()
    return values


def all_finite(values: list[float]) -> bool:
    """Whether none of them is an infinity or NaN."""
    return all(map(isfinite, values))


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return ``dtype.name``, which numpy makes anew each time; ``string`` of texts, which numpy calls objects."""
    return "string" if dtype.hasobject else dtype.name
