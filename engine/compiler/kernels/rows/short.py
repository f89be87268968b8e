"""Reductions of several short rows within one vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Value, element_of
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.folding import largest_number, total


@dataclass(frozen=True, slots=True)
class ShortRows:
    """Layout of several rows in a vector.

    Args:
        columns: of a row.
        lanes: of the vector; those behind the last whole row are unused.
    """

    columns: int
    lanes: int

    @property
    def count(self) -> int:
        """Return the rows of a vector."""
        return self.lanes // self.columns

    @property
    def used(self) -> int:
        """Return the lanes that hold an element."""
        return self.count * self.columns

    def largest(self, f: Function, value: Value) -> Value:
        """Emit the maximum of its row in every lane; a NaN may be ignored."""
        reach = 1  # for a maximum, elements may be visited twice
        while reach < self.columns:
            value = largest_number(f, [self._turned(f, value, reach), value])
            reach *= 2
        return value

    def total(self, f: Function, value: Value) -> Value:
        """Emit the sum of its row in every lane, identical in all lanes of a row."""
        parts, seen = list[Value](), 0
        for bit in range(self.columns.bit_length()):
            reach = 1 << bit  # each lane holds the sum of ``reach`` elements from its own on
            if bit:
                value = f.fadd(value, self._turned(f, value, reach // 2))
            if self.columns & reach:
                parts.append(self._turned(f, value, seen))
                seen += reach
        return self._shuffled(f, total(f, parts), lambda column: 0)

    def row(self, f: Function, value: Value, number: int) -> Value:
        """Emit one of the rows, in the first lanes of a vector."""
        lanes, first = fitting_lanes(self.columns, self.lanes), number * self.columns
        if lanes == 1:
            return f.op(element_of(value.type), f"extractelement {value.type} {value.text}, i64 {first}")
        places = [first + column if column < self.columns else None for column in range(lanes)]
        return f.shuffle(value, Value("poison", value.type), places)

    def _turned(self, f: Function, value: Value, distance: int) -> Value:
        """Rotate every row by a distance."""
        return self._shuffled(f, value, lambda column: (column + distance) % self.columns) if distance else value

    def _shuffled(self, f: Function, value: Value, source: Callable[[int], int]) -> Value:
        places = [
            lane - lane % self.columns + source(lane % self.columns) if lane < self.used else lane
            for lane in range(self.lanes)
        ]
        return f.shuffle(value, Value("poison", value.type), places)
