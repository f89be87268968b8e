"""A compiled graph as plain data: all that an instance needs, and all that the cache keeps.

Nothing here refers to a graph or to memory: places are offsets, functions and operators are names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NewType

import numpy as np

from engine.passes import PassReport
from engine.tensor import Array


class NotYetMadeError(Exception):
    """There is no code for a kernel, and none is to be made."""


class Alarm(IntEnum):
    """Why a kernel cannot vouch for its result.

    A run that met what is not finite is repeated without Winograd's algorithm, one with an index outside of a table,
    or an integer that is divided by 0, on the reference.
    """

    NOT_FINITE = 1
    OUTSIDE = 2


class Home(IntEnum):
    """Which block of memory something is part of; or a number, that of its offset."""

    ARENA = 0
    CONSTANT = 1
    INPUT = 2
    OUTPUT = 3
    NUMBER = 4
    WEIGHT = 5


Address = NewType("Address", int)
"""A place in memory: the block, the graph's input or output it is, the byte there; see ``address``."""
_HOMES: Final = tuple(Home)
_HOME_BITS: Final = 3
_PLACE_BITS: Final = 32


def address(home: Home, port: int, offset: int) -> Address:
    """A place in one number: a program has a thousand, and the collector of garbage looks at no numbers.

    Args:
        port: number of the graph's input or output, where that is the home; else 0.
        offset: bytes after the beginning of the home.
    """
    return Address(offset << _PLACE_BITS | port << _HOME_BITS | home)


def home_of(place: Address) -> Home:
    """The block of memory it is in."""
    return _HOMES[place & (1 << _HOME_BITS) - 1]


def port_of(place: Address) -> int:
    """The number of the input or output it is in."""
    return (place & (1 << _PLACE_BITS) - 1) >> _HOME_BITS


def offset_of(place: Address) -> int:
    """Bytes after the beginning of its home."""
    return place >> _PLACE_BITS


def taken_apart(places: Sequence[Address]) -> tuple[Array, Array]:
    """The homes of places, as numbers, and the bytes there; at once, for a program has a thousand."""
    try:
        words = np.array(places, np.int64)
    except OverflowError:  # somewhere behind two gigabytes
        words = np.array(places, object)
    return (words & (1 << _HOME_BITS) - 1).astype(np.intp), (words >> _PLACE_BITS).astype(np.int64)


def among_constants(place: Address, at: int) -> Address:
    """The same where weights lie among the constants, from that byte on."""
    return place if home_of(place) is not Home.WEIGHT else address(Home.CONSTANT, 0, at + offset_of(place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A tensor in memory.

    Args:
        strides: in bytes.
        dtype: numpy's name of it.
    """

    address: Address
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def is_whole_output(self) -> bool:
        """Whether it is an array of its own that the caller gets."""
        return home_of(self.address) is Home.OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeStep:
    """A kernel to run, and what reports say of it.

    Args:
        function: its name in the machine code.
        arguments: the addresses it is given.
        operators: names of those it computes, the one that gave it its kind first.
        bytes: read and written, each once.
        is_dealt: whether chunks are dealt out to threads one by one, and not as shares of consecutive ones.
    """

    function: str
    kind: str
    chunks: int
    arguments: tuple[Address, ...]
    operators: tuple[str, ...]
    flops: int
    bytes: int
    is_dealt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """An operator that its numpy layer computes.

    Args:
        inputs, outputs: where tensors lie; None for values kept by the name of their operand.
    """

    operator: str
    inputs: tuple[Region | None, ...]
    outputs: tuple[Region | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A piece of the arena that holds values for some time; nothing of a run needs to know.

    Args:
        first, last: steps and calls, in the order they run, at whose beginning and end it is somebody's; ``last`` is
            their number where the caller gets what is in it.
        operands: names of the values in it; none where it is a kernel's own.
    """

    offset: int
    bytes: int
    first: int
    last: int
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Native steps ``first`` to ``last``, the last excluded, without Python between them; or one operator."""

    first: int
    last: int
    call: ReferenceCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A compiled graph for inputs of one set of shapes.

    Args:
        code: object code for the host it was made for, in parts.
        constants: the packed weights, one aligned block of bytes.
        tables_at: byte of them where tables begin of which a run reads few rows, on a page; None where there are none.
        weights: those that other programs of the graph use, too; a block like it.
        outputs: of every output its region, or the name of an operand whose value is kept.
        reasons: operator -> why it runs on the reference.
        clean: bytes of the arena, from and to, that must be zero before the first run in it.
        alarm: byte of the arena where kernels say why the run is void, if it is: an Alarm.
        operators: names of those the passes left.
        passes: what they did.
        tuned: by operator what was measured of its kernel, as plain data.
        buffers: what lies where in the arena, and when.
    """

    code: tuple[bytes, ...]
    constants: Array
    steps: tuple[NativeStep, ...]
    segments: tuple[Segment, ...]
    arena_bytes: int
    outputs: tuple[Region | str, ...]
    reasons: dict[str, str]
    clean: tuple[tuple[int, int], ...] = ()
    alarm: int | None = None
    tables_at: int | None = None
    operators: tuple[str, ...] = ()
    passes: tuple[PassReport, ...] = ()
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()
    weights: Array = field(default_factory=lambda: np.empty(0, np.uint8), compare=False)

    @property
    def constant_bytes(self) -> int:
        """All that is packed."""
        return int(self.constants.nbytes + self.weights.nbytes)

    @property
    def calls(self) -> frozenset[str]:
        """Names of the operators that run on the reference."""
        return frozenset(segment.call.operator for segment in self.segments if segment.call is not None)

    @property
    def needs_graph(self) -> bool:
        """Whether a run needs more than this: layers of the graph, or values it holds."""
        return bool(self.calls) or any(isinstance(output, str) for output in self.outputs)
