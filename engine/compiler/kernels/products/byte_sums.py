"""Sums of bytes that zero points are multiplied by: of a row of unsigned bytes, of the columns of a packed panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Value, constant, vector
from engine.compiler.kernels.channels import Panel, starts_of, width_of
from engine.compiler.kernels.folding import fold_lanes
from engine.compiler.kernels.functions.arithmetic import bits
from engine.compiler.kernels.products.arithmetic import ARITHMETIC

_NUMBERS = ARITHMETIC["int8"].numbers
# Four bytes of 1.
_ONES = 0x01010101


def row_sum(f: Function, host: Host, row: Value, terms: int) -> Value:
    """Emit the sum of contiguous unsigned bytes."""
    width = _NUMBERS * host.lanes
    type_ = vector(host.lanes, "i32")
    multiply_add, ones = ARITHMETIC["int8"].multiply_add(host), constant(_ONES, type_)

    def added(address: Value, count: int, before: Value) -> Value:
        return multiply_add(f, f.convert("bitcast", f.load_bytes(address, width, count), type_), ones, before)

    sums, whole = constant(0, type_), terms // width * width
    if whole:
        with f.loop(0, whole, width, carry=[sums]) as loop:
            loop.carry([added(f.at(row, loop.index, 1), width, loop.carried[0])])
        (sums,) = loop.results
    if whole < terms:
        sums = added(f.at(row, whole, 1), terms - whole, sums)
    return fold_lanes(f, sums, _total)


def column_sums(
    f: Function,
    host: Host,
    panel: Panel,
    ends: tuple[Value, Value],
    words: int,
    begun: Callable[[Function, Value], Value],
) -> None:
    """Emit an expression of the sums of the columns of a packed panel of signed bytes.

    Args:
        ends: addresses of the panel, and of its results.
        words: of a column.
        begun: emits the expression for a vector of sums.
    """
    multiply_add = ARITHMETIC["int8"].multiply_add(host)
    types = [vector(lanes, "i32") for lanes, _ in panel]
    with f.loop(0, words, carry=[constant(0, type_) for type_ in types]) as loop:
        line = f.at(ends[0], f.mul(loop.index, width_of(panel)))
        loop.carry([
            multiply_add(f, constant(_ONES, type_), f.load(type_, f.at(line, first)), before)
            for type_, first, before in zip(types, starts_of(panel), loop.carried, strict=True)
        ])  # fmt: skip
    for sums, first in zip(loop.results, starts_of(panel), strict=True):
        f.store(begun(f, bits(f, sums)), f.at(ends[1], first))


def _total(f: Function, values: Sequence[Value]) -> Value:
    a, b = values
    return f.binary("add", a, b)
