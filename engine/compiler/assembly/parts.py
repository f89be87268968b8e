"""A program in parts: what follows a waist is laid out first, so that other programs can have it as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.compiler.assembly.clearing import with_borders_cleared
from engine.compiler.assembly.memory import MemoryPlan, find_lifetimes, plan_memory, storages_of
from engine.compiler.ending import Ending, Piece
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.cuts import Cut
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.places import Home
from engine.compiler.storage import Storage, View


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive steps, and the memory they need.

    Args:
        cut: where it begins; None for the first.
        steps: with borders cleared.
        memory: lifetimes count these steps.
        views: by the names of operands, where they lie.
    """

    cut: Cut | None
    steps: Sequence[Step]
    memory: MemoryPlan
    views: Mapping[str, View]

    @property
    def names(self) -> Mapping[Storage, tuple[str, ...]]:
        """Of what lies in each storage."""
        names: dict[Storage, tuple[str, ...]] = {}
        for name, view in self.views.items():
            names[view.storage] = *names.get(view.storage, ()), name
        return names


def parts_of(lowering: Lowering, kept: Sequence[View], *, is_open: bool) -> list[Part]:
    """The parts of a lowered graph, in the order they run; those that run last are laid out first.

    Args:
        kept: views that are read after the last step.
        is_open: whether borders are cleared in steps of their own.
    """
    if not all(isinstance(each, KernelStep) for each in lowering.steps):
        lowering.give_up_cuts()
    parts = _laid_out(lowering, kept, is_open=is_open)
    if _are_apart(lowering, parts):
        return parts
    lowering.give_up_cuts()
    return _laid_out(lowering, kept, is_open=is_open)


def keep_endings(lowering: Lowering, parts: Sequence[Part], pieces: Sequence[Piece]) -> None:
    """Keep what follows each cut, for other programs.

    Args:
        pieces: what the parts are in the program.
    """
    after = None if lowering.rest is None else lowering.rest.ending
    for part, piece in zip(reversed(parts), reversed(pieces), strict=True):
        if part.cut is None or lowering.endings is None:
            return
        ending = _ending(lowering, part, part.cut, piece, after) if piece.is_shareable else None
        lowering.endings.keep(part.cut, ending)
        if ending is None:
            return
        after = ending


def _ending(lowering: Lowering, part: Part, cut: Cut, piece: Piece, after: Ending | None) -> Ending:
    memory, ends = part.memory, lowering.endings
    until = () if ends is None else ends.wanted_for({*piece.steps.operators})
    return Ending(
        piece=piece,
        arena_bytes=memory.bytes,
        at=memory.offsets[cut.view.storage],
        alarm=memory.offsets.get(lowering.alarm.storage, None if after is None else after.alarm),
        until=(*until, *(() if after is None else after.until)),
        after=after,
    )


def _laid_out(lowering: Lowering, kept: Sequence[View], *, is_open: bool) -> list[Part]:
    host, alarm = lowering.host, lowering.alarm.storage
    others: dict[Storage, int] = {}
    views: Mapping[str, View] = lowering.views
    begin, last = 0, len(lowering.steps)
    clean: list[tuple[int, int]] = []
    if (rest := lowering.rest) is not None:
        kept, begin = [rest.passed], rest.ending.arena_bytes
        clean += [each for piece in rest.ending.pieces for each in piece.clean]
        others[rest.passed.storage] = rest.ending.at
        others |= {} if rest.ending.alarm is None else {alarm: rest.ending.alarm}
    parts: list[Part] = []
    for cut in (*reversed(lowering.cuts), None):
        steps = lowering.steps[0 if cut is None else cut.steps : last]
        entering = () if cut is None else (cut.view.storage,)
        passed = [(others[each.storage], others[each.storage] + each.storage.bytes) for each in kept if begin]
        memory = plan_memory(
            steps, kept, host.memory, entering=entering, others=others, begin=begin, taken=[*passed, *clean]
        )
        cleared = with_borders_cleared(steps, memory.unclean, host, is_apart=is_open)
        if len(cleared) > len(steps):
            memory = replace(memory, lifetimes=find_lifetimes(cleared, kept, entering))
        parts.append(Part(cut, cleared, memory, views))
        if cut is not None:
            others |= {each: memory.offsets[each] for each in (*entering, alarm) if each in memory.offsets}
            clean += memory.clean
            begin, kept, views, last = memory.bytes, [cut.view], cut.views, cut.steps
    return parts[::-1]


def _are_apart(lowering: Lowering, parts: Sequence[Part]) -> bool:
    """Whether parts have no memory in common but that of what is passed on."""
    passed = {lowering.alarm.storage, *(part.cut.view.storage for part in parts if part.cut is not None)}
    seen: set[Storage] = set()
    for part in parts if len(parts) > 1 else ():
        own = {each for step in part.steps for each in storages_of(step) if each.home is Home.ARENA} - passed
        if not own.isdisjoint(seen):
            return False
        seen |= own
    return True
