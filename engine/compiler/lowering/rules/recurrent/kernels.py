"""Kernels of a recurrent layer: the input product for all steps at once, then the recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain

import numpy as np

from engine.compiler.kernels.channels import Panel, panels_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.matrix_conv import in_tiles
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue, Strides
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.kernels.recurrent.blocking import (
    Blocking,
    Hoisting,
    choose_blocking,
    choose_groups,
    choose_hoisting,
    is_shared,
)
from engine.compiler.kernels.recurrent.cells import GATES, CellKind
from engine.compiler.kernels.recurrent.layout import CellWeights, States, Steps, gate_rows, spread, widths
from engine.compiler.kernels.recurrent.progress import LINE_WORDS
from engine.compiler.kernels.recurrent.recurrence import Recurrence
from engine.compiler.kernels.recurrent.rounding import RoundedRows, Rounding
from engine.compiler.kernels.recurrent.shared_writer import words_of
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.products.bfloat16 import prefers_bfloat16
from engine.compiler.lowering.steps import KernelStep, NotLoweredError, copy, derived
from engine.compiler.storage import View, constant, row_major, spaced_rows
from engine.ir.dims import hint
from engine.ir.strided import Strided
from engine.tensor import Array

# Largest work of one kernel, because a run checks for cancellation between kernels, and most kernels of a layer.
PIECE_FLOPS = 1_000_000_000
PIECE_BYTES = 500_000_000
MAX_PIECES = 256

StepsFirst = Callable[[Strided], Strided]
"""Views (rows, width) as (steps, batch, width)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionWeights:
    """Weights of a layer in one direction, gates in the kernel's order.

    Args:
        input: (gates * units, width); integers if the cell's are.
        bias: (gates * units,), the sum of what is added to the input product.
        scales: of those integers, (gates * units,).
        cell: weights of the recurrence.
    """

    input: Array
    bias: Array
    cell: CellWeights
    scales: Array | None = None


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer:
    """Recurrent layer to be computed.

    Args:
        count: number of steps.
        backward: of each direction, whether it begins with the last step.
        weights: of each direction.
        initial: h, and c of an LSTM, as (directions, batch, width).
        sequence: target of h of every step, as (steps, directions, batch, width); None if it is not used.
        final: targets of the last states, like ``initial``; None for those not used.
        rounds: the rows whose range input and h are rounded to: of ``each``, or of ``all`` together; empty for floats.
    """

    context: Context
    cell: CellKind
    count: int
    backward: Sequence[bool]
    weights: Sequence[DirectionWeights]
    initial: Sequence[View]
    sequence: View | None
    final: Sequence[View | None]
    rounds: str = ""

    @property
    def batch(self) -> int:
        """Return the number of sequences."""
        return self.initial[0].shape[1]

    @property
    def units(self) -> int:
        """Return the units of a gate."""
        return len(self.weights[0].cell.hidden) // GATES[self.cell]

    @property
    def taps(self) -> int:
        """Return the width of h."""
        return int(self.weights[0].cell.hidden.shape[1])

    @cached_property
    def _hoisting(self) -> Hoisting | None:
        """Return the blocking of the input product if the recurrence computes it itself."""
        is_plain = self.taps == self.units and self.weights[0].cell.projection is None and self._rounding is None
        if not is_plain or len(self.weights) > 1 or self._pieces > 1 or self._is_shared:
            return None
        gates, width = GATES[self.cell], self.weights[0].input.shape[1]
        sizes = {"units": self.units, "steps": self.count, "batch": self.batch, "width": width}
        return choose_hoisting(self.context.host, gates=gates, **sizes)

    @cached_property
    def _blocking(self) -> Blocking:
        """Return the blocking of the recurrence."""
        rounding, host, taps = self._rounding, self.context.host, self.taps
        if rounding is not None:
            host, taps = rounding.arithmetic.tiling_host(host), rounding.count
        return choose_blocking(host, gates=GATES[self.cell], units=self.units, taps=taps, batch=self.batch)

    @cached_property
    def _rounding(self) -> Rounding | None:
        """Return the rounding of h before it is multiplied."""
        return self._rounding_of(self.weights[0].cell.hidden)

    def _rounding_of(self, weights: Array) -> Rounding | None:
        """Return the rounding of rows that these weights (gates * units, terms) multiply."""
        terms = weights.shape[1]
        if weights.dtype.kind == "i":
            return Rounding("int8" if weights.dtype == np.int8 else "int16", terms, self.rounds == "all")
        return Rounding("bfloat16", terms) if prefers_bfloat16(self.context, terms, len(weights)) else None

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors of every panel of units."""
        return panels_of(self.units, self.context.host.lanes, self._blocking.vectors)

    def steps(self, rows: View, steps_first: StepsFirst) -> Iterator[KernelStep]:
        """Yield the kernels.

        Args:
            rows: the input, (rows, width).
        """
        if self._hoisting is not None:
            seen = steps_first(rows.meta)
            yield from self._recurrences(self._turned(rows, [seen] * len(self.weights)), self._sequences())
            return
        width = GATES[self.cell] * widths(self.panels)
        gates = spaced_rows((rows.shape[0], len(self.weights) * width), self.context.dtype)
        yield from self._input_product(rows, gates)
        seen = steps_first(gates.meta)
        sources = self._turned(gates, [seen[..., d * width : (d + 1) * width] for d in range(len(self.weights))])
        yield from self._recurrences(sources, self._sequences())

    def _sequences(self) -> list[View]:
        """Return the target of h of every step, for each direction; empty if it is not used."""
        if self.sequence is None:
            return []
        return self._turned(self.sequence, [self.sequence.meta[:, d] for d in range(len(self.weights))])

    def _turned(self, whole: View, parts: Sequence[Strided]) -> list[View]:
        """Return (steps, batch, width) for each direction, its own first step first."""
        return [part_of(whole, part[::-1] if back else part) for part, back in zip(parts, self.backward, strict=True)]

    def _input_product(self, rows: View, gates: View) -> Iterator[KernelStep]:
        """Yield the steps of the input product of all directions, with biases, for all steps."""
        rounding, host, count = self._rounding_of(self.weights[0].input), self.context.host, rows.shape[0]
        words: Words = "float"
        epilogue, operands = Epilogue(), list[View]()
        if rounding is not None:
            words, rounded = rounding.words, row_major((count, rounding.pitch), self.context.dtype)
            before = RoundedRows(rows=count, source=rows.strides[0], rounding=rounding, host=host)
            yield self.context.step(before, rows, rounded)
            rows = derived(rounded, rounded.meta[:, rounding.head : rounding.head + rounding.count])
            if rounding.is_integer:
                epilogue, operands = self._scaling(rounded)
        out_channels, in_channels = gates.shape[1], rows.shape[1]
        plain = Conv(
            batch=1,
            rows=1,
            columns=count,
            in_channels=in_channels,
            out_channels=out_channels,
            groups=1,
            kernel=(1, 1),
            stride=(1, 1),
            dilation=(1, 1),
            source=Strides(0, 0, rows.strides[0]),
            target=Strides(0, 0, gates.strides[0]),
            tile=choose_tile(ARITHMETIC[words].tiling_host(host), 1, count, out_channels, in_channels),
            words=words,
            epilogue=epilogue,
            host=host,
        )
        kernel = in_tiles(plain)

        def pack() -> Array:
            weight = np.concatenate([self._arranged(each.input) for each in self.weights])[:, :, None, None]
            bias = np.concatenate([self._arranged(each.bias) for each in self.weights])
            return kernel.pack(weight, None if operands else bias)

        arrays = [array for each in self.weights for array in (each.input, each.bias)]
        packed = self.context.lowering.packed((kernel.packing, self.cell, self.panels, self.units), arrays, pack)
        yield self.context.step(kernel, rows, packed, gates, *operands)

    def _scaling(self, rounded: View) -> tuple[Epilogue, list[View]]:
        """Return the epilogue that makes floats of integer sums: (sum - zero * columns) * scale * scales + bias.

        Args:
            rounded: rows that begin with a scale and a zero point.
        """

        def pack() -> Array:
            columns = [[each.input.sum(1, dtype=np.int32), each.scales, each.bias] for each in self.weights]
            found = [[self._arranged(array).astype(np.float32) for array in row] for row in columns]
            return np.concatenate(found, axis=1)

        arrays = [array for each in self.weights for array in (each.input, each.scales, each.bias)]
        key = "scales", self.cell, self.panels, self.units
        columns = self.context.lowering.packed(key, arrays, pack)
        columns = derived(columns, columns.meta.reshape(3, -1))
        operands = [derived(rounded, rounded.meta[:, k]) for k in (0, 1)]
        operands += [derived(columns, columns.meta[k]) for k in range(3)]
        by_row, by_column = Strides(0, 0, rounded.strides[0], 0), Strides(0, 0, 0, 1)
        total, scale, zero, sums, scales, bias = map(Operand, range(6))
        tree = apply("sub", apply("whole_sum", total), apply("mul", zero, sums))
        tree = apply("add", apply("mul", tree, apply("mul", scale, scales)), bias)
        return Epilogue(tree, (by_row, by_row, by_column, by_column, by_column)), operands

    def _arranged(self, matrix: Array) -> Array:
        """Return rows (gates * units, ...) in the recurrence's order, with zeros in gaps."""
        rows = gate_rows(self.panels, GATES[self.cell], self.units)
        return spread(matrix, np.concatenate(rows))

    def _recurrences(self, sources: Sequence[View], sequences: Sequence[View]) -> Iterator[KernelStep]:
        """Yield the recurrence, in segments if it takes long: each continues where the last one ended."""
        count, pieces = self.count, self._pieces
        carried = [row_major((len(sources), self.batch, each.shape[2]), self.context.dtype) for each in self.initial]
        kept: list[View] | None = None
        for number in range(pieces):
            size = count // pieces
            part = slice(number * size, count if number == pieces - 1 else (number + 1) * size)
            ways, into = ([part_of(each, each.meta[part]) for each in all_] for all_ in (sources, sequences))
            initial = carried if number else self.initial
            final: Sequence[View | None] = carried if number < pieces - 1 else self.final
            kernel = self._kernel(ways, into, initial, final)
            if kept is None:
                packed = self._packed(kernel)
                kept = [packed, row_major((kernel.scratch_floats,), self.context.dtype)]
                if kernel.hoisted is not None:
                    kept.append(row_major((kernel.block_floats,), self.context.dtype))
            counts = row_major((words_of(kernel.groups), LINE_WORDS), np.dtype(np.int64)) if kernel.groups else None
            if counts is not None:
                zeros = constant(np.zeros(counts.shape, counts.dtype))
                yield copy(zeros, counts, [self.context.op.name], self.context.host)
            by_direction = zip(*filter(None, (ways, into)), strict=True)
            wanted = [each for each in (*final, counts) if each is not None]
            yield self.context.step(kernel, *chain.from_iterable(by_direction), kept[0], *initial, *kept[1:], *wanted)

    @cached_property
    def _is_shared(self) -> bool:
        """Return whether threads share every step."""
        cell = self.weights[0].cell
        is_simple = len(self.weights) == 1 and cell.projection is None
        return is_simple and is_shared(self.context.host, weight_bytes=self._weight_bytes, batch=self.batch)

    @property
    def _weight_bytes(self) -> int:
        """Return the bytes of the recurrent weights of a direction as they are read."""
        size = self.context.host.element_bytes
        return len(self.weights[0].cell.hidden) * size * (self._rounding.count if self._rounding else self.taps)

    @property
    def _groups(self) -> int:
        """Return the parts of a step that threads share."""
        if not self._is_shared:
            return 0
        return choose_groups(self.context.host, weight_bytes=self._weight_bytes, panels=len(self.panels))

    def _packed(self, kernel: Recurrence) -> View:
        """Return the packed weights of every direction."""
        cells = [replace(each.cell, input=each.input, input_bias=each.bias) for each in self.weights]
        arrays = [getattr(cell, each.name) for cell in cells for each in fields(cell)]
        return self.context.lowering.packed(kernel.packing, arrays, lambda: kernel.pack(cells))

    @property
    def _pieces(self) -> int:
        """Return the number of kernels that the steps are divided into."""
        steps = max(1, hint(self.count))
        weights = sum(each.cell.hidden.size for each in self.weights)
        costs = 2 * weights * hint(self.batch) * steps / PIECE_FLOPS, 4 * weights * steps / PIECE_BYTES
        return steps // -(-steps // min(MAX_PIECES, max(1, math.ceil(max(costs)))))

    def _kernel(
        self, source: Sequence[View], sequence: Sequence[View], initial: Sequence[View], final: Sequence[View | None]
    ) -> Recurrence:
        return Recurrence(
            host=self.context.host,
            cell=self.cell,
            steps=source[0].shape[0],
            batch=self.batch,
            units=self.units,
            projected=0 if self.weights[0].cell.projection is None else self.taps,
            source=_steps_of(source),
            sequence=_steps_of(sequence) if sequence else None,
            initial=tuple(map(_states_of, initial)),
            final=tuple(None if each is None else _states_of(each) for each in final),
            blocking=self._blocking,
            hoisted=self._hoisting,
            rounding=self._rounding,
            groups=self._groups,
        )


def direction_weights(
    cell: CellKind,
    input: Array,
    hidden: Array,
    input_bias: Array,
    hidden_bias: Array,
    projection: Array | None = None,
    scales: Sequence[Array | None] = (None, None),
) -> DirectionWeights:
    """Return weights in the kernel's order; recurrent biases join the input's, except the last of a GRU."""
    bias, inner = input_bias + hidden_bias, None
    if cell == "gru":
        units = len(hidden) // GATES[cell]
        bias[2 * units :] = input_bias[2 * units :]
        inner = hidden_bias[2 * units :]
    return DirectionWeights(
        input=input, bias=bias, cell=CellWeights(hidden, scales[1], inner, projection), scales=scales[0]
    )


def part_of(whole: View, meta: Strided) -> View:
    """Return the view that a view of another view's meta tensor stands for.

    Raises:
        NotLoweredError: it is a copy, or its last dimension is not contiguous.
    """
    part = whole.derive(meta)
    if part is None or (part.shape[-1] > 1 and part.strides[-1] != 1):
        raise NotLoweredError("the rows of its operands or results are not contiguous")
    return part


def _steps_of(views: Sequence[View]) -> Steps:
    """Return the strides of sequences (steps, batch, width), one of each direction."""
    return Steps(tuple(view.strides[0] for view in views), views[0].strides[1])


def _states_of(view: View) -> States:
    """Return the strides of states (directions, batch, width)."""
    return States(view.strides[0], view.strides[1])
