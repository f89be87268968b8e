"""Executables: compiled graphs as plain data, all that an instance needs and all that the cache stores.

Nothing here refers to a graph or to memory: addresses are offsets, functions and operators are names. Kernels are
stored column by column, so that numpy computes the numbers of all of them at once; a row becomes a ``NativeStep`` when
it is needed.

A graph with dynamic sizes has one executable for many sizes: in place of each number that depends on them it has an
index into a *pool* of numbers, which is computed for every set of sizes; see ``docs/symbolic-sizes.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, overload

import numpy as np

from engine.compiler.addresses import Address, MemorySpace, address_in, block_in, offset_of, space_of, words_of
from engine.passes import PassReport
from engine.tensor import Array

NO_TENSOR: Final = "it does not depend on a tensor"
"""Reason of an operator that runs on the reference because its result follows from sizes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Range of the arena that holds values for some time.

    Args:
        first, last: steps and calls, in execution order, at whose beginning and end the range is in use; ``last`` is
            the number of steps for an output of the graph.
        operands: names of the values in it; none for scratch memory of a kernel.
    """

    offset: int
    bytes: int
    first: int
    last: int
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeStep:
    """Kernel to run, with its figures for reports.

    Args:
        function: its name in the machine code.
        arguments: the addresses that it is given.
        operators: names of the operators that it computes, the one that determines its kind first.
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


@dataclass(frozen=True, slots=True, eq=False)
class NativeSteps(Sequence[NativeStep]):
    """Kernels in execution order, stored column by column.

    Args:
        operators: names of the operators of all kernels, concatenated.
        offsets, blocks: of the arguments of all kernels, concatenated: bytes, and the block of memory that they count
            in; see ``block_of``.
        ends: ends of every kernel's arguments and operators in those columns; the first row is 0 and 0.
    """

    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    operators: tuple[str, ...]
    chunks: Array
    flops: Array
    bytes: Array
    is_dealt: Array
    offsets: Array
    blocks: Array
    ends: Array

    @staticmethod
    def of(steps: Iterable[NativeStep]) -> NativeSteps:
        """Return steps as columns."""
        if isinstance(steps, NativeSteps):
            return steps
        rows = [*steps]
        counts = [(0, 0), *[(len(each.arguments), len(each.operators)) for each in rows]]
        return NativeSteps(
            functions=tuple([each.function for each in rows]),
            kinds=tuple([each.kind for each in rows]),
            operators=tuple([name for each in rows for name in each.operators]),
            chunks=words_of([each.chunks for each in rows]),
            flops=words_of([each.flops for each in rows]),
            bytes=words_of([each.bytes for each in rows]),
            is_dealt=np.array([each.is_dealt for each in rows], bool),
            offsets=words_of([offset_of(place) for each in rows for place in each.arguments]),
            blocks=np.array([block_in(place) for each in rows for place in each.arguments], np.int64),
            ends=np.cumsum(counts, axis=0, dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.functions)

    @overload
    def __getitem__(self, index: int) -> NativeStep: ...

    @overload
    def __getitem__(self, index: slice) -> list[NativeStep]: ...

    def __getitem__(self, index: int | slice) -> NativeStep | list[NativeStep]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        (place, name), (last_place, last_name) = self.ends[number : number + 2].tolist()
        return NativeStep(
            function=self.functions[number],
            kind=self.kinds[number],
            chunks=int(self.chunks[number]),
            arguments=tuple(self._arguments(slice(place, last_place))),
            operators=self.operators[name:last_name],
            flops=int(self.flops[number]),
            bytes=int(self.bytes[number]),
            is_dealt=bool(self.is_dealt[number]),
        )

    def numbered(self, pool: Array) -> NativeSteps:
        """Return the kernels with the numbers of a pool in place of its indices."""
        columns = {name: pool[getattr(self, name)] for name in ("chunks", "flops", "bytes", "offsets")}
        return replace(self, **columns)

    def _arguments(self, part: slice) -> Iterator[Address]:
        pairs = zip(self.offsets[part].tolist(), self.blocks[part].tolist(), strict=True)
        return (address_in(block, offset) for offset, block in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeSteps) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # arrays can change


class FaultFlag(IntEnum):
    """Reason why the result of a run is void.

    After NOT_FINITE the run is repeated without Winograd's algorithm. After OUTSIDE (an index out of range, or an
    integer division by 0) it is repeated on the reference.
    """

    NOT_FINITE = 1
    OUTSIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Tensor in memory.

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
        """Return whether it is an array of its own that the caller gets."""
        return space_of(self.address) is MemorySpace.OUTPUT

    def numbered(self, pool: Array) -> Region:
        """Return the region with the numbers of a pool in place of its indices."""
        return Region(
            address=address_in(block_in(self.address), int(pool[offset_of(self.address)])),
            shape=tuple([int(pool[each]) for each in self.shape]),
            strides=tuple([int(pool[each]) for each in self.strides]),
            dtype=self.dtype,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """Operator that its numpy layer computes.

    Args:
        inputs, outputs: regions of tensors; None for values that are kept by the name of their operand.
    """

    operator: str
    inputs: tuple[Region | None, ...]
    outputs: tuple[Region | None, ...]

    def numbered(self, pool: Array) -> ReferenceCall:
        """Return the call with the numbers of a pool in place of its indices."""
        inputs, outputs = (
            tuple([None if each is None else each.numbered(pool) for each in regions])
            for regions in (self.inputs, self.outputs)
        )
        return ReferenceCall(operator=self.operator, inputs=inputs, outputs=outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Native steps ``first`` to ``last``, the last excluded, without Python between them; or one operator."""

    first: int
    last: int
    call: ReferenceCall | None = None


def no_weights() -> Array:
    """Return the block of weights of an executable that shares none."""
    return np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """Compiled graph for inputs of one set of shapes.

    Args:
        code: object code for one host, in parts.
        constants: the packed weights, one aligned block of bytes.
        tables_at: offset in constants, on a page, where tables begin of which a run reads few rows; None without any.
        weights: those that other programs of the graph use too; a block like constants.
        outputs: region of every output, or the name of an operand whose value is kept.
        reasons: operator -> why it runs on the reference.
        clean: byte ranges of the arena that must be zero before the first run in it.
        fault_flag: byte of the arena where kernels store a FaultFlag.
        operators: names of the operators of the optimised graph.
        passes: reports of the passes.
        buffers: use of the arena over time.
    """

    code: tuple[bytes, ...]
    constants: Array
    steps: NativeSteps
    segments: tuple[Segment, ...]
    arena_bytes: int
    outputs: tuple[Region | str, ...]
    reasons: dict[str, str]
    clean: tuple[tuple[int, int], ...] = ()
    fault_flag: int | None = None
    tables_at: int | None = None
    operators: tuple[str, ...] = ()
    passes: tuple[PassReport, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    weights: Array = field(default_factory=no_weights, compare=False)

    @property
    def constant_bytes(self) -> int:
        """Return the bytes of all packed weights."""
        return int(self.constants.nbytes + self.weights.nbytes)

    @property
    def calls(self) -> frozenset[str]:
        """Return the names of the operators that run on the reference."""
        return frozenset(segment.call.operator for segment in self.segments if segment.call is not None)

    @property
    def needs_graph(self) -> bool:
        """Return whether a run needs layers of the graph, or values that it holds."""
        return bool(self.calls) or any(isinstance(output, str) for output in self.outputs)

    def numbered(self, pool: Array) -> Executable:
        """Return the executable of a template with the numbers of a pool in place of its indices."""
        return replace(
            self,
            steps=self.steps.numbered(pool),
            segments=self.numbered_segments(pool),
            arena_bytes=int(pool[self.arena_bytes]),
            outputs=tuple([each if isinstance(each, str) else each.numbered(pool) for each in self.outputs]),
            clean=tuple([(int(pool[first]), int(pool[last])) for first, last in self.clean]),
            fault_flag=None if self.fault_flag is None else int(pool[self.fault_flag]),
            buffers=tuple(
                [replace(each, offset=int(pool[each.offset]), bytes=int(pool[each.bytes])) for each in self.buffers]
            ),
        )

    def numbered_segments(self, pool: Array) -> tuple[Segment, ...]:
        """Return the segments with the numbers of a pool in place of its indices."""
        return tuple(
            [each if each.call is None else replace(each, call=each.call.numbered(pool)) for each in self.segments]
        )
