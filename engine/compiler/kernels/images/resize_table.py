"""Table of a resampling whose sizes are known only at run time; see ``Resize.pack``.

Positions are computed as in the layers, operation by operation in float32: other rounding would select other elements.

Argument: table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant
from engine.compiler.kernels.kernel import Kernel, start

Method: TypeAlias = Literal["stay", "nearest", "linear", "cubic", "onnx_linear", "onnx_cubic"]
HALF_WAY: Final = 1e-6
"""Tolerance of a position half way between two elements, as in the ONNX layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAxis:
    """Resampling of one axis.

    Args:
        size, count: elements before and after.
        method: ``stay`` for an axis that is not resampled; ``nearest``; ``linear`` or ``cubic`` as in PyTorch, which
            clamps fractions; ``onnx_linear`` or ``onnx_cubic``.
        ratio: distance of output elements on the input axis (its inverse if ``is_scale``); ``sizes`` to derive it from
            the sizes, ``corners`` to align first and last elements.
        is_scale: whether positions are divided by the ratio.
        before, after: added to the index of an output element, and subtracted from its position.
        starts_at_zero: whether the position of a single element is 0.
        rounding: of nearest: floor, ceil, round_prefer_floor or round_prefer_ceil.
        cubic_a: the parameter of Keys' kernel.
    """

    size: int
    count: int
    method: Method = "stay"
    ratio: float | Literal["sizes", "corners"] = 1.0
    is_scale: bool = False
    before: float = 0.0
    after: float = 0.0
    starts_at_zero: bool = False
    rounding: str = "floor"
    cubic_a: float = -0.75

    def dynamic(self, sizes: Sizes) -> TableAxis:
        """Return this axis with dynamic sizes."""
        return replace(self, size=sizes.dynamic(self.size), count=sizes.dynamic(self.count))

    @property
    def taps(self) -> int:
        """Return the taps of an output element."""
        return 1 if self.method in ("stay", "nearest") else 4 if self.method.endswith("cubic") else 2


@dataclass(frozen=True, kw_only=True)
class ResizeTable(Kernel):
    """Tables of the axes, one after the other."""

    kind = "resize_table"
    axes: tuple[TableAxis, ...]
    is_weighted: bool

    @property
    def chunks(self) -> int:
        return 1

    @property
    def floats(self) -> int:
        """Return the numbers in the table."""
        return sum(axis.count * axis.taps * (1 + self.is_weighted) for axis in self.axes)

    def dynamic(self, sizes: Sizes) -> ResizeTable:
        return self.with_dynamic(sizes, "axes")

    def emit(self, module: Module) -> None:
        f, (table,), _ = start(module, self, 1)
        for axis in self.axes:
            entry = axis.taps * (1 + self.is_weighted)
            writer = _Writer(f, axis)
            ratio = writer.ratio()
            with f.loop(0, axis.count) as each:
                row = f.at(table, f.mul(each.index, entry))
                for tap, (index, weight) in enumerate(writer.taps(each.index, ratio)):
                    f.store(f.convert("trunc", index, "i32"), f.at(row, tap))
                    if self.is_weighted:
                        f.store(weight, f.at(row, axis.taps + tap))
            table = f.at(table, f.mul(entry, axis.count))
        f.finish()


class _Writer:
    """Emitter of the taps of one axis."""

    def __init__(self, f: Function, axis: TableAxis) -> None:
        self._f, self._axis = f, axis

    def ratio(self) -> Value:
        """Emit the factor or divisor of positions."""
        f, axis = self._f, self._axis
        if axis.method == "stay" or axis.ratio == "corners" and axis.is_scale:
            return _number(1.0)
        if not isinstance(axis.ratio, str):
            return _number(axis.ratio)
        if axis.ratio == "corners":
            last, steps = self._float(f.sub(axis.size, 1)), self._float(f.maximum(f.sub(axis.count, 1), 1))
            return f.select(f.less(1, axis.count), f.fdiv(last, steps), _number(0.0))
        if not axis.is_scale:
            return f.fdiv(self._float(axis.size), self._float(axis.count))
        new, old = (f.convert("sitofp", as_value(each), "double") for each in (axis.count, axis.size))
        return f.convert("fptrunc", f.fdiv(new, old), "float")

    def taps(self, number: Index, ratio: Value) -> list[tuple[Value, Value]]:
        """Emit index and weight of each tap of an output element."""
        f, axis = self._f, self._axis
        if axis.method == "stay":
            return [(as_value(number), _number(1.0))]
        position = self._position(number, ratio)
        if axis.method == "nearest":
            return [(self._clipped(self._as_integer(self._nearest(position))), _number(1.0))]
        last = self._float(f.sub(axis.size, 1))
        if axis.method.endswith("linear"):
            position = self._larger(position, _number(0.0))
        if axis.method == "onnx_linear":
            position = self._smaller(position, last)
        lower = f.intrinsic("floor", position)
        if axis.method in ("linear", "cubic"):
            lower = self._smaller(lower, last)
        part = f.fsub(position, lower)
        if axis.method in ("linear", "cubic"):
            part = self._smaller(self._larger(part, _number(0.0)), _number(1.0))
        whole = self._as_integer(lower)
        if axis.taps == 2:
            rest = f.fsub(_number(1.0), part)
            weights = [rest, part if axis.method == "linear" else f.fsub(_number(1.0), rest)]
            return [(self._clipped(f.add(whole, tap)), weight) for tap, weight in enumerate(weights)]
        distances = [(tap, f.fsub(part, _number(float(tap)))) for tap in range(-1, 3)]
        return [(self._clipped(f.add(whole, tap)), self._keys(distance)) for tap, distance in distances]

    def _position(self, number: Index, ratio: Value) -> Value:
        f, axis = self._f, self._axis
        position = self._float(number)
        if axis.before:
            position = f.fadd(position, _number(axis.before))
        if axis.is_scale and axis.ratio == "corners":
            steps = self._float(f.maximum(f.sub(axis.count, 1), 1))
            position = f.fdiv(f.fmul(position, self._float(f.sub(axis.size, 1))), steps)
        else:
            position = f.fdiv(position, ratio) if axis.is_scale else f.fmul(position, ratio)
        if axis.after:
            position = f.fsub(position, _number(axis.after))
        return f.select(f.less(1, axis.count), position, _number(0.0)) if axis.starts_at_zero else position

    def _nearest(self, position: Value) -> Value:
        f, rounding = self._f, self._axis.rounding
        if rounding in ("floor", "ceil"):
            return f.intrinsic(rounding, position)
        wide = f.convert("fpext", position, "double")
        half, tolerance = constant(0.5, "double"), constant(HALF_WAY, "double")
        if rounding == "round_prefer_floor":
            return f.intrinsic("ceil", f.fsub(f.fsub(wide, half), tolerance))
        return f.intrinsic("floor", f.fadd(f.fadd(wide, half), tolerance))

    def _keys(self, distance: Value) -> Value:
        """Emit a weight of Keys' kernel; see ``layers.vision.taps.keys_kernel``."""
        f, a = self._f, self._axis.cubic_a
        x = f.intrinsic("fabs", distance)
        inner = f.fsub(f.fmul(_number(a + 2), x), _number(a + 3))
        inner = f.fadd(f.fmul(f.fmul(inner, x), x), _number(1.0))
        outer = f.fadd(f.fmul(f.fsub(f.fmul(_number(a), x), _number(5 * a)), x), _number(8 * a))
        outer = f.fsub(f.fmul(outer, x), _number(4 * a))
        outer = f.select(f.compare("oge", x, _number(2.0)), _number(0.0), outer)
        return f.select(f.compare("ole", x, _number(1.0)), inner, outer)

    def _as_integer(self, position: Value) -> Value:
        return self._f.convert("fptosi", position, "i64")

    def _clipped(self, index: Index) -> Value:
        """Emit the index, clamped to the axis."""
        f = self._f
        return as_value(f.maximum(f.minimum(index, f.sub(self._axis.size, 1)), 0))

    def _float(self, number: Index) -> Value:
        return self._f.convert("sitofp", as_value(number), "float")

    def _larger(self, a: Value, b: Value) -> Value:
        return self._f.select(self._f.compare("ogt", a, b), a, b)

    def _smaller(self, a: Value, b: Value) -> Value:
        return self._f.select(self._f.compare("olt", a, b), a, b)


def _number(value: float) -> Value:
    return constant(value, "float")
