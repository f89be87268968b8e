"""Places in memory, each a number: a program has a thousand, and the collector of garbage looks at no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NewType

import numpy as np

from engine.tensor import Array


class MemorySpace(IntEnum):
    """Which block of memory something is part of; or a number, that of its offset."""

    ARENA = 0
    CONSTANT = 1
    INPUT = 2
    OUTPUT = 3
    NUMBER = 4
    WEIGHT = 5


Address = NewType("Address", int)
"""A place in memory: the block, the graph's input or output it is, the byte there; see ``address``."""
_SPACES: Final = tuple(MemorySpace)
_SPACE_BITS: Final = 3
_PLACE_BITS: Final = 32


def address(space: MemorySpace, port: int, offset: int) -> Address:
    """A place in one number.

    Args:
        port: number of the graph's input or output, where that is the space; else 0.
        offset: bytes after the beginning of the space.
    """
    return Address(offset << _PLACE_BITS | block_of(space, port))


def block_of(space: MemorySpace, port: int) -> int:
    """Return the block of memory that a place is in, as its lowest bits say it."""
    return port << _SPACE_BITS | space


def block_in(place: Address) -> int:
    """Return the block of memory that a place is in."""
    return place & (1 << _PLACE_BITS) - 1


def address_in(block: int, offset: int) -> Address:
    """Return the place of a byte of a block of memory."""
    return Address(offset << _PLACE_BITS | block)


def space_of(place: Address) -> MemorySpace:
    """The block of memory it is in."""
    return _SPACES[place & (1 << _SPACE_BITS) - 1]


def port_of(place: Address) -> int:
    """The number of the input or output it is in."""
    return (place & (1 << _PLACE_BITS) - 1) >> _SPACE_BITS


def offset_of(place: Address) -> int:
    """Bytes after the beginning of its space."""
    return place >> _PLACE_BITS


def words_of(numbers: Sequence[object]) -> Array:
    """Many places, or other numbers, as an array: of words, or of any numbers where one is behind two gigabytes."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array(numbers, object)


def spaces_and_ports(blocks: Array) -> tuple[Array, Array]:
    """Return the spaces of blocks of memory, as numbers, and their ports."""
    return (blocks & (1 << _SPACE_BITS) - 1).astype(np.intp), blocks >> _SPACE_BITS


def among_constants(place: Address, at: int) -> Address:
    """The same where weights lie among the constants, from that byte on."""
    return (
        place if space_of(place) is not MemorySpace.WEIGHT else address(MemorySpace.CONSTANT, 0, at + offset_of(place))
    )
