"""Where a program is in two parts, of which other programs have the second as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.compiler.ending import Ending
from engine.compiler.storage import View


@dataclass(frozen=True, slots=True)
class Cut:
    """A waist of the graph at which a program is made in two parts.

    Args:
        key: all that the second part depends on.
        number: of its first operator.
        view: where the tensor lies that it reads.
        steps: how many there were before.
        views: where operands lie that were made before.
        fusions: and how many operators had joined others, by the name of the pass.
    """

    key: object
    number: int
    view: View
    steps: int
    views: Mapping[str, View]
    fusions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rest:
    """What follows in a program that has the second part of another.

    Args:
        passed: where the tensor lies that it reads.
    """

    passed: View
    ending: Ending
