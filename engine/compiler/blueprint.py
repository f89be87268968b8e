"""A compiled graph as plain data: all that an instance needs, and all that the cache keeps.

Nothing here refers to a graph or to memory: places are offsets, functions and operators are names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from engine.compiler.buffers import Buffers
from engine.compiler.native import NativeSteps
from engine.compiler.places import Address, Home, home_of
from engine.passes import PassReport
from engine.tensor import Array


class Alarm(IntEnum):
    """Why a kernel cannot vouch for its result.

    A run that met what is not finite is repeated without Winograd's algorithm, one with an index outside of a table,
    or an integer that is divided by 0, on the reference.
    """

    NOT_FINITE = 1
    OUTSIDE = 2


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
class ReferenceCall:
    """An operator that its numpy layer computes.

    Args:
        inputs, outputs: where tensors lie; None for values kept by the name of their operand.
    """

    operator: str
    inputs: tuple[Region | None, ...]
    outputs: tuple[Region | None, ...]


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
    steps: NativeSteps
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
    buffers: Buffers = field(default_factory=Buffers)
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
