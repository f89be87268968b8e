"""Row-wise softmax of scores: masks, maximum, exponentials and their sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Sizes, Value, constant, mangled, vector
from engine.compiler.kernels.folding import SIDE_BY_SIDE, fold_lanes, largest_number, total
from engine.compiler.kernels.functions import half
from engine.compiler.kernels.functions.exponential import LOG2_E, exp2_down
from engine.compiler.kernels.products.arithmetic import Words
from engine.compiler.kernels.products.matrix import Matrix

# Rows of up to this many vectors are unrolled completely.
MOST_UNROLLED_VECTORS = 8
LARGEST_FLOAT = 3e38
Step: TypeAlias = Callable[[Index, Value], Value]


@dataclass(frozen=True, slots=True)
class Mask:
    """Attention mask: a float or a byte for every score.

    Args:
        matrix: strides from query to query and from key to key; the latter is 1 or 0.
        kind: floats are added; non-zero bytes keep a score, or drop it.
        fill: replaces a dropped score, or is added to it.
        is_added: whether ``fill`` is added, so that a NaN score stays NaN.
    """

    matrix: Matrix
    kind: Literal["add", "keep", "drop"]
    fill: float = -math.inf
    is_added: bool = False

    def dynamic(self, sizes: Sizes) -> Mask:
        """Return this mask for dynamic numbers of queries and keys."""
        matrix = self.matrix.dynamic(sizes)
        return replace(self, matrix=replace(matrix, row=sizes.dynamic(matrix.row)))

    @property
    def size(self) -> int:
        """Return the bytes of an element."""
        return 4 if self.kind == "add" else 1

    def applied(self, f: Function, value: Value, byte: Value) -> Value:
        """Emit the scores with dropped ones replaced."""
        is_on, dropped = f.compare("ne", byte, constant(0, byte.type)), constant(self.fill, value.type)
        if self.is_added:
            dropped = f.fadd(value, dropped)
        return f.select(is_on, *((value, dropped) if self.kind == "keep" else (dropped, value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCode:
    """Generator of the softmax of a tile's rows.

    Per row it keeps, in the order of ``STATE``: the running maximum, the running sum of exponentials, and a factor. The
    factor rescales earlier blocks; with a single block it is the reciprocal of the sum.

    Args:
        rows: of a tile, ``pitch`` floats apart.
        is_causal: whether row r attends to one key more than row r - 1.
        has_blocks: whether keys come in several blocks.
        is_zero: whether a row without a key gives zeros; otherwise NaN.
        scale: of the scores.
        words: that exponentials are stored as, at the beginning of their row.
        host: whose vectors rows are padded to.
    """

    STATE: ClassVar[int] = 3
    rows: int
    pitch: int
    masks: tuple[Mask, ...]
    is_causal: bool
    has_blocks: bool
    is_zero: bool
    scale: float
    words: Words
    host: Host

    @property
    def lanes(self) -> int:
        """Return the lanes of a vector."""
        return self.host.lanes

    @property
    def is_scaled_late(self) -> bool:
        """Return whether scaling is folded into the exponential instead of the first read of the scores."""
        return not self.masks and 0 < self.scale * LOG2_E < LARGEST_FLOAT

    @property
    def doublings(self) -> float:
        """Return the factor of (score - maximum) in the exponent of two."""
        return (self.scale if self.is_scaled_late else 1.0) * LOG2_E

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Return the function's parameters: scores, states, masks, keys of the block, and keys before row 0's own."""
        masks = [("ptr", f"mask{k}") for k in range(len(self.masks))]
        return [("ptr", "scores"), ("ptr", "states"), *masks, ("i64", "keys"), ("i64", "seen")]

    def emit(self, f: Function, keys: Index) -> None:
        """Emit the function.

        Args:
            keys: of the block: the parameter, or a constant.
        """
        scores, states, *masks, _, seen = f.parameters
        end = self._full_vectors(f, f.add(keys, self.lanes - 1))
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
        """Initialise the state of a row before the first block."""
        f.store(constant(-math.inf, "float"), state)
        f.store(constant(0.0, "float"), f.at(state, 1))

    def factor_at(self, f: Function, states: Value, row: int) -> Value:
        """Load the factor of a row."""
        return f.load("float", f.at(states, row * self.STATE + 2))

    def share(self, f: Function, sum_: Value) -> Value:
        """Emit the reciprocal of a sum of exponentials; 1 for the sum 0 of a row without keys if ``is_zero``."""
        if self.is_zero:
            zero = f.compare("oeq", sum_, constant(0.0, "float"))
            sum_ = f.select(zero, constant(1.0, "float"), sum_)
        return f.fdiv(constant(1.0, "float"), sum_)

    def _of(self, f: Function, scores: Value, states: Value, row: Index) -> tuple[Value, Value]:
        return f.at(scores, f.mul(row, self.pitch)), f.at(states, f.mul(row, self.STATE))

    def _full_vectors(self, f: Function, columns: Index) -> Index:
        return f.mul(f.divmod(columns, self.lanes)[0], self.lanes)

    def _largest(self, f: Function, line: Value, masks: Sequence[Value], limit: Index, end: Index) -> Value:
        """Apply the masks, set scores behind the limit to -inf, and emit the maximum of a row."""
        type_, full = vector(self.lanes), self._full_vectors(f, limit)

        def inside(column: Index, carried: Value) -> Value:
            at = f.at(line, column)
            value = self._masked(f, f.load(type_, at), masks, column, None)
            if not self.is_scaled_late:
                f.store(value, at)
            return largest_number(f, [value, carried])

        def across(column: Index, carried: Value) -> Value:
            at, within = f.at(line, column), self._below(f, f.sub(limit, column))
            value = self._masked(f, f.load(type_, at), masks, column, within)
            value = f.select(within, value, constant(-math.inf, type_))
            f.store(value, at)
            return largest_number(f, [value, carried])

        carried = [constant(-math.inf, type_)] * SIDE_BY_SIDE
        carried = self._walk(f, full, end, self._walk(f, 0, full, carried, inside), across)
        return fold_lanes(f, largest_number(f, carried), largest_number)

    def _walk(self, f: Function, begin: Index, end: Index, carry: list[Value], step: Step) -> list[Value]:
        """Emit ``step(column, carried)`` for every vector of a row, rotating through the carried values."""
        stride = SIDE_BY_SIDE * self.lanes
        if not isinstance(begin, int) or not isinstance(end, int):
            stop: Index = begin
            if begin == 0:
                stop = f.mul(f.divmod(end, stride)[0], stride)
                with f.loop(begin, stop, stride, carry=carry) as loop:
                    positions = [f.add(loop.index, k * self.lanes) for k in range(SIDE_BY_SIDE)]
                    loop.carry([step(position, each) for position, each in zip(positions, loop.carried, strict=True)])
                carry = loop.results
            with f.loop(stop, end, self.lanes, carry=carry[:1]) as loop:
                loop.carry([step(loop.index, loop.carried[0])])
            return [*loop.results, *carry[1:]]
        iterations = (end - begin) // stride if end - begin > MOST_UNROLLED_VECTORS * self.lanes else 0
        if iterations:
            with f.loop(begin, begin + iterations * stride, stride, carry=carry) as loop:
                positions = [f.add(loop.index, k * self.lanes) for k in range(SIDE_BY_SIDE)]
                loop.carry([step(position, each) for position, each in zip(positions, loop.carried, strict=True)])
            carry = loop.results
        carried = list(carry)
        for k, column in enumerate(range(begin + iterations * stride, end, self.lanes)):
            carried[k % SIDE_BY_SIDE] = step(column, carried[k % SIDE_BY_SIDE])
        return carried

    def _below(self, f: Function, count: Index) -> Value:
        """Emit the mask of the first ``count`` lanes; the count may be negative or exceed the lanes."""
        lanes = self.lanes
        if lanes == 1:
            return f.less(0, count)
        type_ = vector(lanes, "i64")
        numbers = Value("<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">", type_)
        counts = constant(count, type_) if isinstance(count, int) else f.splat(count, lanes)
        return f.compare("slt", numbers, counts)

    def _masked(self, f: Function, value: Value, masks: Sequence[Value], column: Index, within: Value | None) -> Value:
        scale = None if self.is_scaled_late or self.scale == 1 else constant(self.scale, value.type)
        for mask, base in zip(self.masks, masks, strict=True):
            step = mask.matrix.column
            at = f.at(base, f.mul(column, step), mask.size)
            if mask.kind == "add":
                number = self._loaded(f, at, "float", step, within)
                value = f.fadd(value, number) if scale is None else f.fma(value, scale, number)
                scale = None
                continue
            byte = self._loaded(f, at, "i8", step, within)
            value, scale = value if scale is None else f.fmul(value, scale), None
            value = mask.applied(f, value, byte)
        return value if scale is None else f.fmul(value, scale)

    def _loaded(self, f: Function, at: Value, element: str, step: int, within: Value | None) -> Value:
        """Load a vector of a mask; with ``within`` only lanes that have a score are read."""
        size, type_ = (4 if element == "float" else 1), vector(self.lanes, element)
        if step == 0:
            return f.splat(f.load(element, at, size), self.lanes)
        if within is None:
            return f.load(type_, at, size)
        arguments = [at, Value(str(size), "i32"), within, constant(0, type_)]
        return f.call(f"llvm.masked.load.{mangled(type_)}.p0", arguments, type_)

    def _update(self, f: Function, state: Value, highest: Value) -> None:
        """Update the running maximum and the factor that rescales earlier sums."""
        if self.has_blocks:
            before = f.load("float", state)
            highest = largest_number(f, [before, highest])
            f.store(self._weight(f, before, self._finite(f, highest)), f.at(state, 2))
        f.store(highest, state)

    def _finite(self, f: Function, highest: Value) -> Value:
        """Emit the maximum to subtract; 0 where all scores are -inf, so that exponentials are 0."""
        nothing = constant(-math.inf, highest.type)
        return f.select(f.compare("oeq", highest, nothing), constant(0.0, highest.type), highest)

    def _weight(self, f: Function, score: Value, highest: Value) -> Value:
        """Emit the exponential of a score minus the maximum."""
        return exp2_down(f, f.fmul(f.fsub(score, highest), constant(self.doublings, score.type)))

    def _exponentials(self, f: Function, line: Value, highest: Value, end: Index) -> Value:
        """Replace the scores of a row by their exponentials and emit their sum.

        Narrow ones lie where scores were that have been read.
        """
        type_ = vector(self.lanes)
        largest = f.splat(self._finite(f, highest), self.lanes)

        def step(column: Index, carried: Value) -> Value:
            at = f.at(line, column)
            value = self._weight(f, f.load(type_, at), largest)
            if self.words == "float":
                f.store(value, at)
            else:
                self.store_rounded(f, value, f.at(line, column, 2))
            return f.fadd(carried, value)

        sums = self._walk(f, 0, end, [constant(0.0, type_)] * SIDE_BY_SIDE, step)
        return fold_lanes(f, total(f, sums), total)

    def store_rounded(self, f: Function, value: Value, at: Value) -> None:
        """Store a vector of floats as bfloat16."""
        f.store(half.to_half(f, value, half.FACTOR, self.host), at, 2)

    def _sum(self, f: Function, state: Value, sum_: Value) -> None:
        if self.has_blocks:
            before = f.fmul(f.load("float", f.at(state, 1)), f.load("float", f.at(state, 2)))
            f.store(f.fadd(before, sum_), f.at(state, 1))
        else:
            f.store(self.share(f, sum_), f.at(state, 2))
