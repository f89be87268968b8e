"""Cumulative sums, products and extrema along a dimension; inner dimensions are vectorised.

Arguments: source, target; both (outer, size, inner) and contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from engine.compiler.codegen.ir import Module, Value, constant, hint, vector
from engine.compiler.kernels.elements import FUNCTIONS, STORED, Domain, to_domain, to_dtype
from engine.compiler.kernels.kernel import Lines, block_of, start

Mode: TypeAlias = Literal["sum", "product", "logarithm"]
# Function of each mode, and the number it begins with.
_FOLDS: Final[Mapping[Mode, tuple[str, float]]] = {
    "sum": ("add", 0),
    "product": ("mul", 1),
    "logarithm": ("logaddexp", -math.inf),
}


@dataclass(frozen=True, kw_only=True)
class Scan(Lines):
    """Cumulative operation; integers wrap.

    Args:
        dtypes: of the source and the target.
        domain: type computed in.
    """

    kind = "scan"
    dynamic_fields = ("outer", "size")
    mode: Mode
    outer: int
    size: int
    inner: int
    dtypes: tuple[str, str]
    domain: Domain

    @property
    def lanes(self) -> int:
        """Return the vector width, at most a line."""
        lanes, line = self.host.lanes if self.domain == "float" else max(1, self.host.lanes // 2), hint(self.inner)
        while lanes > line:
            lanes //= 2
        return lanes

    @property
    def panels(self) -> int:
        """Return the vectors of the inner elements; the last is shifted back to be whole."""
        return -(-self.inner // self.lanes)

    @property
    def lines(self) -> int:
        return self.outer * self.panels

    @property
    def line_bytes(self) -> int:
        return self.size * self.lanes * sum(STORED[each][1] for each in self.dtypes)

    @property
    def flops(self) -> int:
        return self.outer * self.size * self.inner

    def emit(self, module: Module) -> None:
        f, (source, target), chunk = start(module, self, 2)
        (dtype, result), (name, first) = self.dtypes, _FOLDS[self.mode]
        (element, size), result_size, fold = STORED[dtype], STORED[result][1], FUNCTIONS[self.domain][name]
        neutral = constant(first, vector(self.lanes, self.domain))
        with f.loop(*block_of(f, chunk, self.block, self.outer * self.panels)) as each:
            outer, panel = f.divmod(each.index, self.panels)
            inner = f.minimum(f.mul(panel, self.lanes), self.inner - self.lanes)
            begin = f.add(f.mul(outer, self.size * self.inner), inner)
            with f.loop(0, self.size, carry=[neutral]) as step:
                offset = f.add(begin, f.mul(step.index, self.inner))
                x = f.load(vector(self.lanes, element), f.at(source, offset, size), size)
                number = to_domain(f, x, dtype, self.domain, self.host)
                total = fold(f, step.carried[0], Value(number.text, number.type))
                f.store(to_dtype(f, total, result, self.host), f.at(target, offset, result_size), result_size)
                step.carry([total])
        f.finish()


@dataclass(frozen=True, kw_only=True)
class RunningExtreme(Lines):
    """Cumulative maximum or minimum and its index: the last of equal elements; NaN propagates.

    Arguments: source, elements, indices (int64); all (outer, size, inner) and contiguous.
    """

    kind = "scan"
    dynamic_fields = ("outer", "size", "inner")
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
