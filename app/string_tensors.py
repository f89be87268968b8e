"""Tensors of texts, as models that prepare their own input take them: lists of strings in JSON, UTF-8 elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import InputMismatchError
from app.memory.reservation import charge

_TEXTS: Final = np.dtype(np.object_)
# What Python takes for a text beside its characters, and a place in an array.
_EACH: Final = 64
_MOST_RANK: Final = 32


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a tensor of this dtype holds texts."""
    return dtype == _TEXTS


def blank(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A tensor of noughts, or of empty texts."""
    return np.full(shape, "", _TEXTS) if is_text(dtype) else np.zeros(shape, dtype)


def from_lists(value: object, port: engine.Port) -> NDArray[Any]:
    """Nested lists of strings as a tensor.

    Raises:
        InputMismatchError: they are not evenly nested, or hold something else.
    """
    shape = _shape(value)
    leaves = [value]
    for size in shape:
        if any(type(each) is not list or len(each) != size for each in leaves):
            raise InputMismatchError(f"input '{port.name}': the lists are not evenly nested", input=port.name)
        leaves = [item for each in leaves for item in each]  # type: ignore[attr-defined]
    if any(type(each) is not str for each in leaves):
        raise InputMismatchError(f"input '{port.name}': a value is no string, expected strings", input=port.name)
    return _array(leaves, shape)


def _shape(value: object) -> list[int]:
    shape: list[int] = []
    while type(value) is list and len(shape) < _MOST_RANK:
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def from_bytes(elements: Sequence[memoryview | bytes], shape: Sequence[int], name: str) -> NDArray[Any]:
    """Texts in UTF-8 as a tensor.

    Raises:
        InputMismatchError: one is none.
    """
    charge(sum(map(len, elements)) + _EACH * len(elements))
    try:
        return _array([bytes(each).decode() for each in elements], shape)
    except UnicodeDecodeError as error:
        raise InputMismatchError(f"input '{name}': a text is not UTF-8: {error.reason}", input=name) from None


def _array(texts: Sequence[Any], shape: Sequence[int]) -> NDArray[Any]:
    charge(_EACH * len(texts))
    array = np.empty(tuple(shape), _TEXTS)
    array.reshape(-1)[:] = texts
    return array


def as_bytes(array: NDArray[Any]) -> list[bytes]:
    """Each text as UTF-8; halves of pairs, which it cannot say, as question marks."""
    texts = [str(each).encode(errors="replace") for each in array.reshape(-1).tolist()]
    charge(sum(map(len, texts)) + _EACH * len(texts))
    return texts


def as_strings(array: NDArray[Any]) -> list[str]:
    """Each text as JSON can say it."""
    return [each.decode() for each in as_bytes(array)]


def as_fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Texts as numpy's own dtype for them, which a file needs no pickle for."""
    texts = as_strings(array)
    charge(4 * len(texts) * max(map(len, texts), default=1))
    return np.array(texts, np.str_).reshape(array.shape)
