"""Elements added to those of a tensor that indices name, one after the other: two may name the same.

An index outside of its dimension adds nothing, and sets the alarm: the result is void, and whoever computes it in
another way says what is wrong.

Arguments: target, source, indices, alarm (an int).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, constant
from engine.compiler.kernels.gather import OUTSIDE
from engine.compiler.kernels.kernel import Kernel, start
from engine.compiler.kernels.picking import Positions


@dataclass(frozen=True, kw_only=True)
class Scattering(Kernel):
    """target[..., index, ...] += source over loops of static sizes.

    Args:
        target, source: strides along the loops; of the target those that no index decides.
    """

    kind = "scatter"
    sets_alarm = True
    sizes: tuple[int, ...]
    target: tuple[int, ...]
    source: tuple[int, ...]
    positions: Positions

    @property
    def chunks(self) -> int:
        return 1

    @property
    def flops(self) -> int:
        return math.prod(self.sizes)

    def emit(self, module: Module) -> None:
        f, (target, source, indices, alarm), _ = start(module, self, 4)
        at = self.positions
        with f.loop(0, math.prod(self.sizes)) as each:
            rest: Index = each.index
            out, line, place = target, source, indices
            loops = zip(self.sizes, self.target, self.source, at.strides, strict=True)
            for size, to, by, step in reversed(list(loops)):
                rest, here = f.divmod(rest, size)
                out, line = f.at(out, f.mul(here, to)), f.at(line, f.mul(here, by))
                place = f.at(place, f.mul(here, step), at.bits // 8)
            index = f.load(f"i{at.bits}", place, at.bits // 8)
            index = index if at.bits == 64 else f.convert("sext", index, "i64")
            is_inside = f.compare("ult", index, constant(at.size, "i64"))
            with f.when(is_inside):
                self._add(f, f.at(out, f.mul(index, at.step)), line)
            with f.unless(is_inside):
                f.store(constant(OUTSIDE, "i32"), alarm)
        f.finish()

    def _add(self, f: Function, out: Value, line: Value) -> None:
        f.store(f.fadd(f.load("float", out), f.load("float", line)), out)
