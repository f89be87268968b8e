"""Scatter: elements written to indexed positions, or combined with the elements there, one after the other.

With duplicate indices the last write wins. An index out of range writes nothing and raises the fault flag: the result
is invalid and the reference layer reports the error.

Arguments: target, source, indices, fault flag (an int).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.compiler.codegen.ir import (
    Function,
    Index,
    Module,
    Value,
    as_value,
    constant,
    element_of,
    lanes_of,
    vector,
)
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.elements import STORED
from engine.compiler.kernels.folding import SIDE_BY_SIDE, walk_row
from engine.compiler.kernels.indexing.gather import OUTSIDE, IndexOperand, load_index
from engine.compiler.kernels.kernel import Lines, block_of, start

Mode = Literal["set", "add", "mul", "max", "min"]
# Types of which a vector of the host holds as many elements as of float32.
_IN_VECTORS = ("float32", "int32")


@dataclass(frozen=True, kw_only=True)
class ElementScatter(Lines):
    """target[..., index, ...] = source over loops of static sizes, or += and the like.

    Args:
        target, source: strides along the loops; 0 in the target for loops over indices.
        dtype: of the elements.
        disjoint_loops: number of outer loops that write disjoint elements, whatever the indices are.
        row: number of contiguous elements, in target and source, that each iteration writes.
    """

    kind = "scatter"
    sets_fault_flag = True
    dynamic_fields = ("sizes", "target", "source", "positions")
    symbolic_fields = ("row",)
    sizes: tuple[int, ...]
    target: tuple[int, ...]
    source: tuple[int, ...]
    positions: tuple[IndexOperand, ...]
    mode: Mode
    dtype: str
    disjoint_loops: int = 0
    row: int = 1

    @property
    def lines(self) -> int:
        """Return the iterations of the loops with disjoint writes, which threads may share."""
        return math.prod(self.sizes[: self.disjoint_loops])

    @property
    def line_bytes(self) -> int:
        return 16 * math.prod(self.sizes[self.disjoint_loops :]) * self.row

    @property
    def flops(self) -> int:
        return math.prod(self.sizes) * self.row

    def emit(self, module: Module) -> None:
        f, (target, source, *indices, fault_flag), chunk = start(module, self, 3 + len(self.positions))
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as iteration:
            at = self._moved(f, iteration.index, range(self.disjoint_loops), [target, source, *indices])
            rest = range(self.disjoint_loops, len(self.sizes))
            with f.loop(0, math.prod(self.sizes[self.disjoint_loops :])) as each:
                out, line, *addresses = self._moved(f, each.index, rest, at)
                self._put(f, out, line, addresses, fault_flag)
        f.finish()

    def _moved(self, f: Function, number: Index, loops: range, at: Sequence[Value]) -> list[Value]:
        """Emit the addresses of target, source and indices at an iteration of some loops."""
        size = STORED[self.dtype][1]
        steps = [(self.target, size), (self.source, size), *((each.strides, each.bits // 8) for each in self.positions)]
        found = list(at)
        for loop in reversed(loops):
            if loop == loops[0]:
                index: Index = number
            else:
                number, index = f.divmod(number, self.sizes[loop])
            found = [
                f.at(base, f.mul(index, strides[loop]), bytes_)
                for base, (strides, bytes_) in zip(found, steps, strict=True)
            ]
        return found

    def _put(self, f: Function, out: Value, line: Value, addresses: Sequence[Value], fault_flag: Value) -> None:
        size, all_inside = STORED[self.dtype][1], constant(1, "i1")
        for address, each in zip(addresses, self.positions, strict=True):
            index = load_index(f, address, each.bits)
            if each.wraps:
                wrapped = f.op("i64", f"add i64 {index.text}, {as_value(each.size).text}")
                index = f.select(f.less(index, 0), wrapped, index)
            is_inside = f.compare("ult", index, as_value(each.size))
            all_inside = f.binary("and", all_inside, is_inside)
            out = f.at(out, f.mul(f.select(is_inside, index, constant(0, "i64")), each.step), size)
        with f.when(all_inside):
            self._write_row(f, out, line)
        with f.unless(all_inside):
            f.store(constant(OUTSIDE, "i32"), fault_flag)

    def _write_row(self, f: Function, out: Value, line: Value) -> None:
        type_, size = STORED[self.dtype]
        lanes = fitting_lanes(self.row, self.host.lanes) if self.dtype in _IN_VECTORS else 1

        def write(column: Index, count: int, carried: Value) -> Value:
            self._write(f, f.at(out, column, size), f.at(line, column, size), vector(lanes, type_), count)
            return carried

        walk_row(f, self.row, lanes, [constant(0, "i64")] * SIDE_BY_SIDE, write)

    def _write(self, f: Function, out: Value, line: Value, type_: str, count: int) -> None:
        size = STORED[self.dtype][1]
        if lanes_of(type_) == 1:
            value = f.load(type_, line, size)
            f.store(value if self.mode == "set" else self._combined(f, f.load(type_, out, size), value), out, size)
            return
        value = f.load_lanes(type_, line, count)
        if self.mode != "set":
            value = self._combined(f, f.load_lanes(type_, out, count), value)
        f.store_lanes(value, out, count)

    def _combined(self, f: Function, a: Value, b: Value) -> Value:
        is_float = element_of(a.type) in ("float", "double")
        if self.mode in ("add", "mul"):
            return f.binary(("f" if is_float else "") + self.mode, a, b)
        if not is_float:
            sign = "u" if self.dtype == "uint8" else "s"
            return f.select(f.compare(sign + ("gt" if self.mode == "max" else "lt"), a, b), a, b)
        # NaN propagates: a's by the second test, b's because comparisons with it are false.
        is_more = f.compare("ogt" if self.mode == "max" else "olt", a, b)
        return f.select(f.binary("or", is_more, f.compare("uno", a, a)), a, b)
