"""Micro-kernel of direct convolution: a register tile of pixels by a panel of output channels.

Its arguments are addresses at the tile's first pixel and the panel's first channel: image, weights, target, operands of
the epilogue. With windows clipped at the first and last plane of a volume, the planes of taps to skip and to take come
before the target. A cheap epilogue is applied to the registers. One that needs many constants would spill sums, so sums
go to the stack first and a loop over the pixels finishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from engine.compiler.codegen.host import Memory
from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, vector
from engine.compiler.kernels.channels import Panel, load_panel, starts_of, unroll_factor, width_of
from engine.compiler.kernels.expr import cost
from engine.compiler.kernels.folding import total
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.arithmetic import Arithmetic, MultiplyAdd
from engine.compiler.kernels.target import Target

# K loops of up to this many input values are unrolled completely.
FEW = 8
# Instructions an element from which an epilogue runs in its own loop.
EXPENSIVE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TileCode:
    """Description of a micro-kernel.

    Args:
        rows, columns: output pixels of the tile.
        panel: vectors (lanes, channels) of output channels.
        steps: stride of input pixels between neighbouring output pixels: (down, across).
        loops: over taps that are not contiguous: (count, stride, input values between their weights).
        run: contiguous input values: length of the K loop.
        skipped: input values whose weights come before the first.
        planes: of clipped windows: (stride, input values between their weights).
        streams: parts of the K loop whose weights are read alternately, each with its own sums.
        fetching: 2**n tiles prefetch a panel of weights, each its share; 0 for none.
        arithmetic: of words of the image and of weights.
        multiply_add: the host's function for it.
        memory: the host's.
    """

    name: str
    rows: int
    columns: int
    panel: Panel
    steps: tuple[int, int]
    loops: tuple[tuple[int, int, int], ...]
    run: int
    skipped: int
    planes: tuple[int, int] | None
    target: Strides
    epilogue: Epilogue
    streams: int
    fetching: int
    arithmetic: Arithmetic
    multiply_add: MultiplyAdd
    memory: Memory

    @property
    def starts(self) -> list[int]:
        """Return the first channel of every vector."""
        return starts_of(self.panel)

    @property
    def width(self) -> int:
        """Return the packed floats of a tap."""
        return width_of(self.panel)


def emit_tile(module: Module, tile: TileCode, writer: Callable[[TileCode, Function], TileWriter]) -> str:
    """Emit the function and return its name.

    Args:
        writer: class that emits its body.
    """
    planes = [("i64", "first"), ("i64", "count")] if tile.planes else []
    ahead = [("ptr", "ahead")] if tile.fetching else []
    f = module.inner(tile.name, [("ptr", "image"), ("ptr", "weights"), *ahead, *planes, *tile.epilogue.parameters])
    writer(tile, f).emit()
    f.finish()
    return tile.name


@dataclass(frozen=True, slots=True)
class TileWriter:
    """Emitter of a micro-kernel's body."""

    code: TileCode
    f: Function

    def emit(self) -> None:
        """Emit bias, products and epilogue."""
        f, code = self.f, self.code
        image, weights, *rest = f.parameters
        ahead = rest.pop(0) if code.fetching else None
        target = Target.of(f, code.epilogue, code.target, rest[2:] if code.planes else rest)
        is_expensive = cost(code.epilogue.tree) >= EXPENSIVE and code.rows * code.columns > 1
        sums = f.reserve(code.rows * code.columns * code.width) if is_expensive else None
        totals = self._begun(weights)
        first = f.at(weights, code.width * (1 + code.skipped))
        if code.planes is None:
            totals = self._nest(list(code.loops), image, first, ahead, totals)
        else:
            totals = self._walk_planes(code.planes, rest[0], rest[1], image, first, totals)
        totals = [code.arithmetic.ended(f, each) for each in self._ended(totals, weights)]
        if sums is None:
            for (row, column), pixel in zip(self._positions, self._pixels(totals), strict=True):
                target.at(0, row, column).store_panel(pixel, code.panel)
        else:
            self._finish_all(sums, totals, target)

    def _begun(self, weights: Value) -> list[Value]:
        """Return the initial sums: the bias, at every pixel."""
        bias = load_panel(self.f, weights, self.code.panel, is_padded=True)
        sums = [self.code.arithmetic.begun(self.f, each) for each in bias]
        return sums * (self.code.rows * self.code.columns)

    def _ended(self, totals: list[Value], weights: Value) -> list[Value]:
        """Return the panel's vectors at every pixel."""
        return totals

    @property
    def _positions(self) -> Iterator[tuple[int, int]]:
        """Iterate over row and column of every pixel."""
        return product(range(self.code.rows), range(self.code.columns))

    def _pixels(self, totals: Sequence[Value]) -> list[Sequence[Value]]:
        size = len(self.code.panel)
        return [totals[k : k + size] for k in range(0, len(totals), size)]

    def _walk_planes(
        self, planes: tuple[int, int], first: Value, count: Value, image: Value, weights: Value, totals: list[Value]
    ) -> list[Value]:
        """Emit the loop over the planes of taps inside the volume; ``image`` begins with the first of them."""
        f, code = self.f, self.code
        with f.loop(0, count, carry=totals) as plane:
            at = f.at(image, f.mul(plane.index, planes[0]))
            row = f.at(weights, f.mul(f.add(plane.index, first), planes[1] * code.width))
            plane.carry(self._nest(list(code.loops), at, row, None, plane.carried))
        return plane.results

    def _nest(
        self,
        loops: list[tuple[int, int, int]],
        image: Value,
        weights: Value,
        ahead: Value | None,
        totals: list[Value],
    ) -> list[Value]:
        """Emit the loops over taps, the K loop innermost; weights are read in order and prefetched."""
        f, code = self.f, self.code
        if not loops and code.streams > 1:
            return self._run_in_streams(image, weights, totals)
        if not loops:
            return self._run(image, weights, ahead, totals)
        (count, distance, values), *inner = loops
        with f.loop(0, count, carry=totals) as loop:
            at = f.at(image, f.mul(loop.index, distance))
            row = f.at(weights, f.mul(loop.index, values * code.width))
            loop.carry(self._nest(inner, at, row, self._part(ahead, loop.index, values), loop.carried))
        return loop.results

    def _part(self, ahead: Value | None, index: Index, values: int) -> Value | None:
        """Emit the prefetch address after the weights of ``index * values`` input values."""
        if ahead is None:
            return None
        return self.f.at(ahead, self.f.mul(index, values * self.code.width >> self.code.fetching))

    def _run(self, image: Value, weights: Value, ahead: Value | None, totals: list[Value]) -> list[Value]:
        f, run, width = self.f, self.code.run, self.code.width
        most = unroll_factor(self.code.rows * self.code.columns * len(self.code.panel))
        unroll = run if run <= FEW else max(each for each in range(1, most + 1) if run % each == 0)
        if self.code.arithmetic.numbers > 1 and unroll > self.code.steps[1]:  # values shared by pixels would spill
            unroll = max(each for each in range(1, max(1, self.code.steps[1]) + 1) if run % each == 0)

        def iteration(index: Index, totals: list[Value]) -> list[Value]:
            at, row = f.at(image, index), f.at(weights, f.mul(index, width))
            self._fetch_weights(self._part(ahead, index, 1), unroll)
            for k in range(unroll):
                totals = self._multiply(f.at(at, k), f.at(row, k * width), k * width, totals)
            return totals

        if run == unroll:
            return iteration(0, totals)
        with f.loop(0, run, unroll, carry=totals) as loop:
            loop.carry(iteration(loop.index, loop.carried))
        return loop.results

    def _run_in_streams(self, image: Value, weights: Value, totals: list[Value]) -> list[Value]:
        """Emit the K loop in parallel parts: several memory streams are faster than one."""
        f, run, width, streams = self.f, self.code.run, self.code.width, self.code.streams
        unroll, count = unroll_factor(streams * len(totals)), len(totals)
        part = run // (streams * unroll) * unroll
        others = [constant(0.0, each.type) for each in totals] * (streams - 1)
        with f.loop(0, part, unroll, carry=[*totals, *others]) as loop:
            at, row, sums = f.at(image, loop.index), f.at(weights, f.mul(loop.index, width)), list(loop.carried)
            for k, stream in product(range(unroll), range(streams)):
                term, own = stream * part + k, slice(stream * count, (stream + 1) * count)
                sums[own] = self._multiply(f.at(at, term), f.at(row, term * width), term * width, sums[own])
            loop.carry(sums)
        totals = [total(f, loop.results[k::count]) for k in range(count)]
        for term in range(streams * part, run):
            totals = self._multiply(f.at(image, term), f.at(weights, term * width), term * width, totals)
        return totals

    def _fetch_weights(self, ahead: Value | None, unroll: int) -> None:
        """Prefetch this iteration's share of the next panel into the L2 cache."""
        if ahead is not None:
            floats = unroll * self.code.width >> self.code.fetching
            for first in range(0, max(1, floats), self.code.memory.line_floats):
                self.f.prefetch(self.f.at(ahead, first), locality=2)

    def _multiply(self, at: Value, weights: Value, offset: int, totals: list[Value]) -> list[Value]:
        """Add one input value of every pixel times the panel's weights for it, ``offset`` floats into the iteration's.

        Each line of weights is prefetched: large networks read them from memory.
        """
        f, code = self.f, self.code
        vectors = []
        for (lanes, _), first in zip(code.panel, code.starts, strict=True):
            vectors.append(f.load(vector(lanes), f.at(weights, first)))
            if (offset + first) % code.memory.line_floats < lanes:
                f.prefetch(f.at(weights, first + code.memory.ahead_bytes // 4))
        result = []
        for (row, column), pixel in zip(self._positions, self._pixels(totals), strict=True):
            value = f.load("float", f.at(f.at(at, row * code.steps[0]), column * code.steps[1]))
            for (lanes, _), each, before in zip(code.panel, vectors, pixel, strict=True):
                result.append(code.multiply_add(f, f.splat(value, lanes), each, before))
        return result

    def _finish_all(self, sums: Value, totals: Sequence[Value], target: Target) -> None:
        """Store the sums to the stack, then apply the epilogue."""
        f, code = self.f, self.code
        for index, pixel in enumerate(self._pixels(totals)):
            for value, first in zip(pixel, code.starts, strict=True):
                f.store(value, f.at(sums, index * code.width + first))
        self.apply_epilogue(sums, target)

    def apply_epilogue(self, sums: Value, target: Target) -> None:
        """Apply the epilogue to sums on the stack, pixel by pixel."""
        f, code = self.f, self.code
        with f.loop(0, code.rows) as row, f.loop(0, code.columns) as column:
            at = f.at(sums, f.mul(f.add(f.mul(row.index, code.columns), column.index), code.width))
            pixel = load_panel(f, at, code.panel, is_padded=True)
            target.at(0, row.index, column.index).store_panel(pixel, code.panel)
