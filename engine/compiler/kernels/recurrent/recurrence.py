"""Recurrence: one layer of an LSTM, GRU or plain recurrent network over all its steps, in one or both directions.

The input projection is computed beforehand for all steps, or by the kernel block by block of steps (``hoisted``). A
chunk is some rows of the batch in one direction. Its states are in scratch memory, h twice, because one is read while
the next is written; the recurrent weights are packed so that a step reads them once, sequentially.

If the weights exceed the caches of a core, and all rows are one chunk, threads share every step instead (``groups``):
there are as many chunks as groups.

Arguments: for each direction the input projection, or the input itself, and the sequence if it is needed, both from the
first step of that direction on; weights; initial h, and c of an LSTM; scratch, and the projection of a block of steps;
if needed, final h and c; the zeroed progress counters of layers that run in parallel or of threads that share steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from engine.compiler.codegen.ir import Module, Sizes, Value, as_value
from engine.compiler.kernels.channels import Panel
from engine.compiler.kernels.kernel import Kernel, start
from engine.compiler.kernels.products.arithmetic import ARITHMETIC
from engine.compiler.kernels.recurrent.block import BlockCode, emit_block
from engine.compiler.kernels.recurrent.cells import CellKind
from engine.compiler.kernels.recurrent.hoisted_projection import HoistedWriter, emit_projection
from engine.compiler.kernels.recurrent.layout import Layout
from engine.compiler.kernels.recurrent.progress import next_ticket
from engine.compiler.kernels.recurrent.shared_writer import SharedWriter
from engine.compiler.kernels.recurrent.writer import Writer


@dataclass(frozen=True, kw_only=True)
class Recurrence(Layout):
    """The recurrence of one layer; its layout holds the parameters."""

    kind = "recurrent"

    def emit(self, module: Module) -> None:
        functions = {
            (rows, panel): emit_block(module, self._code_of(rows, panel, self.cell))
            for rows in dict.fromkeys(self.tiles)
            for panel in dict.fromkeys(self.panels)
        }
        projections = {
            (rows, panel): emit_block(module, self._code_of(rows, panel, None))
            for rows in dict.fromkeys(self.tiles)
            for panel in dict.fromkeys(self.projection_panels)
        }
        writer = Writer(self, module, functions, projections)
        if writer.counts is not None:
            SharedWriter(writer, self.groups, writer.counts, writer.chunk).emit()
            return
        if self.hoisted is None:
            writer.emit(writer.steps)
            return
        name = f"{self.name}_input"
        function = emit_projection(module, name, self.hoisted, self.host.lanes, self.gate_floats)
        writer.emit(HoistedWriter(writer, self.hoisted, function).steps)

    def _code_of(self, rows: int, panel: Panel, cell: CellKind | None) -> BlockCode:
        is_last, rounding = cell is None or not self.projected, None if cell is None else self.rounding
        kind = cell or "projection"
        return BlockCode(
            name=f"{self.name}_{kind}_{rows}_{'_'.join(str(real) for _, real in panel)}",
            cell=cell,
            rows=rows,
            panel=panel,
            taps=self.units if cell is None else self.terms,
            splits=self.blocking.splits,
            source=self.source.rows,
            target=0 if self.sequence is None else self.sequence.rows,
            pitch=self.pitch,
            multiplied=self.pitch if rounding is None else rounding.pitch,
            multiply_add=ARITHMETIC["float" if rounding is None else rounding.words].multiply_add(self.host),
            rounding=rounding,
            writes=is_last and self.sequence is not None,
        )


_POINTER_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class RecurrentStack(Kernel):
    """Several recurrent layers.

    Args:
        layers: the lowest first, each of one chunk.
    """

    kind = "recurrent"
    layers: tuple[Recurrence, ...]

    def dynamic(self, sizes: Sizes) -> Self:
        return self.with_dynamic(sizes, "layers")

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        return [least for each in self.layers for least in each.min_sizes]

    @property
    def chunks(self) -> int:
        return len(self.layers)

    @property
    def flops(self) -> int:
        return sum(each.flops for each in self.layers)

    def emit(self, module: Module) -> None:
        for layer in {each.name: each for each in self.layers}.values():
            layer.emit(module)
        f, (words,), _chunk = start(module, self, 1)
        number, first = next_ticket(f, words), 1
        for k, layer in enumerate(self.layers):
            with f.when(f.compare("eq", number, Value(str(k), "i64"))):
                f.call(layer.name, [f.at(f.parameters[0], first, _POINTER_BYTES), as_value(0)])
            first += layer.addresses
        f.finish()
