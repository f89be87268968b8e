"""Maximum and average pooling of channels-last images, some vectors of channels at a time.

Windows are clipped at the borders of the image, which needs no padding. Those that are not clipped have code of their
own, with few taps unrolled. A sum is accumulated from partial sums of its columns, so that the rounding error grows
with height plus width.

Arguments: image (its first pixel), target, operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Literal, Self

from engine.compiler.codegen.ir import Index, Module, Sizes, Value, as_value, constant, lanes_of, vector
from engine.compiler.kernels.channels import Panel, cases, panels_of, starts_of
from engine.compiler.kernels.folding import largest, total
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, derived, element_address, start
from engine.compiler.kernels.numbers import FLOAT, load_numbers, size_of
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.windows import WindowAxis
from engine.ir.dims import hint

# Vectors of channels reduced together.
VECTORS = 4
# Least number of a dtype, if it is not -inf.
LEAST = {"uint8": 0.0, "int8": -128.0}
# Taps that are summed one after the other, and taps of a window that are unrolled.
PART, UNROLLED = 512, 32
# Planes, rows and columns of a window from the outermost loop on: as in the reference, rows are summed first.
_ORDER = (2, 0, 1)


@dataclass(frozen=True, kw_only=True)
class Pool(Kernel):
    """Pooling of static geometry.

    Args:
        mode: maximum (NaN if a window holds one) or mean.
        down, across: windows along rows and columns.
        depth: windows along the planes of volumes; ``batch`` then counts output planes, and its strides are of planes.
        counts_padding: whether the divisor of the mean includes the padding.
        divisor: fixed divisor of the mean, or None.
        source, target: strides of the images, 1 along channels.
        numbers: dtype of the source in memory; see ``numbers``.
    """

    kind = "pool"
    mode: Literal["max", "average"]
    batch: int
    channels: int
    down: WindowAxis
    across: WindowAxis
    depth: WindowAxis = WindowAxis(size=1, count=1)
    counts_padding: bool = True
    divisor: int | None = None
    source: Strides
    target: Strides
    numbers: str = FLOAT
    epilogue: Epilogue = field(default_factory=Epilogue)

    def dynamic(self, sizes: Sizes) -> Self:
        dynamic = self.with_dynamic(sizes, "batch", "down", "across", "source", "target", "epilogue")
        return derived(dynamic, grid=self.grid.dynamic(sizes))

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors reduced together."""
        return panels_of(self.channels, self.host.lanes, VECTORS)

    @property
    def axes(self) -> tuple[WindowAxis, WindowAxis, WindowAxis]:
        """Return the windows along planes, rows and columns."""
        return self.depth, self.down, self.across

    @property
    def flops(self) -> int:
        taps = math.prod(axis.kernel for axis in self.axes)
        return self.batch * self.down.count * self.across.count * self.channels * taps

    @cached_property
    def grid(self) -> Grid:
        """Return the grid of output rows by panels, cut into chunks."""
        sizes = self.batch * self.down.count, len(self.panels)
        taps = hint(self.across.count * math.prod(axis.reach for axis in self.axes))
        row_bytes = 4 * self.channels * taps // sizes[1]  # every tap counted
        return Grid(sizes, sizes).cut(self.host.wanted_chunks, row_bytes, 8 * self.host.chunk_bytes)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    def emit(self, module: Module) -> None:
        functions = {each: _Row(self, module, each).emit() for each in dict.fromkeys(self.panels)}
        f, (image, *addresses), chunk = start(module, self, 2 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, self.target, addresses)
        rows, panels = self.grid.ranges(f, chunk)
        with f.loop(*panels) as panel, f.loop(*rows) as row:
            n, h = f.divmod(row.index, self.down.count)
            channel = f.mul(panel.index, VECTORS * self.host.lanes)
            volume, window = f.divmod(n, self.depth.count)
            source = element_address(f, image, self.source, f.mul(volume, self.depth.size), 0, 0, channel, self.numbers)
            positions = [as_value(each) for each in (window, h)]
            arguments = [source, *positions, *target.at(n, h, 0, channel).addresses]
            for each in cases(f, panel.index, self.panels):
                f.call(functions[each], arguments)
        f.finish()


class _Row:
    """Emitter of the function for an output row and a panel.

    Its arguments are image and target (with its operands) at the panel's first channel, the output plane of a volume,
    and the output row.
    """

    def __init__(self, kernel: Pool, module: Module, panel: Panel) -> None:
        self.kernel, self.panel = kernel, panel
        name = f"{kernel.name}_{'_'.join(str(real) for _, real in panel)}"
        parameters = [("ptr", "image"), ("i64", "plane"), ("i64", "row"), *kernel.epilogue.parameters]
        self.f = f = module.inner(name, parameters)
        self.image, plane, self.h, *addresses = f.parameters
        self.plane: Index = plane if kernel.depth.count > 1 else 0
        self.target = Target.of(f, kernel.epilogue, kernel.target, addresses)
        self.fold = largest if kernel.mode == "max" else total
        neutral = 0.0 if kernel.mode == "average" else LEAST.get(kernel.numbers, -math.inf)
        self.neutral = [constant(neutral, vector(lanes)) for lanes, _ in panel]
        self.strides = kernel.source.n, kernel.source.h, kernel.source.w

    def emit(self) -> str:
        """Emit the function and return its name."""
        kernel, f = self.kernel, self.f
        (plane, planes), (row, rows) = kernel.depth.clip(f, self.plane), kernel.down.clip(f, self.h)
        top = self._at(self._at(self.image, f.mul(plane, kernel.source.n)), f.mul(row, kernel.source.h))
        with f.loop(0, kernel.across.count) as x:
            column, columns = kernel.across.clip(f, x.index)
            self._emit_window(x.index, self._at(top, f.mul(column, kernel.source.w)), [planes, rows, columns])
        f.finish()
        return f.name

    def _emit_window(self, window: Value, at: Value, counts: Sequence[Index]) -> None:
        """Emit a window of so many taps along each axis; where none is clipped, with code for constant numbers."""
        f, whole = self.f, [axis.kernel for axis in self.kernel.axes]
        if any(axis.is_adaptive for axis in self.kernel.axes):
            self._finish(window, self._folded(at, counts))
            return
        tests = [
            f.compare("eq", as_value(count), as_value(size))
            for count, size in zip(counts, whole, strict=True)
            if not isinstance(count, int)
        ]
        if not tests:
            self._finish(window, self._folded(at, whole))
            return
        is_whole = reduce(lambda a, b: f.binary("and", a, b), tests)
        with f.when(is_whole):
            self._finish(window, self._folded(at, whole))
        with f.when(f.binary("xor", is_whole, constant(1, "i1"))):  # keeps the common case inline
            self._finish(window, self._folded(at, counts))

    def _folded(self, at: Value, counts: Sequence[Index], place: int = 0) -> list[Value]:
        """Emit the reduction of so many taps along an axis and those after it, in ``_ORDER``."""
        if place == len(_ORDER):
            return self._load(at)
        f, axis = self.f, _ORDER[place]
        window, count = self.kernel.axes[axis], counts[axis]
        gap = window.dilation * self.strides[axis]

        def inner(base: Value, index: Index) -> list[Value]:
            return self._folded(self._at(base, f.mul(index, gap)), counts, place + 1)

        taps = [each for each in (counts[k] for k in _ORDER[place:]) if isinstance(each, int)]
        if isinstance(count, int) and len(taps) == len(_ORDER) - place and math.prod(taps) <= UNROLLED:
            return self._joined([inner(at, k) for k in range(count)])
        if not window.is_adaptive and window.kernel <= PART:
            return self._loop(count, 1, lambda index: inner(at, index))

        def part(first: Index) -> list[Value]:
            begin, size = self._at(at, f.mul(first, gap)), f.minimum(f.sub(count, first), PART)
            return self._loop(size, 1, lambda index: inner(begin, index))

        return self._loop(count, PART, part)

    def _loop(self, count: Index, step: int, values: Callable[[Value], list[Value]]) -> list[Value]:
        if count == 0:  # a window of padding alone
            return self.neutral
        with self.f.loop(0, count, step, carry=self.neutral) as loop:
            loop.carry(self._joined([loop.carried, values(loop.index)]))
        return loop.results

    def _joined(self, some: Sequence[list[Value]]) -> list[Value]:
        """Emit the reduction of some panels to one."""
        return [self.fold(self.f, each) for each in zip(*some, strict=True)] if some else self.neutral

    def _finish(self, window: Value, values: list[Value]) -> None:
        """Store a reduced window as a pixel."""
        f = self.f
        if self.kernel.mode == "average":
            factor = self._factor(window)
            values = [f.fmul(value, f.splat(factor, lanes_of(value.type))) for value in values]
        self.target.store_panel(values, self.panel, window)

    def _factor(self, window: Value) -> Value:
        """Emit the reciprocal of the divisor of the mean."""
        kernel, f = self.kernel, self.f
        if kernel.divisor is not None:
            return constant(1 / kernel.divisor, "float")
        windows = zip(kernel.axes, (self.plane, self.h, window), strict=True)
        planes, rows, columns = (axis.divisor(f, each, kernel.counts_padding) for axis, each in windows)
        count = f.mul(f.mul(planes, rows), columns)
        if isinstance(count, int):
            return constant(1 / count, "float")
        return f.fdiv(constant(1.0, "float"), f.convert("sitofp", count, "float"))

    def _at(self, base: Value, index: Index) -> Value:
        """Emit the address of an element of the image."""
        return self.f.at(base, index, size_of(self.kernel.numbers))

    def _load(self, address: Value) -> list[Value]:
        dtype = self.kernel.numbers
        return [
            load_numbers(self.f, vector(lanes), self._at(address, first), real, dtype=dtype)
            for first, (lanes, real) in zip(starts_of(self.panel), self.panel, strict=True)
        ]
