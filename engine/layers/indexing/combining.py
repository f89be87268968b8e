"""Elements written at positions of a tensor, or combined with the existing ones."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.operands.bounds import extremes
from engine.layers.operands.precision import working_dtype
from engine.promotion import cast
from engine.tensor import Array, DType, dtype_name

WAYS: Final[dict[str, Any]] = {
    "add": np.add, "sum": np.add, "mean": np.add, "multiply": np.multiply, "prod": np.multiply,
    "amax": np.maximum, "amin": np.minimum,
}  # fmt: skip
"""Functions that combine elements, by name."""


def check_way(reduce: str) -> None:
    """Refuse an unknown way to combine elements."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ParameterError("unknown reduce", found=reduce, expected="sum, prod, mean, amax or amin")


def written(input: Array, places: Array, source: Array, reduce: str | None) -> Array:
    """Return a copy of input with source written at positions of the flattened input, or combined with its elements."""
    dtype = input.dtype if reduce is None else working_dtype(input.dtype)
    result = input.astype(dtype, order="C").reshape(-1)
    if reduce is None:
        result[places] = cast(source, dtype)
    else:
        with np.errstate(all="ignore"):
            WAYS[reduce].at(result, places.reshape(-1), cast(source, dtype).reshape(-1))
    return cast(result, input.dtype).reshape(input.shape)


def reduced(input: Array, places: Array, source: Array, reduce: str, include_self: bool) -> Array:
    """Return a copy reduced like PyTorch: also by means, and without the existing elements if include_self is false."""
    if (reduce in ("amax", "amin") and input.dtype.kind == "c") or (reduce == "mean" and input.dtype.kind == "b"):
        raise ShapeError(f"{reduce} is not defined for this dtype", found=dtype_name(input.dtype))
    table = np.atleast_1d(input)
    counts = np.bincount(places.reshape(-1), minlength=input.size).reshape(table.shape)
    if not include_self:
        table = np.where(counts > 0, neutral(reduce, input.dtype), table)
    result = written(table, places, source, reduce)
    if reduce == "mean":
        divisor = np.maximum(counts + include_self, 1)
        wide = cast(result, working_dtype(input.dtype))
        result = wide // divisor if wide.dtype.kind in "iu" else wide / divisor.astype(wide.dtype)
    return cast(result, input.dtype).reshape(input.shape)


def neutral(reduce: str, dtype: DType) -> Array:
    """Return the neutral element of a reduction."""
    if reduce in ("amax", "amin"):
        return cast(extremes(dtype)[reduce == "amin"], dtype)
    return cast(1 if reduce == "prod" else 0, dtype)
