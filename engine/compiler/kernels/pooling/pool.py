"""Maximum and average pooling of channels-last images.

An output row is made in two steps, for some vectors of channels at a time. The input rows of its windows are reduced
to one line, which is kept on the stack with padding around it; then windows of the line are reduced to pixels. Windows
are clipped at the top and bottom by reducing fewer rows, so the image needs no padding. For volumes, the rows of all
planes of a window are reduced, and windows are clipped likewise.

Where windows are so wide that a line exceeds the stack limit, pixels are computed one by one: every window is read,
clipped at all borders, and a sum is accumulated from partial sums of its rows.

Arguments: image (its first pixel), target, operands of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Module, as_value
from engine.compiler.kernels.channels import cases
from engine.compiler.kernels.kernel import place, start
from engine.compiler.kernels.pooling.pool_layout import VECTORS, PoolLayout
from engine.compiler.kernels.pooling.pool_row import PoolRow
from engine.compiler.kernels.target import Target


@dataclass(frozen=True, kw_only=True)
class Pool(PoolLayout):
    """Pooling of static geometry; see ``PoolLayout``."""

    kind = "pool"

    def emit(self, module: Module) -> None:
        functions = {each: PoolRow(self, module, each).emit() for each in dict.fromkeys(self.panels)}
        f, (image, *addresses), chunk = start(module, self, 2 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, self.target, addresses)
        rows, panels = self.ranges(f, chunk)
        with f.loop(*panels) as panel, f.loop(0, self.tiles) as tile, f.loop(*rows) as row:
            n, h = f.divmod(row.index, self.down.count)
            channel = f.mul(panel.index, VECTORS * self.host.lanes)
            volume, window = f.divmod(n, self.depth.count)
            source = place(f, image, self.source, f.mul(volume, self.depth.size), 0, 0, channel)
            places = [as_value(each) for each in (window, h)]
            arguments = [source, *places, tile.index, *target.at(n, h, 0, channel).addresses]
            for each in cases(f, panel.index, self.panels):
                f.call(functions[each], arguments)
        f.finish()
