"""Items that the steps of a request run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.images.decoded import PictureSource
from app.pipelines.plan import Condition, Level, PlannedStep
from app.sound.sound import Recording


@dataclass(slots=True, eq=False)
class Item:
    """Item of a level.

    Attributes:
        fields: the answer for it, or the prediction that it is; steps that run on it add their results by name.
        index: position among the request's items, or that of its outermost parent.
        parent: item of the level above.
        rows: its row in the outputs of each step.
        contents: the picture or sound that each step took of it.
    """

    fields: dict[str, Any]
    index: int
    parent: Item | None = None
    rows: dict[str, int] = field(default_factory=dict)
    contents: dict[str, PictureSource | Recording] = field(default_factory=dict)

    def above(self, levels: int) -> Item:
        """Return the item so many levels above."""
        item = self
        for _ in range(levels):
            assert item.parent is not None  # the plan has checked the levels
            item = item.parent
        return item


def prediction(item: Item, level: Level, step: PlannedStep) -> dict[str, Any] | None:
    """Return the prediction of an earlier step that belongs to an item, the best of several; None without one.

    Args:
        item: item of the level.
        level: level of the item.
        step: the earlier step.
    """
    if step.found_level != step.level and step.found_level == level[: len(step.found_level)]:
        return item.above(len(level) - len(step.found_level)).fields
    found = item.above(len(level) - len(step.level)).fields.get(step.name)
    return next(iter(step.rows(found)), None)


def holds(condition: Condition, found: dict[str, Any] | None) -> bool:
    """Return whether a prediction meets a condition."""
    value = None if found is None else found.get(condition.field)
    if value is None:
        return False
    expected = condition.expected
    if isinstance(expected, (int, float)):
        return isinstance(value, (int, float)) and value >= expected
    return value in expected if isinstance(expected, tuple) else bool(value == expected)


def first_ones(items: Sequence[Item], most: int) -> list[Item]:
    """Return the first items of each item of the request."""
    counts: dict[int, int] = {}
    found = []
    for item in items:
        counts[item.index] = counts.get(item.index, 0) + 1
        if counts[item.index] <= most:
            found.append(item)
    return found
