"""Addresses of program memory, each encoded in one integer: the garbage collector does not visit integers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NewType

import numpy as np

from engine.tensor import Array


class MemorySpace(IntEnum):
    """Kind of memory block; NUMBER stands for a plain number, which is the offset."""

    ARENA = 0
    CONSTANT = 1
    INPUT = 2
    OUTPUT = 3
    NUMBER = 4
    WEIGHT = 5


Address = NewType("Address", int)
"""Address of a byte: its block, the number of an input or output, and the offset; see ``address``."""
_SPACES: Final = tuple(MemorySpace)
_SPACE_BITS: Final = 3
_PLACE_BITS: Final = 32


def address(space: MemorySpace, port: int, offset: int) -> Address:
    """Encode an address in one number.

    Args:
        port: number of the graph's input or output, where that is the space; else 0.
        offset: bytes from the beginning of the block.
    """
    return Address(offset << _PLACE_BITS | block_of(space, port))


def block_of(space: MemorySpace, port: int) -> int:
    """Return the block of memory of a space and port, as the lowest bits of an address encode it."""
    return port << _SPACE_BITS | space


def block_in(place: Address) -> int:
    """Return the block of memory of an address."""
    return place & (1 << _PLACE_BITS) - 1


def address_in(block: int, offset: int) -> Address:
    """Return the address of a byte of a block of memory."""
    return Address(offset << _PLACE_BITS | block)


def space_of(place: Address) -> MemorySpace:
    """Return the memory space of an address."""
    return _SPACES[place & (1 << _SPACE_BITS) - 1]


def port_of(place: Address) -> int:
    """Return the number of the input or output of an address."""
    return (place & (1 << _PLACE_BITS) - 1) >> _SPACE_BITS


def offset_of(place: Address) -> int:
    """Return the bytes from the beginning of its block."""
    return place >> _PLACE_BITS


def words_of(numbers: Sequence[object]) -> Array:
    """Return numbers as an array of 64-bit words, or of Python integers where one does not fit."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array(numbers, object)


def spaces_and_ports(blocks: Array) -> tuple[Array, Array]:
    """Return the memory spaces of blocks, as numbers, and their ports."""
    return (blocks & (1 << _SPACE_BITS) - 1).astype(np.intp), blocks >> _SPACE_BITS


def among_constants(place: Address, at: int) -> Address:
    """Return the address in the constants block, for weights that begin there at byte ``at``."""
    return (
        place if space_of(place) is not MemorySpace.WEIGHT else address(MemorySpace.CONSTANT, 0, at + offset_of(place))
    )
