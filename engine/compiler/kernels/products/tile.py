"""Register tile of a matrix product: rows of the left factor times a panel of columns of the right one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Value, constant, vector
from engine.compiler.kernels.channels import Panel, load_panel, load_stored, starts_of, unroll_factor, width_of
from engine.compiler.kernels.functions import half
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Arithmetic, Words, joined

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
        line: elements from term to term in the right factor, if it is read in place; None for a packed panel.
        words: of the packed panel, and of rows of the left factor, whose terms are contiguous then.
        dtype: of a right factor that is read in place: float32, or 16-bit floats.
    """

    rows: int
    panel: Panel
    row: int
    term: int
    host: Host
    line: int | None = None
    words: Words = "float"
    dtype: str = "float32"

    @property
    def arithmetic(self) -> Arithmetic:
        """Return the arithmetic of the words."""
        return ARITHMETIC[self.words]

    @property
    def size(self) -> int | None:
        """Return the bytes of a number in the left factor; None for the kernel's float."""
        return None if self.words == "float" else self.arithmetic.image.itemsize

    @property
    def pitch(self) -> int:
        """Return the elements from term to term in the right factor."""
        return width_of(self.panel) if self.line is None else self.line

    def zeros(self) -> list[Value]:
        """Return the initial sums, row by row."""
        type_ = self.arithmetic.sums or "float"
        return [constant(0, vector(lanes, type_)) for lanes, _ in self.panel] * self.rows

    def lines(self, totals: Sequence[Value]) -> list[Sequence[Value]]:
        """Return the vectors of every row."""
        size = len(self.panel)
        return [totals[k : k + size] for k in range(0, len(totals), size)]

    def multiply(self, f: Function, left: Value, right: Value, terms: Index, totals: Sequence[Value]) -> list[Value]:
        """Emit the K loop: add the products of so many words to the sums.

        ``left`` is the first element of the first row.
        """
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

    def multiply_rest(
        self, f: Function, left: Value, right: Value, words: int, rest: int, totals: Sequence[Value]
    ) -> list[Value]:
        """Add the products of the ``rest`` numbers behind some words, fewer than a word has; no others are read."""
        left, right = self._moved(f, left, right, words)

        size = self.arithmetic.image.itemsize

        def word(row: int) -> Value:
            at = self._at(f, left, row * self.row)
            return joined(f, [f.load(f"i{8 * size}", f.at(at, k, size), size) for k in range(rest)], size)

        return self._add_words(f, map(word, range(self.rows)), self._vectors(f, right, 0), totals)

    def _at(self, f: Function, left: Value, index: Index) -> Value:
        """Return the address of a number of the left factor."""
        return f.at(left, index, self.size)

    def _moved(self, f: Function, left: Value, right: Value, word: Index) -> tuple[Value, Value]:
        return self._at(f, left, f.mul(word, self.step)), self._line(f, right, f.mul(word, self.pitch))

    def _line(self, f: Function, right: Value, index: Index) -> Value:
        """Return the address of an element of the right factor."""
        return f.at(right, index, half.SIZES.get(self.dtype))

    @property
    def step(self) -> int:
        """Return the numbers from word to word of a row."""
        return self.term * self.arithmetic.numbers

    def _add(self, f: Function, left: Value, right: Value, term: int, totals: Sequence[Value]) -> list[Value]:
        """Add one word to every sum of the tile."""
        vectors = self._vectors(f, self._line(f, right, term * self.pitch), term)

        def word(row: int) -> Value:
            return f.load("float", self._at(f, left, row * self.row + term * self.step), self.size or 4)

        return self._add_words(f, map(word, range(self.rows)), vectors, totals)

    def _add_words(
        self, f: Function, words: Iterable[Value], vectors: Sequence[Value], totals: Sequence[Value]
    ) -> list[Value]:
        """Add one word of every row times the vectors of the panel to the sums."""
        multiply_add = self.arithmetic.multiply_add(self.host)
        return [
            multiply_add(f, f.splat(value, lanes), each, total)
            for value, sums in zip(words, self.lines(totals), strict=True)
            for (lanes, _), each, total in zip(self.panel, vectors, sums, strict=True)
        ]

    def _vectors(self, f: Function, line: Value, term: int) -> list[Value]:
        """Load a line of the right factor and prefetch later ones."""
        floats = self.host.memory.line_floats
        if self.line is not None:
            for first in range(0, width_of(self.panel), floats):
                f.prefetch(self._line(f, line, AHEAD_LINES * self.line + first))
            return load_stored(f, line, self.panel, self.dtype, self.host)
        for (lanes, _), first in zip(self.panel, starts_of(self.panel), strict=True):
            if (term * self.pitch + first) % floats < lanes:
                f.prefetch(f.at(line, first + AHEAD_LINES * floats))
        return load_panel(f, line, self.panel, is_padded=True)
