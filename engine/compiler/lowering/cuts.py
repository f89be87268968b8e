"""Where a program is made in two parts, of which other programs have the second as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.compiler.storage import View


@dataclass(frozen=True, slots=True)
class Cut:
    """A waist of the graph at which that is done.

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
