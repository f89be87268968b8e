"""Scores made weights, row by row: masks, the largest score, exponentials and their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from engine.compiler.codegen.ir import Function, Index, Value, constant, mangled, vector
from engine.compiler.kernels.folding import fold_lanes, largest_number, total
from engine.compiler.kernels.functions.arithmetic import negative
from engine.compiler.kernels.functions.exponential import exp_down
from engine.compiler.kernels.products.matrix import Matrix


@dataclass(frozen=True, slots=True)
class Mask:
    """A number for every score, or a byte.

    Args:
        matrix: where they lie, from query to query and from key to key; 1 or 0 from key to key.
        kind: what they do: numbers are added, bytes that are not 0 keep a score, or drop it.
        fill: what stands in place of a score that is dropped.
    """

    matrix: Matrix
    kind: Literal["add", "keep", "drop"]
    fill: float = -math.inf

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 4 if self.kind == "add" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCode:
    """The rows of a tile of scores.

    Of every row is kept, in the order of ``STATE``: the largest score so far, the sum of exponentials so far, and the
    factor for what was summed before: what it shrinks by, or, in a single block, one by the sum of exponentials.

    Args:
        rows: of a tile, ``pitch`` floats apart.
        lanes: of a vector; there is room for whole vectors.
        is_causal: row r sees one key more than the row before it.
        has_blocks: whether keys come in several blocks.
        is_zero: whether a row without a key gives zeros; else NaN.
        scale: of the scores.
    """

    STATE: ClassVar[int] = 3
    rows: int
    pitch: int
    lanes: int
    masks: tuple[Mask, ...]
    is_causal: bool
    has_blocks: bool
    is_zero: bool
    scale: float

    @property
    def is_scaled_late(self) -> bool:
        """Whether scores are scaled where exponentials are taken, for nothing; else when they are first read."""
        return not self.masks and self.scale > 0

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Of the function: the scores, the states, the masks; keys of the block, and those that row -1 sees."""
        masks = [("ptr", f"mask{k}") for k in range(len(self.masks))]
        return [("ptr", "scores"), ("ptr", "states"), *masks, ("i64", "keys"), ("i64", "seen")]

    def emit(self, f: Function, keys: Index) -> None:
        """Write the function.

        Args:
            keys: of the block; the parameter, or what is known of it.
        """
        scores, states, *masks, _, seen = f.parameters
        end = self._whole(f, f.add(keys, self.lanes - 1))
        with f.loop(0, self.rows) as row:
            line, state = self._of(f, scores, states, row.index)
            addresses = [
                f.at(at, f.mul(row.index, mask.matrix.row), mask.size)
                for at, mask in zip(masks, self.masks, strict=True)
            ]
            limit = keys
            if self.is_causal:
                limit = f.maximum(f.minimum(f.add(f.add(seen, row.index), 1), keys), 0)
            self._update(f, state, self._largest(f, line, addresses, limit, end))
        with f.loop(0, self.rows) as row:
            line, state = self._of(f, scores, states, row.index)
            self._sum(f, state, self._exponentials(f, line, f.load("float", state), end))
        f.finish()

    def clear(self, f: Function, state: Value) -> None:
        """What is known of a row before the first block."""
        f.store(constant(-math.inf, "float"), state)
        f.store(constant(0.0, "float"), f.at(state, 1))

    def factor_at(self, f: Function, states: Value, row: int) -> Value:
        """The factor of a row."""
        return f.load("float", f.at(states, row * self.STATE + 2))

    def share(self, f: Function, sum_: Value) -> Value:
        """One by a sum of exponentials; of a row without a key it is 0, and the result of such a row as wished."""
        if self.is_zero:
            zero = f.compare("oeq", sum_, constant(0.0, "float"))
            sum_ = f.select(zero, constant(1.0, "float"), sum_)
        return f.fdiv(constant(1.0, "float"), sum_)

    def _of(self, f: Function, scores: Value, states: Value, row: Index) -> tuple[Value, Value]:
        return f.at(scores, f.mul(row, self.pitch)), f.at(states, f.mul(row, self.STATE))

    def _whole(self, f: Function, columns: Index) -> Index:
        return f.mul(f.divmod(columns, self.lanes)[0], self.lanes)

    def _largest(self, f: Function, line: Value, masks: Sequence[Value], limit: Index, end: Index) -> Value:
        """The largest score of a row; masks are applied, and what lies behind the limit becomes -inf."""
        type_, full = vector(self.lanes), self._whole(f, limit)
        carried = constant(-math.inf, type_)
        if not isinstance(full, int) or full > 0:
            with f.loop(0, full, self.lanes, carry=[carried]) as loop:
                at = f.at(line, loop.index)
                value = self._masked(f, f.load(type_, at), masks, loop.index, None)
                if not self.is_scaled_late:
                    f.store(value, at)
                loop.carry([largest_number(f, [value, loop.carried[0]])])
            carried = loop.results[0]
        if not isinstance(full, int) or not isinstance(end, int) or full < end:
            with f.loop(full, end, self.lanes, carry=[carried]) as loop:
                at = f.at(line, loop.index)
                within = self._below(f, f.sub(limit, loop.index))
                value = self._masked(f, f.load(type_, at), masks, loop.index, within)
                value = f.select(within, value, constant(-math.inf, type_))
                f.store(value, at)
                loop.carry([largest_number(f, [value, loop.carried[0]])])
            carried = loop.results[0]
        highest = fold_lanes(f, carried, largest_number)
        return f.fmul(highest, constant(self.scale, "float")) if self.is_scaled_late else highest

    def _below(self, f: Function, count: Index) -> Value:
        """The mask that is on for so many lanes, none or more than there are, too."""
        lanes = self.lanes
        if lanes == 1:
            return f.less(0, count)
        type_ = vector(lanes, "i64")
        numbers = Value("<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">", type_)
        counts = constant(count, type_) if isinstance(count, int) else f.splat(count, lanes)
        return f.compare("slt", numbers, counts)

    def _masked(self, f: Function, value: Value, masks: Sequence[Value], column: Index, within: Value | None) -> Value:
        value = value if self.is_scaled_late else f.fmul(value, constant(self.scale, value.type))
        for mask, base in zip(self.masks, masks, strict=True):
            step = mask.matrix.column
            at = f.at(base, f.mul(column, step), mask.size)
            if mask.kind == "add":
                value = f.fadd(value, self._loaded(f, at, "float", step, within))
                continue
            byte = self._loaded(f, at, "i8", step, within)
            is_on = f.compare("ne", byte, constant(0, byte.type))
            nothing = constant(mask.fill, value.type)
            value = f.select(is_on, value, nothing) if mask.kind == "keep" else f.select(is_on, nothing, value)
        return value

    def _loaded(self, f: Function, at: Value, element: str, step: int, within: Value | None) -> Value:
        """A vector of a mask; no more of it is read than there are scores."""
        size, type_ = (4 if element == "float" else 1), vector(self.lanes, element)
        if step == 0:
            return f.splat(f.load(element, at, size), self.lanes)
        if within is None:
            return f.load(type_, at, size)
        arguments = [at, Value(str(size), "i32"), within, constant(0, type_)]
        return f.call(f"llvm.masked.load.{mangled(type_)}.p0", arguments, type_)

    def _update(self, f: Function, state: Value, highest: Value) -> None:
        """The largest score so far, and what sums before shrink by."""
        if self.has_blocks:
            before = f.load("float", state)
            highest = largest_number(f, [before, highest])
            f.store(exp_down(f, f.fsub(before, self._finite(f, highest))), f.at(state, 2))
        f.store(highest, state)

    def _finite(self, f: Function, highest: Value) -> Value:
        """What is subtracted from scores: all that are -inf become exponentials of 0."""
        nothing = constant(-math.inf, highest.type)
        return f.select(f.compare("oeq", highest, nothing), constant(0.0, highest.type), highest)

    def _exponentials(self, f: Function, line: Value, highest: Value, end: Index) -> Value:
        """Of a row, kept in place of the scores; their sum."""
        type_ = vector(self.lanes)
        shift = negative(f, f.splat(self._finite(f, highest), self.lanes))
        scale = constant(self.scale if self.is_scaled_late else 1.0, type_)
        with f.loop(0, end, self.lanes, carry=[constant(0.0, type_)]) as loop:
            at = f.at(line, loop.index)
            value = exp_down(f, f.fma(f.load(type_, at), scale, shift))
            f.store(value, at)
            loop.carry([f.fadd(loop.carried[0], value)])
        return fold_lanes(f, loop.results[0], total)

    def _sum(self, f: Function, state: Value, sum_: Value) -> None:
        if self.has_blocks:
            before = f.fmul(f.load("float", f.at(state, 1)), f.load("float", f.at(state, 2)))
            f.store(f.fadd(before, sum_), f.at(state, 1))
        else:
            f.store(self.share(f, sum_), f.at(state, 2))
