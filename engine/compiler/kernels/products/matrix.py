"""Strides of batched matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Sizes, Value
from engine.ir.dims import is_symbolic


@dataclass(frozen=True, slots=True)
class Matrix:
    """Strides in elements: along each batch dimension, from row to row and from column to column.

    The stride of a broadcast dimension is 0.
    """

    batch: tuple[int, ...]
    row: int
    column: int

    def dynamic(self, sizes: Sizes) -> Matrix:
        """Return these strides with dynamic batch strides; rows and columns only where they are symbolic."""
        row, column = (sizes.dynamic(each) if is_symbolic(each) else each for each in (self.row, self.column))
        return Matrix(tuple(map(sizes.dynamic, self.batch)), row, column)

    def at(self, f: Function, base: Value, indices: Sequence[Index], size: int | None = None) -> Value:
        """Emit the address of the first element of one of the matrices, with elements of ``size`` bytes."""
        offset: Index = 0
        for index, stride in zip(indices, self.batch, strict=True):
            offset = f.add(offset, f.mul(index, stride))
        return f.at(base, offset, size)


def indices_of(f: Function, number: Index, sizes: Sequence[int]) -> list[Index]:
    """Emit the batch indices of the matrix with this number."""
    indices: list[Index] = []
    for size in reversed(sizes[1:]):
        number, index = f.divmod(number, size)
        indices.append(index)
    return [number, *reversed(indices)] if sizes else []
