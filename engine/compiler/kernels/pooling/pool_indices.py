"""Maximum pooling with indices: the largest element of every window and its position in the image.

As in PyTorch, the first of equal elements is taken, NaN exceeds all numbers, and the last NaN is taken. Windows are
clipped at all borders and read tap by tap, a vector of channels at a time.

Arguments: image (its first pixel), target, indices (int64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, vector
from engine.compiler.kernels.channels import cases, vectors_of
from engine.compiler.kernels.kernel import Lines, Strides, block_of, element_address, start
from engine.compiler.kernels.windows import WindowAxis


@dataclass(frozen=True, kw_only=True)
class PoolIndices(Lines):
    """Maximum pooling with indices, of static geometry.

    Args:
        batch: output images, or output planes of volumes.
        depth, down, across: windows along planes, rows and columns.
        source, target, indices: strides, 1 along channels.
    """

    kind = "pool"
    batch: int
    channels: int
    depth: WindowAxis
    down: WindowAxis
    across: WindowAxis
    source: Strides
    target: Strides
    indices: Strides

    @cached_property
    def vectors(self) -> tuple[tuple[int, int], ...]:
        """Return the vectors (lanes, channels) of a pixel."""
        return tuple(vectors_of(self.channels, self.host.lanes))

    @property
    def flops(self) -> int:
        return self.lines * self.line_bytes // 4

    @property
    def lines(self) -> int:
        """Return the output rows of all images."""
        return self.batch * self.down.count

    @property
    def line_bytes(self) -> int:
        taps = self.depth.reach * self.down.reach * self.across.reach
        return 4 * self.across.count * self.channels * taps

    def emit(self, module: Module) -> None:
        f, (image, target, indices), chunk = start(module, self, 3)
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as row:
            n, h = f.divmod(row.index, self.down.count)
            volume, d = f.divmod(n, self.depth.count)
            whole = element_address(f, image, self.source, f.mul(volume, self.depth.size), 0, 0, 0)
            with f.loop(0, self.across.count) as x, f.loop(0, len(self.vectors)) as each:
                channel = f.mul(each.index, self.host.lanes)
                for lanes, real in cases(f, each.index, self.vectors):
                    best, where = self._found(f, f.at(whole, channel), (d, h, x.index), lanes, real)
                    f.store_lanes(best, element_address(f, target, self.target, n, h, x.index, channel), real)
                    offset: Index = 0
                    for index, stride in (
                        (n, self.indices.n),
                        (h, self.indices.h),
                        (x.index, self.indices.w),
                        (channel, 1),
                    ):
                        offset = f.add(offset, f.mul(index, stride))
                    f.store_lanes(f.convert("sext", where, vector(lanes, "i64")), f.at(indices, offset, 8), real)
        f.finish()

    def _found(
        self, f: Function, image: Value, window: tuple[Index, Index, Index], lanes: int, real: int
    ) -> tuple[Value, Value]:
        """Emit the largest elements of a window and their indices."""
        axes = self.depth, self.down, self.across
        clipped = [axis.clip(f, each) for axis, each in zip(axes, window, strict=True)]
        (plane, planes), (row, rows), (column, columns) = clipped
        first = self._numbered(f, lanes, plane, row, column)
        with f.loop(0, planes, carry=[constant(-math.inf, vector(lanes)), first]) as a:
            d = f.add(plane, f.mul(a.index, self.depth.dilation))
            with f.loop(0, rows, carry=a.carried) as b:
                h = f.add(row, f.mul(b.index, self.down.dilation))
                line = element_address(f, image, self.source, d, h, 0, 0)
                with f.loop(0, columns, carry=b.carried) as c:
                    w = f.add(column, f.mul(c.index, self.across.dilation))
                    value = f.load_lanes(vector(lanes), f.at(line, f.mul(w, self.source.w)), real)
                    best, where = c.carried
                    is_more = f.binary("or", f.compare("ogt", value, best), f.compare("uno", value, value))
                    index = self._numbered(f, lanes, d, h, w)
                    c.carry([f.select(is_more, value, best), f.select(is_more, index, where)])
                b.carry(c.results)
            a.carry(b.results)
        best, where = a.results
        return best, where

    def _numbered(self, f: Function, lanes: int, plane: Index, row: Index, column: Index) -> Value:
        """Emit the index of a pixel in its image or volume."""
        line = f.add(f.mul(plane, self.down.size), row)
        number = f.add(f.mul(line, self.across.size), column)
        return f.splat(f.convert("trunc", as_value(number), "i32"), lanes)
