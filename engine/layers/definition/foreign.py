"""Layers from outside this package, whose announcements and results are checked before anything relies on them."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, ExecutionError, ShapeError
from engine.layers.definition.layer import Layer
from engine.tensor import CODES, UNKNOWN, Array, Dim, DType, TensorSpec

_MAX_DEPTH: Final = 8
_LARGEST: Final = 2**63 - 1
_LONGEST: Final = 500


def is_foreign(layer: Layer) -> bool:
    """Return whether a layer is a user's."""
    return not type(layer).__module__.startswith("engine.layers.")


def failure(method: str, exc: BaseException) -> ExecutionError:
    """Return an exception of a user's method as an error; the caller adds the operator."""
    what = "" if method == "forward" else f"{method} "
    return ExecutionError(f"{what}failed with {type(exc).__name__}: {exc}"[:_LONGEST])


def checked_specs(result: Any, depth: int = 0) -> Any:
    """Return the result of infer(), its sizes as Python integers.

    Raises:
        ShapeError: a layer cannot announce it.
    """
    if isinstance(result, TensorSpec):
        return _checked_spec(result)
    if isinstance(result, (tuple, list)) and depth < _MAX_DEPTH:
        items = [checked_specs(item, depth + 1) for item in result]
        return tuple(items) if isinstance(result, tuple) else items
    if result is UNKNOWN or isinstance(result, (bool, int, float, complex)):
        return result
    raise ShapeError(
        "infer returned neither a spec nor a value", found=_kind(result), expected="a TensorSpec, or several"
    )


def _checked_spec(spec: TensorSpec) -> TensorSpec:
    try:
        shape = tuple(_checked_dim(dim) for dim in spec.shape)
        dtype = np.dtype(spec.dtype) if spec.dtype is not None else None
    except (TypeError, ValueError):
        shape, dtype = (), None
    if dtype is None or not _is_number(dtype):
        found = f"TensorSpec({spec.shape!r:.80}, {spec.dtype!r:.80})"
        raise ShapeError("infer returned an invalid spec", found=found, expected="sizes >= 0 or None, and a dtype")
    return TensorSpec(shape, dtype)


def _checked_dim(dim: Any) -> Dim:
    if dim is None:
        return None
    if isinstance(dim, (bool, np.bool_)):
        raise TypeError
    size = operator.index(dim)
    if not 0 <= size <= _LARGEST:
        raise ValueError
    return size


def checked_values(result: Any, depth: int = 0) -> Any:
    """Return the result of forward(): plain arrays of numbers, Python numbers, tuples and lists of those.

    Raises:
        ExecutionError: it is not a tensor.
    """
    if isinstance(result, (np.ndarray, np.generic)):
        return _checked_array(result)
    if isinstance(result, (bool, int, float, complex)):
        return result
    if isinstance(result, (tuple, list)) and depth < _MAX_DEPTH:
        items = [checked_values(item, depth + 1) for item in result]
        return tuple(items) if isinstance(result, tuple) else items
    expected = "an array or a number, or a tuple of one for every output"
    raise ExecutionError("forward did not return a tensor", found=_kind(result), expected=expected)


def _checked_array(value: Array | np.generic) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise ExecutionError("forward returned a masked array", expected="a plain array")
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not _is_number(array.dtype):
        raise ExecutionError("forward returned an array that does not hold numbers", found=f"dtype {array.dtype}")
    return array


def _is_number(dtype: DType) -> bool:
    return dtype.newbyteorder("=") in CODES or dtype.kind == "u"


def fitted(value: Any, announced: object) -> Any:
    """Return a checked value of forward(), compared with the announcement of infer().

    Raises:
        ExecutionError: they contradict each other.
    """
    if not isinstance(announced, TensorSpec):
        return value
    if isinstance(value, (bool, int, float, complex)) and announced.shape == ():
        value = np.asarray(value).astype(announced.dtype) if announced.dtype.kind in "fc" else np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise ExecutionError(
            "forward and infer returned different kinds of values", found=_kind(value), expected=announced
        )
    sizes = zip(value.shape, announced.shape, strict=False)
    if value.ndim != announced.rank or any(dim not in (None, size) for size, dim in sizes):
        found = TensorSpec(value.shape, value.dtype)
        raise ExecutionError("forward and infer returned different shapes", found=found, expected=announced)
    if value.dtype != announced.dtype:
        found = TensorSpec(value.shape, value.dtype)
        raise ExecutionError("forward and infer returned different dtypes", found=found, expected=announced)
    return value


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def called(method: str, call: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a user's method; an exception becomes an error that names the method."""
    try:
        return call(*args, **kwargs)
    except EngineError:
        raise
    except (Exception, SystemExit, GeneratorExit) as exc:
        raise failure(method, exc) from exc
