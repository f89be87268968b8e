"""Binary search in sorted rows (searchsorted): the index before which each value is inserted; NaN goes upwards.

Arguments: rows, values, target.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Module, Value, as_value, constant
from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.kernel import Lines, block_of, start


@dataclass(frozen=True, kw_only=True)
class BinarySearch(Lines):
    """Binary search of every value in its row.

    Args:
        dtype, result: of rows and values, and of the indices.
        count: values of a row, contiguous with those of the next row.
        length, step: length of a row, and row stride; 0 for a single row.
        is_right: whether elements equal to a value come before it.
    """

    kind = "search"
    dynamic_fields = ("rows", "count", "step")
    dtype: str
    result: str
    rows: int
    count: int
    length: int
    step: int
    is_right: bool

    @property
    def lines(self) -> int:
        return self.rows * self.count

    @property
    def line_bytes(self) -> int:
        return 64  # time of a search, in bytes moved

    def emit(self, module: Module) -> None:
        f, (rows, values, target), chunk = start(module, self, 3)
        (type_, size), (to, bytes_) = TYPES[self.dtype], TYPES[self.result]
        with f.loop(*block_of(f, chunk, self.block, self.rows * self.count)) as each:
            row, _ = f.divmod(each.index, self.count)
            line = f.at(rows, f.mul(row, self.step), size)
            value = f.load(type_, f.at(values, each.index, size), size)
            nothing, all_ = constant(0, "i64"), constant(self.length, "i64")
            with f.loop(0, self.length.bit_length(), carry=[nothing, all_]) as halving:
                low, high = halving.carried
                middle = f.divmod(f.add(low, high), 2)[0]
                is_unfinished = f.less(low, high)
                inside = f.minimum(middle, self.length - 1)
                is_before = self._is_before(f, f.load(type_, f.at(line, inside, size), size), value)
                goes_up = f.binary("and", is_unfinished, is_before)
                after = as_value(f.add(middle, 1))
                high = f.select(
                    f.binary("and", is_unfinished, is_before), high, f.select(is_unfinished, as_value(middle), high)
                )
                halving.carry([f.select(goes_up, after, low), high])
            found = halving.results[0]
            number = found if to == "i64" else f.convert("trunc", found, to)
            f.store(number, f.at(target, each.index, bytes_), bytes_)
        f.finish()

    def _is_before(self, f: Function, element: Value, value: Value) -> Value:
        if not self.dtype.startswith("float"):
            sign = "u" if self.dtype in ("uint8", "bool") else "s"
            return f.compare(sign + ("le" if self.is_right else "lt"), element, value)
        return f.compare("ule" if self.is_right else "ult", element, value)
