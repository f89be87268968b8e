"""Operands that are integers or lists of them: parameters of the file, or tensors known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.ir.dims import plain
from engine.ir.sizes import holds_sizes
from engine.layers.definition.known import SHAPE_PARAMETERS, is_dropped_shape, shape_list
from engine.layers.operands.precision import check_ordered
from engine.tensor import UNKNOWN, Array, Number, TensorSpec, dtype_name, known_value


def whole_numbers(value: object, name: str) -> tuple[int, ...] | None:
    """Return the numbers; None if they are known only at run time.

    Raises:
        ShapeError: they are no integers; also checked if only dtype and rank are known.
    """
    if name in SHAPE_PARAMETERS and is_dropped_shape(value):
        value = shape_list(value)
    if isinstance(value, (np.ndarray, TensorSpec)):
        is_whole = value.dtype.kind in "iub" or holds_sizes(value)
        if not is_whole or len(value.shape) > 1:
            described = f"{dtype_name(value.dtype)} of {len(value.shape)} dimensions"
            raise ShapeError(f"{name} is not a list of integers", found=described)
    value = known_value(value)
    if value is UNKNOWN:
        return None
    if isinstance(value, np.ndarray):
        return tuple(map(plain, np.atleast_1d(value).tolist()))
    items = value if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(item, TensorSpec) or item is UNKNOWN for item in items):
        return None
    found = [item.item() if isinstance(item, (np.ndarray, np.generic)) and item.size == 1 else item for item in items]
    if not all(isinstance(item, int) for item in found):
        raise ShapeError(f"{name} is not a list of integers", found=_shown(found))
    return tuple(plain(item) for item in found)


def whole_number(value: object, name: str) -> int | None:
    """Return one number; None if it is known only at run time.

    Raises:
        ShapeError: it is no integer.
    """
    numbers = whole_numbers(value, name)
    if numbers is None:
        return None
    if len(numbers) != 1:
        raise ShapeError(f"{name} is not one number", found=_shown(numbers))
    return numbers[0]


def needed(value: Any, name: str) -> Any:
    """Return a value that must be known at run time.

    Raises:
        ShapeError: it is missing.
    """
    if value is None:
        raise ShapeError(f"operand '{name}' is missing", found="None")
    return value


def real_number(value: Array | Number | None, default: float, name: str) -> float:
    """Return one number of any dtype, or the default if it is absent.

    Raises:
        ShapeError: there are several, or it is complex.
    """
    if value is None:
        return default
    if isinstance(value, np.ndarray):
        check_ordered(value.dtype)
        return float(single(value, name))
    if isinstance(value, (bool, int, float)):
        return float(value)
    raise ShapeError(f"{name} is not one number", found=_shown(value))


def single(value: Array, name: str) -> Any:
    """Return the only element of an operand as a Python number.

    Raises:
        ShapeError: there is none, or several.
    """
    if value.size != 1:
        raise ShapeError(f"{name} is not one number", found=_shown(value.shape))
    return value.reshape(()).item()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
