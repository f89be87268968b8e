"""What lies where in the arena, and when: told to those who ask, and nothing that a run needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from engine.tensor import Array

Row = tuple[int, int, int, int, tuple[str, ...]]
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
    """Those of a program, looked up when somebody asks: nobody asks of most programs.

    Args:
        rows: what ``Buffer`` has of each, in its order.
        pool: of a program with symbolic sizes, the numbers that offsets and bytes in the rows are indices into.
    """

    rows: tuple[Row, ...] = ()
    pool: Array | None = None

    @staticmethod
    def of(buffers: Iterable[Buffer]) -> Buffers:
        """Return some buffers as one sequence."""
        return Buffers(tuple([(each.offset, each.bytes, each.first, each.last, each.operands) for each in buffers]))

    def __len__(self) -> int:
        return len(self.rows)

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
        numbers = None if self.pool is None else self.pool.tolist()
        for offset, size, first, last, operands in self.rows:
            at, count = (offset, size) if numbers is None else (numbers[offset], numbers[size])
            yield Buffer(offset=at, bytes=count, first=first, last=last, operands=operands)
