"""RoI align: regions of images divided into bins, each the mean of bilinear samples.

A region of a missing image, or one that needs too many samples, raises the fault flag: the result is invalid and the
reference layer reports the error.

Arguments: source, regions, target, fault flag (an int).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.functions.arithmetic import like
from engine.compiler.kernels.images.grid_sample import Channels, Tap, together
from engine.compiler.kernels.indexing.gather import OUTSIDE
from engine.compiler.kernels.kernel import Lines, block_of, start


@dataclass(frozen=True, kw_only=True)
class RegionAlign(Lines):
    """Bins of every region (image, x1, y1, x2, y2).

    Args:
        count: of regions.
        batch, channels, sizes: of the images.
        source: strides of the images: batch, channels, rows, columns.
        bins: rows and columns of a region.
        regions: strides of the regions: from one to the next, and along its numbers.
        target: strides of the result: regions, channels, rows, columns.
        scale, shift: coordinates are multiplied by ``scale``, then ``shift`` is subtracted.
        least: minimum extent of a region, or None.
        samples: of a bin along an axis; 0 to derive it from the bin's size.
        most: maximum number of samples of a bin.
    """

    kind = "regions"
    sets_fault_flag = True
    count: int
    batch: int
    channels: int
    sizes: tuple[int, int]
    source: tuple[int, int, int, int]
    bins: tuple[int, int]
    regions: tuple[int, int]
    target: tuple[int, int, int, int]
    scale: float
    shift: float
    least: float | None
    samples: int
    most: int

    @property
    def lines(self) -> int:
        return self.count

    @property
    def line_bytes(self) -> int:
        return 16 * max(self.samples, 2) ** 2 * self.channels * self.bins[0] * self.bins[1]

    @property
    def flops(self) -> int:
        return 8 * max(self.samples, 1) ** 2 * self.count * self.channels * self.bins[0] * self.bins[1]

    def emit(self, module: Module) -> None:
        f, (source, regions, target, fault_flag), chunk = start(module, self, 4)
        lanes = fitting_lanes(self.channels, self.host.lanes)
        total = f.reserve(-(-self.channels // lanes) * lanes)
        with f.loop(*block_of(f, chunk, self.block, self.count)) as each:
            line = f.at(regions, f.mul(each.index, self.regions[0]))
            out = f.at(target, f.mul(each.index, self.target[0]))
            image, *corners = (f.load("float", f.at(line, k * self.regions[1])) for k in range(5))
            starts, steps = self._bins(f, corners)
            counts, is_moderate = self._samples(f, steps)
            is_there = f.compare("ogt", image, like(image, -1.0))
            is_there = f.binary("and", is_there, f.compare("olt", image, like(image, self.batch)))
            is_fine = f.binary("and", is_there, is_moderate)
            with f.unless(is_fine):
                f.store(constant(OUTSIDE, "i32"), fault_flag)
            with f.when(is_fine):
                pixels = f.at(source, f.mul(f.convert("fptosi", image, "i64"), self.source[0]))
                with f.loop(0, self.bins[0]) as row, f.loop(0, self.bins[1]) as column:
                    self._clear(f, total, lanes)
                    self._add(f, pixels, total, lanes, (row.index, column.index), starts, steps, counts)
                    offset = f.add(f.mul(row.index, self.target[2]), f.mul(column.index, self.target[3]))
                    self._finish(f, total, lanes, f.at(out, offset), counts)
        f.finish()

    def _bins(self, f: Function, corners: list[Value]) -> tuple[list[Value], list[Value]]:
        """Emit the start of a region and the size of its bins: rows, then columns."""
        x1, y1, x2, y2 = (f.fsub(f.fmul(each, like(each, self.scale)), like(each, self.shift)) for each in corners)
        extents = [f.fsub(y2, y1), f.fsub(x2, x1)]
        if self.least is not None:
            least = like(x1, self.least)
            extents = [f.select(f.compare("olt", each, least), least, each) for each in extents]
        pairs = zip(extents, self.bins, strict=True)
        return [y1, x1], [f.fdiv(extent, like(extent, count)) for extent, count in pairs]

    def _samples(self, f: Function, steps: list[Value]) -> tuple[list[Index], Value]:
        """Emit the samples of a bin on each axis, and whether they are within the limit."""
        if self.samples:
            return [self.samples, self.samples], constant(1, "i1")
        found = [f.intrinsic("ceil", each) for each in steps]
        found = [f.select(f.compare("olt", each, like(each, 0.0)), like(each, 0.0), each) for each in found]
        product = f.fmul(*found)
        is_moderate = f.compare("ole", product, like(product, self.most))
        for each in found:  # 0 on one axis makes the product 0
            is_moderate = f.binary("and", is_moderate, f.compare("ole", each, like(each, self.most)))
        known = [f.select(is_moderate, each, like(each, 0.0)) for each in found]
        return [f.convert("fptosi", each, "i64") for each in known], is_moderate

    def _clear(self, f: Function, total: Value, lanes: int) -> None:
        with f.loop(0, self.channels, lanes) as each:
            f.store(constant(0.0, vector(lanes)), f.at(total, each.index))

    def _add(
        self,
        f: Function,
        image: Value,
        total: Value,
        lanes: int,
        cell: tuple[Index, Index],
        starts: list[Value],
        steps: list[Value],
        counts: list[Index],
    ) -> None:
        """Add up all samples of a bin."""
        channels = Channels(self.channels, self.source[1], 1, lanes)
        with f.loop(0, counts[0]) as down:
            rows = self._taps(f, 0, _position(f, cell[0], starts[0], steps[0], down.index, counts[0]))
            with f.loop(0, counts[1]) as along:
                columns = self._taps(f, 1, _position(f, cell[1], starts[1], steps[1], along.index, counts[1]))
                channels.sample(f, together(f, [rows, columns]), image, total, adds=True)

    def _taps(self, f: Function, axis: int, position: Value) -> list[Tap]:
        """Emit the neighbours of a position; positions up to one outside count as on the edge."""
        size, step = self.sizes[axis], self.source[2 + axis]
        zero, last = like(position, 0.0), like(position, size - 1)
        counts = f.compare("oge", position, like(position, -1.0))
        counts = f.binary("and", counts, f.compare("ole", position, like(position, size)))
        inside = f.select(f.binary("and", counts, f.compare("ogt", position, zero)), position, zero)
        inside = f.select(f.compare("olt", inside, last), inside, last)
        below = f.convert("fptosi", inside, "i64")
        upper = f.fsub(inside, f.convert("sitofp", below, "float"))
        above = f.minimum(f.add(below, 1), size - 1)
        weights = f.fsub(like(upper, 1.0), upper), upper
        return [Tap(f.mul(at, step), counts, weight) for at, weight in zip((below, above), weights, strict=True)]

    def _finish(self, f: Function, total: Value, lanes: int, out: Value, counts: list[Index]) -> None:
        """Store the mean of the samples."""
        count = f.maximum(f.mul(counts[0], counts[1]), 1)
        divisor = f.splat(f.convert("sitofp", as_value(count), "float"), lanes)
        whole = self.channels // lanes * lanes

        def store(at: Index, real: int) -> None:
            mean = f.fdiv(f.load(vector(lanes), f.at(total, at)), divisor)
            f.store_lanes(mean, f.at(out, f.mul(at, self.target[1])), real, self.target[1])

        if whole:
            with f.loop(0, whole, lanes) as each:
                store(each.index, lanes)
        if whole < self.channels:
            store(whole, self.channels - whole)


def _position(f: Function, cell: Index, start: Value, step: Value, sample: Index, count: Index) -> Value:
    """Emit the position of a sample of a bin: (bin + (sample + 0.5) / count) * size + start."""
    above = f.fadd(f.convert("sitofp", as_value(sample), "double"), constant(0.5, "double"))
    part = f.fdiv(above, f.convert("sitofp", as_value(count), "double"))
    number = f.fadd(f.convert("sitofp", as_value(cell), "float"), f.convert("fptrunc", part, "float"))
    return f.fadd(f.fmul(number, step), start)
