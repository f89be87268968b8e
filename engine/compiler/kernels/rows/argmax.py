"""Argmax and argmin of every row, with the element. NaN counts as the extreme; the first of equal elements is taken.

Arguments: source, indices (int64), elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, is_dynamic, lanes_of, vector
from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.kernel import Lines, block_of, start


@dataclass(frozen=True, kw_only=True)
class ArgExtreme(Lines):
    """Index and value of the extreme element of every row.

    Args:
        source: row stride, in elements.
        is_largest: maximum; otherwise minimum.
        dtype: of the elements, one of TYPES except bool.
    """

    kind = "extreme"
    dynamic_fields = ("rows", "source")
    symbolic_fields = ("columns",)
    rows: int
    columns: int
    source: int
    is_largest: bool
    dtype: str = "float32"

    @property
    def element(self) -> tuple[str, int]:
        """Return the LLVM type of an element, and its bytes."""
        return TYPES[self.dtype]

    @property
    def lines(self) -> int:
        return self.rows

    @property
    def line_bytes(self) -> int:
        return self.element[1] * self.columns

    @property
    def flops(self) -> int:
        return self.rows * self.columns

    @property
    def lanes(self) -> int:
        """Return the vector width, at most a row."""
        lanes = self.host.lanes
        while lanes > self.columns:
            lanes //= 2
        return lanes

    def emit(self, module: Module) -> None:
        f, (source, indices, elements), chunk = start(module, self, 3)
        size = self.element[1]
        with f.loop(*block_of(f, chunk, self.block, self.rows)) as row:
            line = f.at(source, f.mul(row.index, self.source), size)
            element, index = self._found(f, line)
            f.store(f.convert("sext", index, "i64"), f.at(indices, row.index, 8), 8)
            f.store(element, f.at(elements, row.index, size), size)
        f.finish()

    def _found(self, f: Function, line: Value) -> tuple[Value, Value]:
        lanes, whole, (type_, size) = self.lanes, self.columns // self.lanes * self.lanes, self.element
        best, index = f.load(vector(lanes, type_), line, size), _counted(lanes)
        if is_dynamic(whole) or whole > lanes:
            with f.loop(lanes, whole, lanes, carry=[best, index]) as column:
                x = f.load(vector(lanes, type_), f.at(line, column.index, size), size)
                at = f.binary("add", f.splat(_short(f, column.index), lanes), _counted(lanes))
                is_more = self._is_more(f, x, column.carried[0])
                column.carry([f.select(is_more, x, column.carried[0]), f.select(is_more, at, column.carried[1])])
            best, index = column.results
        best, index = self._of_lanes(f, best, index)
        if is_dynamic(whole) or whole < self.columns:
            with f.loop(whole, self.columns, carry=[best, index]) as column:
                x = f.load(type_, f.at(line, column.index, size), size)
                is_more = self._is_more(f, x, column.carried[0])
                at = _short(f, column.index)
                column.carry([f.select(is_more, x, column.carried[0]), f.select(is_more, at, column.carried[1])])
            best, index = column.results
        return best, index

    def _is_more(self, f: Function, x: Value, best: Value) -> Value:
        """Emit whether x replaces the best so far, which comes before it; a NaN stays."""
        how = "gt" if self.is_largest else "lt"
        if not self.is_floating:
            return f.compare(("u" if self.dtype.startswith("u") else "s") + how, x, best)
        return f.binary("and", f.compare(f"u{how}", x, best), f.compare("ord", best, best))

    @property
    def is_floating(self) -> bool:
        """Return whether an element may be NaN."""
        return self.dtype.startswith("float")

    def _of_lanes(self, f: Function, bests: Value, indices: Value) -> tuple[Value, Value]:
        """Emit the best of the lanes, the first of equal ones."""
        lanes = lanes_of(bests.type)
        if lanes == 1:
            return bests, indices
        pairs = [
            (
                f.op(self.element[0], f"extractelement {bests.type} {bests.text}, i64 {lane}"),
                f.op("i32", f"extractelement {indices.type} {indices.text}, i64 {lane}"),
            )
            for lane in range(lanes)
        ]
        best, index = pairs[0]
        for x, at in pairs[1:]:
            if self.is_floating:
                both_nan = f.binary("and", f.compare("uno", x, x), f.compare("uno", best, best))
                is_equal = f.binary("or", f.compare("oeq", x, best), both_nan)
            else:
                is_equal = f.compare("eq", x, best)
            is_first = f.binary("and", is_equal, f.compare("slt", at, index))
            is_taken = f.binary("or", self._is_more(f, x, best), is_first)
            best, index = f.select(is_taken, x, best), f.select(is_taken, at, index)
        return best, index


def _counted(lanes: int) -> Value:
    """Return the vector 0, 1, 2, ..."""
    if lanes == 1:
        return Value("0", "i32")
    return Value("<" + ", ".join(f"i32 {lane}" for lane in range(lanes)) + ">", vector(lanes, "i32"))


def _short(f: Function, index: Index) -> Value:
    return f.convert("trunc", as_value(index), "i32")
