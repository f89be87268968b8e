"""Kernels that follow each other, computed together a band of rows at a time.

A chunk is a band of the last kernel's rows. The kernels before it compute the rows that are read there, into memory of
the thread's stack that is as high as a band needs: what one writes the next finds in a near cache, and nobody waits
between them. Where windows of neighbouring bands overlap, the rows they share are computed for both. All bands are of
one height, so each kernel is one piece of code: a band that would hang over an edge is shifted back, and the rows it
shares with others are written twice, with the same bits.

Arguments: those of the kernels one after the other, without what lies between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value
from engine.compiler.kernels.images.border import clear
from engine.compiler.kernels.kernel import Kernel, start

POINTER_BYTES = 8
# Bytes of a thread's stack for the tensors between the kernels.
STACK_BYTES = 7 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """How the address of an argument is found.

    Args:
        index: which of the strip's arguments it begins at; None for the stack.
        is_own: there, whether at the stage's own rows, else at those of the stage before.
        offset: floats from there.
        image, row: by how many floats it moves with an image, and with a row of the stage's own result.
        before: by how many with a row of the stage before.
    """

    index: int | None
    is_own: bool = False
    offset: int = 0
    image: int = 0
    row: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Rows of an image with zeros around them, on the stack.

    Args:
        rows: without the zeros.
        columns: from row to row, the zeros among them.
        pitch: floats from pixel to pixel.
        border: (top, left, bottom, right).
    """

    rows: int
    columns: int
    pitch: int
    border: tuple[int, int, int, int]

    @property
    def row_floats(self) -> int:
        """From row to row."""
        return self.columns * self.pitch

    @property
    def floats(self) -> int:
        """Size."""
        return self.floats_of(self.rows)

    def floats_of(self, rows: int) -> int:
        """The size with so many rows."""
        return (self.border[0] + rows + self.border[2]) * self.row_floats

    @property
    def first(self) -> int:
        """Where the first pixel lies that is not of the border."""
        return self.border[0] * self.row_floats + self.border[1] * self.pitch


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A kernel of the strip.

    Args:
        kernel: computes ``band`` rows of one image; or all of them, a chunk for each band, if ``is_whole``.
        rows: of an image of its result.
        stride, padding: output row r reads from row r * stride - padding on of the stage before.
        target: where its rows lie, None of the last one.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    rows: int
    band: int
    stride: int = 1
    padding: int = 0
    target: Band | None = None
    is_whole: bool = False

    @property
    def flops(self) -> int:
        """Floating-point operations of an image, no row counted twice."""
        return self.kernel.flops if self.is_whole else self.kernel.flops // self.band * self.rows


@dataclass(frozen=True, kw_only=True)
class Strip(Kernel):
    """Kernels one after the other.

    Args:
        count: of arguments.
    """

    kind = "strip"
    batch: int
    count: int
    stages: tuple[Stage, ...]

    @property
    def bands(self) -> int:
        """Bands of an image."""
        last = self.stages[-1]
        return -(-last.rows // last.band)

    @property
    def chunks(self) -> int:
        return self.batch * self.bands

    @property
    def flops(self) -> int:
        return self.batch * sum(stage.flops for stage in self.stages)

    def emit(self, module: Module) -> None:
        for stage in self.stages:
            if stage.kernel.name not in module.functions:
                stage.kernel.write(module)
                module.functions[stage.kernel.name].linkage = "internal "
        f, pointers, chunk = start(module, self, self.count)
        memory = [f.reserve(stage.target.floats) if stage.target else None for stage in self.stages]
        table = f.reserve(max(len(stage.arguments) for stage in self.stages), POINTER_BYTES)
        image, number = f.divmod(chunk, self.bands)
        firsts = self._firsts(f, number)
        for index, stage in enumerate(self.stages):
            if stage.target is not None and (own := memory[index]) is not None:
                self._surround(f, own, stage, stage.target, firsts[index])
            near = memory[index - 1] if index else None
            places = image, firsts[index], firsts[index - 1] if index else 0
            self._fill(f, table, stage.arguments, pointers, (near, memory[index]), places)
            if stage.is_whole:
                f.call(stage.kernel.name, [table, as_value(number)])
                continue
            with f.loop(0, stage.kernel.chunks) as each:
                f.call(stage.kernel.name, [table, each.index])
        f.finish()

    def _firsts(self, f: Function, number: Index) -> list[Index]:
        """The first row that each stage computes: what the next one reads, within the image."""
        firsts: list[Index] = [
            f.minimum(f.mul(number, self.stages[-1].band), self.stages[-1].rows - self.stages[-1].band)
        ]
        for stage, following in zip(self.stages[-2::-1], self.stages[:0:-1], strict=True):
            wanted = f.sub(f.mul(firsts[0], following.stride), following.padding)
            firsts.insert(0, f.maximum(f.minimum(wanted, stage.rows - stage.band), 0))
        return firsts

    def _fill(
        self,
        f: Function,
        table: Value,
        arguments: Sequence[Argument],
        pointers: Sequence[Value],
        memory: tuple[Value | None, Value | None],
        places: tuple[Index, Index, Index],
    ) -> None:
        """The addresses a stage is given."""
        for k, each in enumerate(arguments):
            base = memory[each.is_own] if each.index is None else pointers[each.index]
            assert base is not None
            offset: Index = each.offset
            for place, step in zip(places, (each.image, each.row, each.before), strict=True):
                offset = f.add(offset, f.mul(place, step))
            f.store(f.at(base, offset), f.at(table, k, POINTER_BYTES), POINTER_BYTES)

    def _surround(self, f: Function, memory: Value, stage: Stage, band: Band, first: Index) -> None:
        """Zeros to the sides of a band, and where the image ends above and below it."""
        top, left, bottom, right = band.border
        row, last = band.row_floats, stage.rows - band.rows
        inner = f.at(memory, top * row)
        if top:
            with f.when(f.less(first, 1)):
                clear(f, self.host.lanes, memory, top * row)
        if bottom:
            with f.when(f.less(last - 1, first)):
                clear(f, self.host.lanes, f.at(inner, band.rows * row), bottom * row)
        if left:
            with f.loop(0, band.rows) as each:
                clear(f, self.host.lanes, f.at(inner, f.mul(each.index, row)), left * band.pitch)
        if right:
            with f.loop(0, band.rows) as each:
                at = f.add(f.mul(each.index, row), (band.columns - right) * band.pitch)
                clear(f, self.host.lanes, f.at(inner, at), right * band.pitch)
