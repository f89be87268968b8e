"""String tensors, which models with their own preprocessing take, and names of dtypes.

Strings are nested lists in JSON, and UTF-8 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import InputMismatchError
from app.memory.reservation import charge

_TEXTS: Final = np.dtype(np.object_)
# Bytes of a Python string without its characters, and of an array element.
_EACH: Final = 64
_MOST_RANK: Final = 32


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether a tensor of this dtype holds strings."""
    return dtype == _TEXTS


def blank(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a tensor of zeros, or of empty strings."""
    return np.full(shape, "", _TEXTS) if is_text(dtype) else np.zeros(shape, dtype)


def from_lists(value: object, port: engine.Port) -> NDArray[Any]:
    """Return nested lists of strings as a tensor.

    Raises:
        InputMismatchError: the lists are not evenly nested, or hold something else.
    """
    shape = _shape(value)
    leaves = [value]
    for size in shape:
        if any(type(each) is not list or len(each) != size for each in leaves):
            message = f"input '{port.name}': found lists of unequal length, expected evenly nested lists of strings"
            raise InputMismatchError(message, input=port.name)
        leaves = [item for each in leaves for item in each]  # type: ignore[attr-defined]
    if any(type(each) is not str for each in leaves):
        message = f"input '{port.name}': found a value that is not a string, expected strings"
        raise InputMismatchError(message, input=port.name)
    return _array(leaves, shape)


def _shape(value: object) -> list[int]:
    shape: list[int] = []
    while type(value) is list and len(shape) < _MOST_RANK:
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def from_bytes(elements: Sequence[memoryview | bytes], shape: Sequence[int], name: str) -> NDArray[Any]:
    """Return UTF-8 texts as a tensor.

    Raises:
        InputMismatchError: a text is not UTF-8.
    """
    charge(sum(map(len, elements)) + _EACH * len(elements))
    try:
        return _array([bytes(each).decode() for each in elements], shape)
    except UnicodeDecodeError as error:
        message = f"input '{name}': found a text that is not UTF-8 ({error.reason}), expected UTF-8"
        raise InputMismatchError(message, input=name) from None


def _array(texts: Sequence[Any], shape: Sequence[int]) -> NDArray[Any]:
    charge(_EACH * len(texts))
    array = np.empty(tuple(shape), _TEXTS)
    array.reshape(-1)[:] = texts
    return array


def as_bytes(array: NDArray[Any]) -> list[bytes]:
    """Return each text as UTF-8, with lone surrogates replaced by question marks."""
    texts = [str(each).encode(errors="replace") for each in array.reshape(-1).tolist()]
    charge(sum(map(len, texts)) + _EACH * len(texts))
    return texts


def as_strings(array: NDArray[Any]) -> list[str]:
    """Return each text without lone surrogates, as JSON can represent it."""
    return [each.decode() for each in as_bytes(array)]


def as_fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Return texts in numpy's fixed-width dtype, which files store without pickle."""
    texts = as_strings(array)
    charge(4 * len(texts) * max(map(len, texts), default=1))
    return np.array(texts, np.str_).reshape(array.shape)


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return ``dtype.name``, cached since numpy builds it each time; ``string`` for numpy's object dtype."""
    return "string" if dtype.hasobject else dtype.name
