"""Tensors that passes store in the graph, and how large they may become."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.pnnx import Attribute, Operator
from engine.tensor import Array, TensorSpec

LARGE: Final = 1 << 20
"""Bytes up to which any constant is stored."""

GROWTH: Final = 16
"""How many times the bytes it is made from a larger constant may take."""


def is_small_enough(made: int, made_from: int) -> bool:
    """Whether a constant of so many bytes is worth its memory."""
    return made <= max(LARGE, GROWTH * made_from)


def bytes_of(value: object) -> int:
    """Bytes of the tensors in a value, or of those that specs announce."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    if isinstance(value, np.ndarray):
        return value.nbytes
    return (value.size or 0) * value.dtype.itemsize if isinstance(value, TensorSpec) else 0


def stored(value: Array) -> Attribute:
    """A tensor as the file holds it: contiguous and read-only."""
    data = np.ascontiguousarray(value).reshape(value.shape).view()
    data.flags.writeable = False
    return Attribute(data.shape, data.dtype, data)


def tensor(name: str, value: Array, operand: str = "") -> Operator:
    """An operator that makes a stored tensor."""
    return Operator("pnnx.Attribute", name, (), (operand or name,), {}, {"data": stored(value)})
