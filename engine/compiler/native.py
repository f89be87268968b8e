"""The kernels of a program as plain data, column by column.

Ten thousand sizes of a picture are as many programs of a hundred kernels each: whoever needs a kernel makes it of its
row, and the collector of garbage, which looks at all parts of all things, finds a few columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, overload

import numpy as np

from engine.compiler.places import Address, words_of
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


_CHUNKS, _FLOPS, _BYTES, _DEALT = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class NativeSteps(Sequence[NativeStep]):
    """Some kernels, in the order they run.

    Args:
        names: of functions, kinds and operators, each in a column.
        figures: chunks, flops, bytes and whether chunks are dealt out, of every kernel in a row.
        places: arguments of all, one after the other.
        ends: of every kernel's arguments among them; before the first, 0.
    """

    names: tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, ...], ...]]
    figures: Array
    places: Array
    ends: Array

    @staticmethod
    def of(steps: Iterable[NativeStep]) -> NativeSteps:
        """The same in columns."""
        if isinstance(steps, NativeSteps):
            return steps
        rows = [*steps]
        return NativeSteps(
            names=(
                tuple([each.function for each in rows]),
                tuple([each.kind for each in rows]),
                tuple([each.operators for each in rows]),
            ),
            figures=words_of([(each.chunks, each.flops, each.bytes, each.is_dealt) for each in rows]).reshape(-1, 4),
            places=words_of([*chain.from_iterable([each.arguments for each in rows])]),
            ends=np.cumsum([0, *[len(each.arguments) for each in rows]]),
        )

    @staticmethod
    def joined(parts: Sequence[NativeSteps]) -> NativeSteps:
        """Those of some parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *[each.places.size for each in parts]])
        return NativeSteps(
            names=(
                tuple(chain.from_iterable([each.functions for each in parts])),
                tuple(chain.from_iterable([each.kinds for each in parts])),
                tuple(chain.from_iterable([each.operators for each in parts])),
            ),
            figures=np.concatenate([each.figures for each in parts]),
            places=np.concatenate([each.places for each in parts]),
            ends=np.concatenate([firsts[:1], *[p.ends[1:] + first for p, first in zip(parts, firsts, strict=False)]]),
        )

    def __len__(self) -> int:
        return len(self.figures)

    @overload
    def __getitem__(self, index: int) -> NativeStep: ...

    @overload
    def __getitem__(self, index: slice) -> list[NativeStep]: ...

    def __getitem__(self, index: int | slice) -> NativeStep | list[NativeStep]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        (functions, kinds, operators), figures = self.names, self.figures[number].tolist()
        places: Any = self.places[self.ends[number] : self.ends[number + 1]].tolist()
        return NativeStep(
            function=functions[number],
            kind=kinds[number],
            chunks=figures[_CHUNKS],
            arguments=tuple(places),
            operators=operators[number],
            flops=figures[_FLOPS],
            bytes=figures[_BYTES],
            is_dealt=bool(figures[_DEALT]),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeSteps) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # arrays can change

    @property
    def functions(self) -> tuple[str, ...]:
        """Their names in the machine code."""
        return self.names[0]

    @property
    def kinds(self) -> tuple[str, ...]:
        """What profiles call them."""
        return self.names[1]

    @property
    def operators(self) -> tuple[tuple[str, ...], ...]:
        """Names of those each computes."""
        return self.names[2]

    @property
    def chunks(self) -> Array:
        """How many pieces each falls into."""
        return self.figures[:, _CHUNKS]

    @property
    def flops(self) -> Array:
        """Floating-point operations of each."""
        return self.figures[:, _FLOPS]

    @property
    def bytes(self) -> Array:
        """Read and written by each."""
        return self.figures[:, _BYTES]

    @property
    def is_dealt(self) -> Array:
        """Whether chunks of each are dealt out; numbers."""
        return self.figures[:, _DEALT]
