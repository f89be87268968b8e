"""Probabilities of classes from those of pairs of classes: a fixed point, found row by row in float64.

Source: Wu, Lin and Weng, 2004, second method, as LIBSVM computes it.

Arguments: probabilities that the first class of each pair wins (float64), result (float32).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant
from engine.compiler.kernels.kernel import Kernel, block_of, derived, start
from engine.ir.dims import largest, smallest

ROUNDS: Final = 100
_TOLERANCE: Final = 0.005


@dataclass(frozen=True, kw_only=True)
class Pairs(Kernel):
    """result[row] = the probabilities of ``classes`` classes.

    Args:
        rows: number of rows.
        classes: number of classes K; a row has K(K - 1)/2 pairs.
    """

    kind = "pairs"
    rows: int
    classes: int

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(self.with_dynamic(sizes, "rows"), block=sizes.dynamic(self.block))

    @cached_property
    def block(self) -> int:
        """Return the rows of a chunk; some five rounds are usual."""
        return largest(1, smallest(self.rows, self.host.chunk_flops // (20 * self.classes**2)))

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.block)

    @property
    def flops(self) -> int:
        return 20 * self.rows * self.classes**2

    def emit(self, module: Module) -> None:
        f, (given, result), chunk = start(module, self, 2)
        count = self.classes
        scratch = _Scratch(f, count, f.reserve(count * count, 8), f.reserve(count, 8), f.reserve(count, 8))
        pairs = count * (count - 1) // 2
        with f.loop(*block_of(f, chunk, self.block, self.rows)) as row:
            scratch.fill(f.at(given, f.mul(row.index, pairs), 8))
            with f.loop(0, ROUNDS) as turn:
                total, error = scratch.measure()
                is_wrong = f.compare("oge", error, constant(_TOLERANCE / count, "double"))
                with f.when(is_wrong):
                    scratch.improve(total)
                turn.carry([], condition=is_wrong)
            with f.loop(0, count) as each:
                value = f.convert("fptrunc", scratch.load(scratch.p, each.index), "float")
                f.store(value, f.at(result, f.add(f.mul(row.index, count), each.index)))
        f.finish()


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Matrix Q and vectors p and Qp of one row, in stack memory."""

    f: Function
    count: int
    q: Value
    p: Value
    force: Value

    def load(self, base: Value, index: Index) -> Value:
        """Load a number."""
        return self.f.load("double", self.f.at(base, index, 8), 8)

    def store(self, value: Value, base: Value, index: Index) -> None:
        """Store a number."""
        self.f.store(value, self.f.at(base, index, 8), 8)

    def row(self, index: Index) -> Value:
        """Return the address of a row of Q."""
        return self.f.at(self.q, self.f.mul(index, self.count), 8)

    def fill(self, given: Value) -> None:
        """Make Q of the probabilities of pairs, and equal probabilities of classes."""
        f, zero, one = self.f, constant(0.0, "double"), constant(1.0, "double")
        with f.loop(0, self.count) as each:
            self.store(zero, self.row(each.index), each.index)
            self.store(constant(1 / self.count, "double"), self.p, each.index)
        if self.count < 2:
            return
        with f.loop(0, self.count - 1, carry=[constant(0, "i64")]) as first:
            i = first.index
            with f.loop(f.add(i, 1), self.count, carry=first.carried) as second:
                j, (pair,) = second.index, second.carried
                wins = self.load(given, pair)
                loses = f.binary("fsub", one, wins)
                product = f.binary("fsub", zero, f.binary("fmul", wins, loses))
                self.store(product, self.row(i), j)
                self.store(product, self.row(j), i)
                for k, each_ in ((i, loses), (j, wins)):
                    square = f.binary("fmul", each_, each_)
                    self.store(f.binary("fadd", self.load(self.row(k), k), square), self.row(k), k)
                second.carry([as_value(f.add(pair, 1))])
            first.carry(second.results)

    def measure(self) -> tuple[Value, Value]:
        """Compute Qp; return pQp, and the largest distance from it of an element of Qp."""
        f, zero = self.f, constant(0.0, "double")
        with f.loop(0, self.count, carry=[zero]) as row:
            line = self.row(row.index)
            with f.loop(0, self.count, carry=[zero]) as column:
                term = f.binary("fmul", self.load(line, column.index), self.load(self.p, column.index))
                column.carry([f.binary("fadd", column.carried[0], term)])
            (found,) = column.results
            self.store(found, self.force, row.index)
            term = f.binary("fmul", self.load(self.p, row.index), found)
            row.carry([f.binary("fadd", row.carried[0], term)])
        (total,) = row.results
        with f.loop(0, self.count, carry=[zero]) as each:
            distance = f.binary("fsub", self.load(self.force, each.index), total)
            distance = f.call("llvm.fabs.f64", [distance], "double")
            is_more = f.compare("ogt", distance, each.carried[0])
            each.carry([f.select(is_more, distance, each.carried[0])])
        return total, each.results[0]

    def improve(self, total: Value) -> None:
        """Change the probability of one class after the other, and keep Qp and pQp right."""
        f = self.f
        with f.loop(0, self.count, carry=[total]) as each:
            k, (before,) = each.index, each.carried
            own, force = self.load(self.row(k), k), self.load(self.force, k)
            step = f.binary("fdiv", f.binary("fsub", before, force), own)
            scale = f.binary("fadd", constant(1.0, "double"), step)
            inner = f.binary("fadd", f.binary("fmul", step, own), f.binary("fadd", force, force))
            after = f.binary("fadd", before, f.binary("fmul", step, inner))
            self.store(f.binary("fadd", self.load(self.p, k), step), self.p, k)
            line = self.row(k)
            with f.loop(0, self.count) as column:
                j = column.index
                moved = f.binary("fmul", step, self.load(line, j))
                self.store(f.binary("fdiv", f.binary("fadd", self.load(self.force, j), moved), scale), self.force, j)
                self.store(f.binary("fdiv", self.load(self.p, j), scale), self.p, j)
            each.carry([f.binary("fdiv", after, f.binary("fmul", scale, scale))])
