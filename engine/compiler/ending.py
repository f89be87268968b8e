"""The last part of a program, behind a waist of its graph: finished, and put as it is into every program that has it.

It lies at the front of the arena, so it is the same whatever was before, which uses what is free of it meanwhile. There
are hundreds of a graph, and the collector of garbage looks at each part of a thing: what can be is written as bytes.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from engine.compiler.blueprint import Home, NativeStep, Region, home_of

Lying = tuple[int, int, int, int, tuple[str, ...]]
"""The values of a ``Buffer``, in its order."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive kernels of a program.

    Args:
        buffers: what lies where in the arena, counted from the first of these steps.
        clean: bytes of the arena, from and to, that must be zero before the first run in it.
        outputs: what the graph returns, where the program ends with them; else none.
        fusions: what joined, by the name of the pass.
        code: that the steps call; empty where it is no other program's.
    """

    steps: Sequence[NativeStep]
    buffers: Sequence[Lying]
    clean: Sequence[tuple[int, int]]
    outputs: Sequence[Region | str]
    fusions: Mapping[str, list[str]]
    code: Sequence[bytes]

    @property
    def is_shareable(self) -> bool:
        """Whether it needs no code, constants or values that only its program has."""
        regions = [each for each in self.outputs if isinstance(each, Region)]
        if len(regions) < len(self.outputs) or not all(self.code):
            return False
        places = [*(place for step in self.steps for place in step.arguments), *(each.address for each in regions)]
        return all(home_of(each) is not Home.CONSTANT for each in places)


@dataclass(frozen=True, slots=True)
class Ending:
    """The kernels behind a waist, up to the next one that has an ending of its own, or the end.

    Args:
        text: all of a ``Piece`` but its code.
        arena_bytes: what it and those after it take of the arena, from its beginning.
        at: byte of the arena where the storage begins of the tensor that it reads.
        alarm: as blueprints have it.
        until: code with which another would be made, that is better: what each is found by.
        after: what follows it.
    """

    text: bytes
    code: tuple[bytes, ...]
    arena_bytes: int
    at: int
    alarm: int | None
    until: tuple[tuple[str, tuple[int, ...]], ...]
    after: Ending | None

    @property
    def pieces(self) -> list[Piece]:
        """Its kernels, and those that follow."""
        return [self._piece(), *(self.after.pieces if self.after is not None else ())]

    def _piece(self) -> Piece:
        steps, buffers, clean, outputs, fusions = marshal.loads(self.text)
        return Piece(
            steps=[NativeStep(**dict(zip(_STEP, each, strict=True))) for each in steps],
            buffers=buffers,
            clean=clean,
            outputs=[Region(**dict(zip(_REGION, each, strict=True))) for each in outputs],
            fusions=fusions,
            code=self.code,
        )


_STEP, _REGION = (tuple(each.name for each in fields(kind)) for kind in (NativeStep, Region))


def text_of(piece: Piece) -> bytes:
    """A piece that can be shared as ``Ending`` has it."""
    steps = [*map(attrgetter(*_STEP), piece.steps)]
    outputs = [*map(attrgetter(*_REGION), piece.outputs)]
    return marshal.dumps((steps, list(piece.buffers), list(piece.clean), outputs, dict(piece.fusions)))
