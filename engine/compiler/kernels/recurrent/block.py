"""Inner function of a recurrence: one step of some rows of a batch times a panel of units with all their gates.

The sums of the gates stay in registers: they begin with the input projection, products of weights and state are added,
and the activations follow at once while the weights of the next panel are being loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, vector
from engine.compiler.kernels.channels import Panel, starts_of, width_of
from engine.compiler.kernels.products.arithmetic import MultiplyAdd
from engine.compiler.kernels.recurrent.cells import GATES, CellKind, gru, lstm, plain
from engine.compiler.kernels.recurrent.rounding import Rounding

# Elements of the state multiplied per iteration.
UNROLL = 4

Totals = list[list[Value]]
"""Sums per row, gate by gate, vector by vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCode:
    """Parameters of an inner function.

    Args:
        cell: None for a projection: the product alone.
        rows: of the batch.
        panel: vectors (lanes, units) of units.
        taps: elements, or words, of the state that are multiplied.
        splits: independent partial sums of each sum.
        source, target: distance of rows of the input projection and of the output sequence.
        pitch, multiplied: distance of rows of the states, and of what is multiplied.
        writes: whether a sequence is written.
        multiply_add: emits sums plus products.
        rounding: of the state that is multiplied; None for floats.
    """

    name: str
    cell: CellKind | None
    rows: int
    panel: Panel
    taps: int
    splits: int
    source: int
    target: int
    pitch: int
    multiplied: int
    writes: bool
    multiply_add: MultiplyAdd = Function.fma
    rounding: Rounding | None = None

    @property
    def gates(self) -> int:
        """Number of sums per unit."""
        return 1 if self.cell is None else GATES[self.cell]

    @property
    def width(self) -> int:
        """Floats of a gate."""
        return width_of(self.panel)

    @property
    def is_integer(self) -> bool:
        """Return whether sums are integers."""
        return self.rounding is not None and self.rounding.is_integer

    @property
    def head(self) -> int:
        """Floats before a panel's weights: bias of a GRU's last gate; of integers, sums and scales of each column."""
        return self.width * ((self.cell == "gru") + 2 * self.gates * self.is_integer)


def emit_block(module: Module, code: BlockCode) -> str:
    """Write the function and return its name.

    Arguments: weights; the state to multiply; the input projection, the state of these units (c of an LSTM, which is
    updated) and their new state; the output sequence. The last four point to the panel. Then 1 to read the weights
    backward, else 0.
    """
    names = ("weights", "state", "source", "own", "following", "target")
    f = module.inner(code.name, [*(("ptr", name) for name in names), ("i64", "backward")])
    _BlockWriter(code, f, *f.parameters).emit()
    f.finish()
    return code.name


@dataclass(frozen=True, slots=True)
class _BlockWriter:
    """Writer of a block."""

    code: BlockCode
    f: Function
    weights: Value
    state: Value
    source: Value
    own: Value
    following: Value
    target: Value
    backward: Value

    def emit(self) -> None:
        """Write the initial sums, the products and the activations."""
        code, count = self.code, len(self.code.panel)
        first = [constant(0, vector(lanes, "i32")) for lanes, _ in code.panel] * code.gates
        begun = [first if code.is_integer else self._begin(row) for row in range(code.rows)]
        totals = self._products(self.f.at(self.weights, code.head), begun)
        for row, sums in enumerate(totals):
            sums = self._scaled(row, sums) if code.is_integer else sums
            for k in range(count):
                self._finish(row, k, sums[k::count])

    def _begin(self, row: int) -> list[Value]:
        """Return the initial sums of a row; a GRU's last gate begins with the bias, packed before the weights."""
        code, f = self.code, self.f
        sums: list[Value] = []
        for gate in range(code.gates):
            is_apart = code.cell == "gru" and gate == 2
            base = self.weights if is_apart else f.at(self.source, row * code.source + gate * code.width)
            for (lanes, _), first in zip(code.panel, starts_of(code.panel), strict=True):
                kind = vector(lanes)
                sums.append(constant(0.0, kind) if code.cell is None else f.load(kind, f.at(base, first)))
        return sums

    def _scaled(self, row: int, sums: list[Value]) -> list[Value]:
        """Return integer sums, less the zero point times those of the weights, as floats, added to the initial sums."""
        code, f, result = self.code, self.f, self._begin(row)
        assert code.rounding is not None
        head = f.at(self.state, row * code.multiplied - code.rounding.head)
        scale, zero = (f.load("float", f.at(head, k)) for k in (0, 1))
        columns = f.at(self.weights, code.head - 2 * code.gates * code.width)
        for k, total in enumerate(sums):
            (lanes, _), at = code.panel[k % len(code.panel)], k // len(code.panel) * code.width
            at += starts_of(code.panel)[k % len(code.panel)]
            whole = f.splat(f.convert("fptosi", zero, "i32"), lanes)
            excess = f.binary("mul", whole, f.load(total.type, f.at(columns, at)))
            number = f.convert("sitofp", f.binary("sub", total, excess), vector(lanes))
            factor = f.fmul(f.splat(scale, lanes), f.load(vector(lanes), f.at(columns, at + code.gates * code.width)))
            result[k] = f.fma(number, factor, result[k])
        return result

    def _products(self, weights: Value, begun: Totals) -> Totals:
        """Add weights times state to the sums, from the first element on or, if ``backward`` is set, in reverse."""
        code, f = self.code, self.f
        zeros = [[constant(0 if code.is_integer else 0.0, each.type) for each in sums] for sums in begun]
        parts = [begun, *[zeros] * (code.splits - 1)]
        floats = code.gates * code.width
        first, step = f.mul(self.backward, code.taps - 1), f.sub(1, f.mul(self.backward, 2))
        places = [f.at(self.state, first), f.at(weights, f.mul(first, floats))]
        strides = [step, f.mul(step, floats)]
        unroll = max(UNROLL, code.splits)

        def multiplied(places: list[Value], parts: list[Totals], count: int) -> tuple[list[Value], list[Totals]]:
            for k in range(count):
                part = k % code.splits
                parts[part] = self._multiply(places[0], places[1], parts[part])
                places = [f.at(place, stride) for place, stride in zip(places, strides, strict=True)]
            return places, parts

        whole = code.taps - code.taps % unroll
        if whole:
            with f.loop(0, whole, unroll, carry=[*places, *_flat(parts)]) as loop:
                moved, found = multiplied(loop.carried[:2], self._like(parts, loop.carried[2:]), unroll)
                loop.carry([*moved, *_flat(found)])
            places, parts = loop.results[:2], self._like(parts, loop.results[2:])
        _, parts = multiplied(places, parts, code.taps - whole)
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self._sum(*pair) for pair in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _multiply(self, state: Value, weights: Value, totals: Totals) -> Totals:
        """Add one element of every row's state times its weights."""
        code, f = self.code, self.f
        values = [f.load("float", f.at(state, row * code.multiplied)) for row in range(code.rows)]
        result: Totals = [[] for _ in totals]
        for gate in range(code.gates):
            for (lanes, _), first in zip(code.panel, starts_of(code.panel), strict=True):
                weight = f.load(vector(lanes), f.at(weights, gate * code.width + first))
                for value, sums, into in zip(values, totals, result, strict=True):
                    into.append(code.multiply_add(f, f.splat(value, lanes), weight, sums[len(into)]))
        return result

    def _finish(self, row: int, k: int, gates: list[Value]) -> None:
        """Write the new state of one vector of units from its gates."""
        code, f = self.code, self.f
        first, (_, real) = starts_of(code.panel)[k], code.panel[k]
        at = row * code.pitch + first
        type_ = gates[0].type
        if code.cell == "lstm":
            own = f.at(self.own, at)
            h, c = lstm(f, gates, f.load(type_, own))
            f.store(c, own)
        elif code.cell == "gru":
            input = f.load(type_, f.at(self.source, row * code.source + 2 * code.width + first))
            h = gru(f, gates, input, f.load(type_, f.at(self.own, at)))
        else:
            h = gates[0] if code.cell is None else plain(f, code.cell, gates[0])
        f.store(h, f.at(self.following, at))
        if code.writes:
            f.store_lanes(h, f.at(self.target, row * code.target + first), real)

    def _sum(self, a: Totals, b: Totals) -> Totals:
        how = "add" if self.code.is_integer else "fadd"
        return [[self.f.binary(how, x, y) for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]

    def _like(self, parts: Sequence[Totals], values: Sequence[Value]) -> list[Totals]:
        """Restore the nesting of values that ``_flat`` flattened."""
        size = self.code.gates * len(self.code.panel)
        rows = [list(values[k : k + size]) for k in range(0, len(values), size)]
        return [rows[k : k + self.code.rows] for k in range(0, len(rows), self.code.rows)]


def _flat(parts: Sequence[Totals]) -> list[Value]:
    return [value for totals in parts for sums in totals for value in sums]


def copy_row(f: Function, source: Value, target: Value, count: int, lanes: int, *, pads: bool) -> None:
    """Copy ``count`` contiguous elements.

    Args:
        pads: store the last vector completely, with zeros after the elements.
    """
    full, rest = divmod(count, lanes)
    if full:
        with f.loop(0, full * lanes, lanes) as each:
            f.store(f.load(vector(lanes), f.at(source, each.index)), f.at(target, each.index))
    if rest:
        at: Index = full * lanes
        value = f.load_lanes(vector(lanes), f.at(source, at), rest)
        f.store_lanes(value, f.at(target, at), lanes if pads else rest)
