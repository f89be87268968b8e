"""The kernels of a program as plain data, column by column.

Ten thousand sizes of a picture are as many programs of a hundred kernels each: whoever needs a kernel makes it of its
row, and the collector of garbage, which looks at all parts of all things, finds a few columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from sys import intern
from typing import overload

import numpy as np

from engine.compiler.places import Address, address_in, block_in, offset_of, words_of
from engine.tensor import Array


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


@dataclass(frozen=True, slots=True, eq=False)
class NativeSteps(Sequence[NativeStep]):
    """Some kernels, in the order they run: of all of them what ``NativeStep`` has of each.

    Args:
        operators: names of those that all compute, one after the other.
        offsets, blocks: of the arguments of all, one after the other: bytes, and the block of memory they are counted
            in; see ``block_of``.
        ends: of every kernel's arguments and operators among those; before the first, 0 and 0.
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
        """The same in columns; equal names are one, for thousands of programs have them."""
        if isinstance(steps, NativeSteps):
            return steps
        rows = [*steps]
        counts = [(0, 0), *[(len(each.arguments), len(each.operators)) for each in rows]]
        return NativeSteps(
            functions=tuple([intern(each.function) for each in rows]),
            kinds=tuple([intern(each.kind) for each in rows]),
            operators=tuple([intern(name) for each in rows for name in each.operators]),
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

    def _arguments(self, part: slice) -> Iterator[Address]:
        pairs = zip(self.offsets[part].tolist(), self.blocks[part].tolist(), strict=True)
        return (address_in(block, offset) for offset, block in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeSteps) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # arrays can change
