"""Register tile of a matrix product: rows of the left factor times a panel of columns of the right one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.host import Memory
from engine.compiler.codegen.ir import Function, Index, Value, constant, vector
from engine.compiler.kernels.channels import Panel, load_panel, starts_of, unroll_factor, width_of

# Sums of up to this many terms are unrolled completely.
FEW = 8
# Prefetch distance of a packed panel in cache lines: it comes from the L2 cache.
AHEAD_LINES = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """Register tile.

    Args:
        rows: of the left factor.
        panel: vectors (lanes, columns) of the right one.
        row, term: strides in the left factor: from row to row, and from one term of the sum to the next.
        memory: the host's.
        line: floats from term to term in the right factor, if it is read in place; None for a packed panel.
    """

    rows: int
    panel: Panel
    row: int
    term: int
    memory: Memory
    line: int | None = None

    @property
    def pitch(self) -> int:
        """Return the floats from term to term in the right factor."""
        return width_of(self.panel) if self.line is None else self.line

    def zeros(self) -> list[Value]:
        """Return the initial sums, row by row."""
        return [constant(0.0, vector(lanes)) for lanes, _ in self.panel] * self.rows

    def lines(self, totals: Sequence[Value]) -> list[Sequence[Value]]:
        """Return the vectors of every row."""
        size = len(self.panel)
        return [totals[k : k + size] for k in range(0, len(totals), size)]

    def multiply(self, f: Function, left: Value, right: Value, terms: Index, totals: Sequence[Value]) -> list[Value]:
        """Emit the K loop: add ``terms`` products to the sums. ``left`` is the first element of the first row."""
        totals, unroll = list(totals), unroll_factor(self.rows * len(self.panel))
        if isinstance(terms, int) and terms <= FEW:
            for k in range(terms):
                totals = self._add(f, left, right, k, totals)
            return totals
        whole = f.mul(f.divmod(terms, unroll)[0], unroll)
        with f.loop(0, whole, unroll, carry=totals) as loop:
            at, line = self._moved(f, left, right, loop.index)
            carried = loop.carried
            for k in range(unroll):
                carried = self._add(f, at, line, k, carried)
            loop.carry(carried)
        totals = loop.results
        if isinstance(terms, int):
            at, line = self._moved(f, left, right, whole)
            for k in range(terms % unroll):
                totals = self._add(f, at, line, k, totals)
            return totals
        if unroll == 1:
            return totals
        with f.loop(whole, terms, carry=totals) as rest:
            at, line = self._moved(f, left, right, rest.index)
            rest.carry(self._add(f, at, line, 0, rest.carried))
        return rest.results

    def _moved(self, f: Function, left: Value, right: Value, term: Index) -> tuple[Value, Value]:
        return f.at(left, f.mul(term, self.term)), f.at(right, f.mul(term, self.pitch))

    def _add(self, f: Function, left: Value, right: Value, term: int, totals: Sequence[Value]) -> list[Value]:
        """Add one term to every sum of the tile."""
        vectors = self._vectors(f, f.at(right, term * self.pitch), term)
        result = []
        for row, sums in enumerate(self.lines(totals)):
            value = f.load("float", f.at(left, row * self.row + term * self.term))
            for (lanes, _), each, total in zip(self.panel, vectors, sums, strict=True):
                result.append(f.fma(f.splat(value, lanes), each, total))
        return result

    def _vectors(self, f: Function, line: Value, term: int) -> list[Value]:
        """Load a line of the right factor and prefetch later ones."""
        floats = self.memory.line_floats
        if self.line is not None:
            for first in range(0, width_of(self.panel), floats):
                f.prefetch(f.at(line, AHEAD_LINES * self.line + first))
            return load_panel(f, line, self.panel)
        for (lanes, _), first in zip(self.panel, starts_of(self.panel), strict=True):
            if (term * self.pitch + first) % floats < lanes:
                f.prefetch(f.at(line, first + AHEAD_LINES * floats))
        return load_panel(f, line, self.panel, is_padded=True)
