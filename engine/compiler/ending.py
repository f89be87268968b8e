"""The last part of a program, behind a waist of its graph: finished, and put as it is into every program that has it.

It lies at the front of the arena, so it is the same whatever was before, which uses what is free of it meanwhile. There
are hundreds of a graph, and the collector of garbage looks at each part of a thing: so they are made of few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.blueprint import Region
from engine.compiler.native import NativeSteps
from engine.compiler.places import Home, home_of, taken_apart


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive kernels of a program.

    Args:
        buffers: what lies where in the arena, as ``Buffers`` has it.
        clean: bytes of the arena, from and to, that must be zero before the first run in it.
        outputs: what the graph returns, where the program ends with them; else none.
        fusions: names of passes, and of what joined by each.
        code: that the steps call; empty where it is no other program's.
    """

    steps: NativeSteps
    buffers: bytes
    clean: tuple[tuple[int, int], ...]
    outputs: tuple[Region | str, ...]
    fusions: tuple[tuple[str, tuple[str, ...]], ...]
    code: tuple[bytes, ...]

    @property
    def is_shareable(self) -> bool:
        """Whether it needs no code, constants or values that only its program has."""
        regions = [each for each in self.outputs if isinstance(each, Region)]
        if len(regions) < len(self.outputs) or not all(self.code):
            return False
        homes = {*taken_apart(self.steps.places)[0].tolist(), *(home_of(each.address) for each in regions)}
        return Home.CONSTANT not in homes


@dataclass(frozen=True, slots=True)
class Ending:
    """The kernels behind a waist, up to the next one that has an ending of its own, or the end.

    Args:
        arena_bytes: what it and those after it take of the arena, from its beginning.
        at: byte of the arena where the storage begins of the tensor that it reads.
        alarm: as blueprints have it.
        until: code with which another would be made, that is better: what each is found by.
        after: what follows it.
    """

    piece: Piece
    arena_bytes: int
    at: int
    alarm: int | None
    until: tuple[tuple[str, tuple[int, ...]], ...]
    after: Ending | None

    @property
    def pieces(self) -> Sequence[Piece]:
        """Its kernels, and those that follow."""
        return [self.piece, *(() if self.after is None else self.after.pieces)]
