"""Packing of the right factor into panels of columns, in the order a tile reads it.

Row-major matrices are copied; column-major ones are transposed in registers, in square blocks. Rows of narrow numbers
are joined to words, of which a panel has one row for every two or four rows of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Value, as_value, constant, vector
from engine.compiler.kernels.channels import Panel, load_panel, starts_of, width_of
from engine.compiler.kernels.functions import half
from engine.compiler.kernels.functions.arithmetic import bits, from_bits, integer
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words, joined
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.transpose import PART, transpose_block

# Flips the highest bit of every byte: unsigned bytes less 128, as signed ones.
_SIGNS = 0x80808080


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Packing of a matrix (rows, columns).

    Args:
        source: its strides; one of them is 1, or there is one row or one column.
        rows: of the matrix, and of every panel.
        panels: vectors (lanes, columns) of every panel; only the last may differ from the others.
        words: of the panels; unsigned bytes become signed ones.
        dtype: of the matrix: what words hold, or floats that become bfloat16.
    """

    source: Matrix
    rows: int
    panels: tuple[Panel, ...]
    host: Host
    words: Words = "float"
    dtype: str = FLOAT

    @property
    def numbers(self) -> int:
        """Return the numbers in a word."""
        return ARITHMETIC[self.words].numbers

    @property
    def size(self) -> int | None:
        """Return the bytes of a number of the matrix; None for the kernel's float."""
        return None if self.dtype == FLOAT else ARITHMETIC[self.words].weight.itemsize

    @property
    def words_of_column(self) -> int:
        """Return the rows of a panel."""
        return -(-self.rows // self.numbers)

    @property
    def panel_floats(self) -> int:
        """Return the floats of a full panel."""
        return self.words_of_column * width_of(self.panels[0])

    @property
    def floats(self) -> int:
        """Return the floats of all panels."""
        return self.panel_floats * len(self.panels)

    def emit(self, f: Function, source: Value, target: Value, columns: Index, rows: Index | None = None) -> None:
        """Emit the packing of the panels with the first ``columns`` columns; of all rows by default.

        Args:
            columns, rows: number needed, at least one; more may be packed.
        """
        rows = self.rows if rows is None else rows
        is_one = sum(real for panel in self.panels for _, real in panel) == 1
        pack = self._copy if self.source.column == 1 or is_one else self._transpose
        width = sum(real for _, real in self.panels[0])
        wanted, _ = f.divmod(f.add(columns, width - 1), width)

        def one(panel: Panel, number: Index) -> None:
            begin = self._at(f, source, f.mul(number, width * self.source.column))
            pack(f, panel, begin, f.at(target, f.mul(number, self.panel_floats)), rows)

        for_each_panel(f, (0, wanted), self.panels, one)

    def _at(self, f: Function, source: Value, index: Index) -> Value:
        """Return the address of a number of the matrix."""
        return f.at(source, index, self.size)

    def _copy(self, f: Function, panel: Panel, source: Value, target: Value, rows: Index) -> None:
        """Copy row by row; a single column may have any stride."""
        whole, rest = f.divmod(rows, self.numbers)

        def line(word: Index, count: int) -> None:
            begin = self._at(f, source, f.mul(word, self.numbers * self.source.row))
            places = [self._at(f, begin, k * self.source.row) for k in range(count)]
            at = f.at(target, f.mul(word, width_of(panel)))
            for value, first in zip(self._lines(f, places, panel), starts_of(panel), strict=True):
                f.store(value, f.at(at, first))

        if not isinstance(whole, int) or whole:
            with f.loop(0, whole) as row:
                line(row.index, self.numbers)
        for count in [rest] if isinstance(rest, int) else range(1, self.numbers):
            if count and isinstance(rest, int):
                line(whole, count)
            elif count:
                with f.when(f.compare("eq", as_value(rest), as_value(count))):
                    line(whole, count)

    def _lines(self, f: Function, places: list[Value], panel: Panel) -> list[Value]:
        """Load a row of words from as many rows of the matrix as there are places; the others are 0."""
        if self.words == "float":
            return load_panel(f, places[0], panel)
        result, column = [], 0
        for lanes, real in panel:
            result.append(self._joined(f, [self._load(f, self._at(f, at, column), lanes, real) for at in places]))
            column += real
        return result

    def _joined(self, f: Function, numbers: list[Value]) -> Value:
        size = ARITHMETIC[self.words].weight.itemsize
        return self._signed(f, joined(f, numbers, size), len(numbers))

    def _load(self, f: Function, at: Value, lanes: int, count: int) -> Value:
        """Load numbers of a row as integers of the words' numbers."""
        if self.dtype == FLOAT:
            return half.to_half(f, f.load_lanes(vector(lanes), at, count), half.FACTOR, self.host)
        assert self.size is not None
        return f.load_bytes(at, lanes, count, self.size)

    def _signed(self, f: Function, words: Value, count: int) -> Value:
        """Emit the first ``count`` unsigned bytes of words as signed ones; other numbers are unchanged."""
        if self.dtype != "uint8":
            return words
        return from_bits(f, integer(f, "xor", bits(f, words), signed(_SIGNS & (256**count - 1))))

    def _transpose(self, f: Function, panel: Panel, source: Value, target: Value, rows: Index) -> None:
        """Transpose in square blocks of the vector width."""
        column = 0
        for (lanes, real), first in zip(panel, starts_of(panel), strict=True):
            begin, end = self._at(f, source, column * self.source.column), f.at(target, first)
            if lanes < PART:
                for k in range(real):
                    self._turn(f, self._at(f, begin, k * self.source.column), f.at(end, k), rows, width_of(panel))
            else:
                self._transpose_blocks(f, (begin, end), lanes, real, width_of(panel))
            column += real

    def _turn(self, f: Function, source: Value, target: Value, rows: Index, pitch: int) -> None:
        """Pack one contiguous column."""
        whole, rest = f.divmod(rows, self.numbers)

        def word(index: Index, count: int) -> None:
            places = [self._at(f, source, f.add(f.mul(index, self.numbers), k)) for k in range(count)]
            value = self._lines(f, places, ((1, 1),))[0]
            f.store(value, f.at(target, f.mul(index, pitch)))

        if not isinstance(whole, int) or whole:
            with f.loop(0, whole) as row:
                word(row.index, self.numbers)
        if isinstance(rest, int) and rest:
            word(whole, rest)

    def _transpose_blocks(self, f: Function, ends: tuple[Value, Value], lanes: int, real: int, pitch: int) -> None:
        type_, words = vector(lanes), self.words_of_column
        whole = self.rows // (lanes * self.numbers) * lanes

        def block(word: Index, height: int, count: int) -> None:
            begin = self._at(f, ends[0], f.mul(word, self.numbers))
            end = f.at(ends[1], f.mul(word, pitch))
            lines = [self._run(f, self._at(f, begin, k * self.source.column), lanes, count) for k in range(real)]
            lines += [constant(0.0, type_)] * (lanes - real)
            for k, line in enumerate(transpose_block(f, lines)[:height]):
                f.store(self._signed(f, line, min(self.numbers, count - k * self.numbers)), f.at(end, k * pitch))

        if whole:
            with f.loop(0, whole, lanes) as row:
                block(row.index, lanes, lanes * self.numbers)
        if whole < words:
            block(whole, words - whole, self.rows - whole * self.numbers)

    def _run(self, f: Function, at: Value, lanes: int, count: int) -> Value:
        """Load ``count`` contiguous numbers of a column as words, zero in the others."""
        if self.words == "float":
            return f.load_lanes(vector(lanes), at, count)
        wide = lanes * self.numbers
        if self.dtype == FLOAT:
            low, high = (
                self._load(f, f.at(at, k), lanes, min(lanes, count - k))
                if count > k
                else constant(0, vector(lanes, "i16"))
                for k in (0, lanes)
            )
            numbers = f.shuffle(low, high, range(wide))
        else:
            numbers = self._load(f, at, wide, count)
        return f.convert("bitcast", numbers, vector(lanes))


def signed(word: int) -> int:
    """Return 32 bits as a signed number."""
    return word - 2**32 if word >= 2**31 else word


def for_each_panel(
    f: Function, wanted: tuple[Index, Index], panels: tuple[Panel, ...], emit: Callable[[Panel, Index], None]
) -> None:
    """Emit ``emit(panel, number)`` for a range of panels: a loop over the full panels, then the last.

    Args:
        wanted: half-open range; if its start is dynamic, the last panel must be in the range.
    """
    begin, end = wanted
    equal = len(panels) if panels[-1] == panels[0] else len(panels) - 1
    stop = f.minimum(end, equal)
    if not isinstance(stop, int) or stop > 0:
        with f.loop(begin, stop) as each:
            emit(panels[0], each.index)
    if equal == len(panels):
        return
    if isinstance(end, int):
        if end == len(panels):
            emit(panels[-1], equal)
        return
    with f.when(f.compare("eq", as_value(end), as_value(len(panels)))):
        emit(panels[-1], equal)
