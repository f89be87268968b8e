"""Cumulative sums and products along a dimension; inner dimensions are vectorised.

Arguments: source, target; both (outer, size, inner) and contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from engine.compiler.codegen.ir import Module, Value, constant, hint, vector
from engine.compiler.kernels.elements import FUNCTIONS, STORED, Domain, to_domain, to_dtype
from engine.compiler.kernels.kernel import Lines, block_of, start

Mode: TypeAlias = Literal["sum", "product"]
# Function of each mode, and the number it begins with.
_FOLDS: Final[Mapping[Mode, tuple[str, float]]] = {"sum": ("add", 0), "product": ("mul", 1)}


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
