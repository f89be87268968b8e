"""Global pooling of channels-last images: mean, sum, maximum, minimum, or mean squared difference.

Several vectors of channels are reduced together. The pixels of a row go to several accumulators in turn, and rows are
summed from their own sums, so that the rounding error grows with height plus width instead of their product. A long row
is split into runs with separate sums.

Arguments: image, subtracted values (for ``spread``), target (its h and w strides are unused), operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

from engine.compiler.codegen.ir import Function, Module, Sizes, Value, as_value, constant, is_dynamic, vector
from engine.compiler.kernels.channels import Panel, cases, load_panel, panels_of, starts_of, vectors_of
from engine.compiler.kernels.folding import largest, total
from engine.compiler.kernels.functions.arithmetic import negative
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, block_of, derived, element_address, start
from engine.compiler.kernels.target import Target
from engine.ir import dims

# Vectors of channels reduced together, and accumulators of each.
VECTORS = 4
ACCUMULATORS = 4
# Columns of a run.
RUN = 4096
Of = Literal["mean", "sum", "spread", "max", "min"]


class _Pixels:
    """Reduction of the pixels of a panel of channels.

    Args:
        centre: address of the values to subtract from the channels, or None.
    """

    def __init__(self, f: Function, of: Of, panel: Panel, centre: Value | None) -> None:
        self.f, self.panel, self._of = f, panel, of
        self._centres = None if centre is None else load_panel(f, centre, panel)

    @property
    def nothing(self) -> list[Value]:
        """Return the neutral element."""
        number = -math.inf if self._of in ("max", "min") else 0.0
        return [constant(number, vector(lanes)) for lanes, _ in self.panel]

    def fold(self, *values: Value) -> Value:
        """Emit the reduction of some values; for a minimum, the maximum of the negatives."""
        return (largest if self._of in ("max", "min") else total)(self.f, values)

    def folded(self, parts: Sequence[Sequence[Value]]) -> list[Value]:
        """Emit the reduction of several panels to one."""
        return [self.fold(*each) for each in zip(*parts, strict=True)]

    def load(self, at: Value) -> list[Value]:
        """Load the panel of a pixel, as it is reduced."""
        values = load_panel(self.f, at, self.panel)
        if self._of == "min":
            return [negative(self.f, value) for value in values]
        if self._centres is None:
            return values
        centred = [self.f.fsub(value, centre) for value, centre in zip(values, self._centres, strict=True)]
        return [self.f.fmul(each, each) for each in centred]


@dataclass(frozen=True, kw_only=True)
class GlobalAverage(Kernel):
    """Reduction over rows and columns: (n, h, w, c) -> (n, c).

    Args:
        source, target: strides of the image and of the result, 1 along channels.
        of: reduction; ``spread`` is the mean of squared differences from given values (n, c).
    """

    kind = "global_average"
    batch: int
    rows: int
    columns: int
    channels: int
    source: Strides
    target: Strides
    of: Of = "mean"
    epilogue: Epilogue = field(default_factory=Epilogue)

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors reduced together; few vectors are separate panels, to be shared among threads."""
        is_wide = len(vectors_of(self.channels, self.host.lanes)) >= 2 * VECTORS
        return panels_of(self.channels, self.host.lanes, VECTORS if is_wide else 1)

    @property
    def flops(self) -> int:
        return self.batch * self.rows * self.columns * self.channels

    @cached_property
    def block(self) -> int:
        """Return the panels of a chunk, counted through all images."""
        panels = self.batch * len(self.panels)
        worthwhile = -(-panels * self.host.chunk_bytes // (4 * self.flops))
        return dims.smallest(panels, dims.largest(worthwhile, -(-2 * panels // self.host.wanted_chunks)))

    @property
    def chunks(self) -> int:
        return -(-self.batch * len(self.panels) // self.block)

    def dynamic(self, sizes: Sizes) -> Self:
        dynamic = self.with_dynamic(sizes, "batch", "rows", "columns", "source", "target", "epilogue")
        return derived(dynamic, block=sizes.dynamic_count(self.block))

    def emit(self, module: Module) -> None:
        f, (image, *addresses), chunk = start(module, self, 2 + (self.of == "spread") + len(self.epilogue.operands))
        centres = addresses.pop(0) if self.of == "spread" else None
        panels = len(self.panels)
        with f.loop(*block_of(f, chunk, self.block, self.batch * panels)) as each:
            n, panel = f.divmod(each.index, panels)
            channel = f.mul(panel, sum(real for _, real in self.panels[0]))
            source = element_address(f, image, self.source, n, 0, 0, channel)
            target = Target.of(f, self.epilogue, self.target, addresses).at(n, 0, 0, channel)
            centre = None if centres is None else f.at(centres, f.add(f.mul(n, self.channels), channel))
            for vectors in cases(f, panel, self.panels):
                self._emit_panel(f, _Pixels(f, self.of, vectors, centre), source, target)
        f.finish()

    def _emit_panel(self, f: Function, pixels: _Pixels, source: Value, target: Target) -> None:
        """Emit the reduction of a panel; addresses are at its first channel."""
        panel = pixels.panel
        with f.loop(0, self.rows, carry=pixels.nothing) as row:
            line = f.at(source, f.mul(row.index, self.source.h))
            row.carry(pixels.folded([row.carried, self._fold_row(f, pixels, line)]))
        share = self._share(f) if self.of in ("mean", "spread") else None
        for value, first, (lanes, real) in zip(row.results, starts_of(panel), panel, strict=True):
            if share is not None:
                value = f.fmul(value, f.splat(share, lanes))
            target.store(negative(f, value) if self.of == "min" else value, real, c=first)

    def _share(self, f: Function) -> Value:
        """Emit the reciprocal of the number of pixels."""
        pixels = self.rows * self.columns
        if not is_dynamic(pixels):
            return constant(1 / pixels, "float")
        return f.fdiv(constant(1.0, "float"), f.convert("sitofp", as_value(pixels), "float"))

    def _fold_row(self, f: Function, pixels: _Pixels, line: Value) -> list[Value]:
        """Emit the reduction of a row, run by run."""
        runs, left = divmod(self.columns, RUN)
        has_rest = is_dynamic(left) or left
        rest = [self._fold_run(f, pixels, f.at(line, runs * RUN * self.source.w), left)] if has_rest else []
        if not runs:
            return rest[0]
        with f.loop(0, runs, carry=pixels.nothing) as run:
            folded = self._fold_run(f, pixels, f.at(line, f.mul(run.index, RUN * self.source.w)), RUN)
            run.carry(pixels.folded([run.carried, folded]))
        return pixels.folded([*rest, run.results])

    def _fold_run(self, f: Function, pixels: _Pixels, line: Value, columns: int) -> list[Value]:
        """Emit the reduction of contiguous pixels: the remainder of ``ACCUMULATORS`` first, then the rest."""
        iterations, left = divmod(columns, ACCUMULATORS)
        rest = self._fold_few(f, pixels, line, left)
        if not is_dynamic(iterations) and not iterations:
            return rest
        step = self.source.w
        line = f.at(line, left * step)
        with f.loop(0, iterations * ACCUMULATORS, ACCUMULATORS, carry=pixels.nothing * ACCUMULATORS) as loop:
            at = f.at(line, f.mul(loop.index, step))
            values = [each for k in range(ACCUMULATORS) for each in pixels.load(f.at(at, k * step))]
            loop.carry([pixels.fold(a, b) for a, b in zip(loop.carried, values, strict=True)])
        size = len(pixels.panel)
        return pixels.folded([rest, *(loop.results[k * size : (k + 1) * size] for k in range(ACCUMULATORS))])

    def _fold_few(self, f: Function, pixels: _Pixels, line: Value, columns: int) -> list[Value]:
        """Emit the reduction of fewer pixels than ``ACCUMULATORS``, in the same order whatever their number."""
        if is_dynamic(columns):
            with f.loop(0, columns, carry=pixels.nothing) as each:
                one = pixels.load(f.at(line, f.mul(each.index, self.source.w)))
                each.carry(pixels.folded([each.carried, one]))
            return each.results
        found = pixels.nothing
        for k in range(columns):
            found = pixels.folded([found, pixels.load(f.at(line, k * self.source.w))])
        return found
