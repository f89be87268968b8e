"""Cumulative sums, products and extrema along a dimension; inner dimensions are vectorised.

Arguments: source, target; both (outer, size, inner) and contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.elements import FUNCTIONS, STORED, Domain, to_domain, to_dtype
from engine.compiler.kernels.functions.activation import FLOATS
from engine.compiler.kernels.kernel import Lines, block_of, derived, start

_FOLDS: Mapping[str, Callable[[Function, Value, Value], Value]] = {
    "sum": Function.fadd,
    "product": Function.fmul,
    "logarithm": FLOATS.logaddexp,
}


@dataclass(frozen=True, kw_only=True)
class Scan(Lines):
    """Cumulative operation."""

    kind = "scan"
    mode: Literal["sum", "product", "logarithm"]
    outer: int
    size: int
    inner: int

    @property
    def lanes(self) -> int:
        """Return the vector width."""
        return fitting_lanes(self.inner, self.host.lanes)

    @property
    def panels(self) -> int:
        """Return the vectors of the inner elements."""
        return -(-self.inner // self.lanes)

    @property
    def lines(self) -> int:
        return self.outer * self.panels

    @property
    def line_bytes(self) -> int:
        return 8 * self.size * self.lanes

    @property
    def flops(self) -> int:
        return self.outer * self.size * self.inner

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(self.with_dynamic(sizes, "outer", "size"), block=sizes.dynamic_count(self.block))

    def emit(self, module: Module) -> None:
        f, (source, target), chunk = start(module, self, 2)
        rest = self.inner - (self.panels - 1) * self.lanes
        with f.loop(*block_of(f, chunk, self.block, self.outer * self.panels)) as each:
            outer, panel = f.divmod(each.index, self.panels)
            first = f.add(f.mul(outer, self.size * self.inner), f.mul(panel, self.lanes))
            at = f.at(source, first), f.at(target, first)
            if self.panels == 1:
                self._walk(f, *at, rest)
            else:
                is_whole = f.less(panel, self.panels - 1)
                with f.when(is_whole):
                    self._walk(f, *at, self.lanes)
                with f.unless(is_whole):
                    self._walk(f, *at, rest)
        f.finish()

    def _walk(self, f: Function, source: Value, target: Value, count: int) -> None:
        first = {"sum": 0.0, "product": 1.0, "logarithm": -math.inf}[self.mode]
        neutral = constant(first, vector(self.lanes))
        with f.loop(0, self.size, carry=[neutral]) as step:
            offset: Index = f.mul(step.index, self.inner)
            x = f.load_lanes(vector(self.lanes), f.at(source, offset), count)
            total = _FOLDS[self.mode](f, step.carried[0], x)
            f.store_lanes(total, f.at(target, offset), count)
            step.carry([total])


@dataclass(frozen=True, kw_only=True)
class TypedScan(Scan):
    """Cumulative operation of other dtypes; integers wrap.

    Args:
        dtypes: of the source and the target.
        domain: type computed in.
    """

    dtypes: tuple[str, str]
    domain: Domain

    @property
    def lanes(self) -> int:
        """Return the largest vector width that divides a line evenly."""
        return math.gcd(self.inner, max(1, self.host.lanes // 2))

    @property
    def line_bytes(self) -> int:
        return 16 * self.size * self.lanes

    def emit(self, module: Module) -> None:
        f, (source, target), chunk = start(module, self, 2)
        (dtype, result), add = self.dtypes, FUNCTIONS[self.domain]["add" if self.mode == "sum" else "mul"]
        (element, size), (_, result_size) = STORED[dtype], STORED[result]
        neutral = constant(0 if self.mode == "sum" else 1, vector(self.lanes, self.domain))
        with f.loop(*block_of(f, chunk, self.block, self.outer * self.panels)) as each:
            outer, panel = f.divmod(each.index, self.panels)
            first = f.add(f.mul(outer, self.size * self.inner), f.mul(panel, self.lanes))
            with f.loop(0, self.size, carry=[neutral]) as step:
                offset = f.add(first, f.mul(step.index, self.inner))
                x = f.load(vector(self.lanes, element), f.at(source, offset, size), size)
                number = to_domain(f, x, dtype, self.domain, self.host)
                total = add(f, step.carried[0], Value(number.text, number.type))
                f.store(to_dtype(f, total, result, self.host), f.at(target, offset, result_size), result_size)
                step.carry([total])
        f.finish()


@dataclass(frozen=True, kw_only=True)
class RunningExtreme(Lines):
    """Cumulative maximum or minimum and its index: the last of equal elements; NaN propagates.

    Arguments: source, elements, indices (int64); all (outer, size, inner) and contiguous.
    """

    kind = "scan"
    is_largest: bool
    outer: int
    size: int
    inner: int

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return self.outer * self.inner

    @property
    def line_bytes(self) -> int:
        return 16 * self.size

    @property
    def flops(self) -> int:
        return self.lines * self.size

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(self.with_dynamic(sizes, "outer", "size", "inner"), block=sizes.dynamic_count(self.block))

    def emit(self, module: Module) -> None:
        f, (source, elements, indices), chunk = start(module, self, 3)
        first = constant(-math.inf if self.is_largest else math.inf, "float")
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as each:
            outer, inner = f.divmod(each.index, self.inner)
            line = f.add(f.mul(outer, self.size * self.inner), inner)
            with f.loop(0, self.size, carry=[first, constant(0, "i64")]) as step:
                at = f.add(line, f.mul(step.index, self.inner))
                x, (best, index) = f.load("float", f.at(source, at)), step.carried
                is_more = f.compare("oge" if self.is_largest else "ole", x, best)
                is_more = f.binary("or", is_more, f.compare("uno", x, x))
                # NaN beats all later elements except another NaN.
                is_taken = f.binary("and", f.compare("ord", best, best), is_more)
                best = f.select(is_taken, x, best)
                index = f.select(f.binary("or", is_taken, f.compare("uno", x, x)), step.index, index)
                f.store(best, f.at(elements, at))
                f.store(index, f.at(indices, at, 8), 8)
                step.carry([best, index])
        f.finish()
