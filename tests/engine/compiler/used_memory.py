"""Memory that others have used, as instances of graphs with dynamic sizes find it."""

from __future__ import annotations

from engine.compiler.runtime.instance import Instance
from engine.compiler.runtime.memory import Arenas, new_user
from engine.compiler.runtime.program import Program


def among_others(program: Program) -> Instance:
    """Return an instance whose arena is full of NaN."""
    arenas = Arenas(1 << 30)
    arena = arenas.take(program.executable.arena_bytes, new_user(), [])
    arena.block[:] = 0xFF
    arenas.give(arena)
    return Instance(program, 1, arenas)
