"""What lies where in the arena, and when: told to those who ask, and nothing that a run needs."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

Lying = tuple[int, int, int, int, tuple[str, ...]]
"""The values of a ``Buffer``, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A piece of the arena that holds values for some time.

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


@dataclass(frozen=True, slots=True, eq=False)
class Buffers(Sequence[Buffer]):
    """Those of a program, written as bytes until somebody asks: nobody asks of most programs.

    Args:
        parts: of parts that follow each other, how many steps are before each, and what lies there, counted from its
            first step.
    """

    parts: tuple[tuple[int, bytes], ...] = ()

    @staticmethod
    def of(buffers: Iterable[Buffer]) -> Buffers:
        """The same as bytes."""
        lying = [(each.offset, each.bytes, each.first, each.last, each.operands) for each in buffers]
        return Buffers(((0, written(lying)),))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> Buffer: ...

    @overload
    def __getitem__(self, index: slice) -> list[Buffer]: ...

    def __getitem__(self, index: int | slice) -> Buffer | list[Buffer]:
        return [*self][index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffers) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __iter__(self) -> Iterator[Buffer]:
        for before, text in self.parts:
            for offset, size, first, last, operands in marshal.loads(text):
                yield Buffer(offset=offset, bytes=size, first=before + first, last=before + last, operands=operands)


def written(lying: Sequence[Lying]) -> bytes:
    """What lies in a part of a program, as ``Buffers`` has it."""
    return marshal.dumps(list(lying))
