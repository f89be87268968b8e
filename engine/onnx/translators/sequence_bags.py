"""Embedding bags that PyTorch's newer exporter writes as a loop inserting one pooled row an iteration into a sequence.

The body is evaluated with symbols instead of values: ``k + 1``, ``offsets[k]``, the rows between two offsets, their
sum. If the inserted row is a pooled range of rows, the whole loop becomes one ``EmbeddingBags``. The loop is kept if
the body uses an operator that has no symbol here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.layers.indexing.slicing import FIRST_AXES
from engine.onnx.translation.builder import Builder
from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value, constant
from engine.pnnx.graph import Graph, Operator
from engine.tensor import Array

_POOLS: Final = {"torch.sum": "sum", "torch.mean": "mean", "torch.amax": "max"}
_ROW: Final = {"dim": (0,), "keepdim": True}
_NAMES: Final = {
    "torch.index_select": ("input", "index"),
    "SequenceInsert": ("sequence", "item"),
    "Shape": ("input",),
    "Tensor.slice": ("input", "starts", "ends"),
}
_LOOP: Final = {"states": 2, "has_count": False, "has_condition": True}
_ADDED: Final = re.compile(r"add\(@0,(\d+)\)")
_SUBTRACTED: Final = re.compile(r"sub\((\d+),@0\)")


class _OtherLoopError(Exception):
    """Loop that does not compute embedding bags."""


@dataclass(frozen=True, slots=True)
class _Outer:
    """Name of a value outside the loop."""

    name: str


@dataclass(frozen=True, slots=True)
class _Number:
    """Constant with one element."""

    value: float


@dataclass(frozen=True, slots=True)
class _Size:
    """Length of a vector outside the loop."""

    name: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """Iteration number plus ``more``."""

    more: int


@dataclass(frozen=True, slots=True)
class _Bound:
    """Offset at the iteration number plus ``more``."""

    more: int


@dataclass(frozen=True, slots=True)
class _Fact:
    """Symbol without fields: the sequence, the offsets, zeros, the bag's length, its rows, or a condition."""

    kind: str


@dataclass(frozen=True, slots=True)
class _Pooled:
    """Pooled rows of the bag."""

    mode: str


_Symbol = _Outer | _Number | _Size | _Turn | _Bound | _Fact | _Pooled
_START, _END = _Bound(0), _Bound(1)
_SEQUENCE, _INSERTED = _Fact("sequence"), _Fact("sequence with the row")
_ZEROS, _LENGTH, _ROWS, _OFFSETS = (_Fact(each) for each in ("zeros", "length", "rows", "offsets"))
_LAST_TURN = _Fact("last turn")
_IS_EMPTY, _IS_FILLED, _IS_LAST, _GOES_ON = (_Fact(each) for each in ("is empty", "is filled", "is last", "goes on"))


def sequence_bags(node: Node, sequence: Value) -> Value | None:
    """Return EmbeddingBags for the rows that a loop inserted into a sequence; None if the loop is no embedding bag."""
    builder = node.builder
    loop = builder.maker(sequence)
    if loop is None or loop.type != "onnx.Loop" or loop.params != _LOOP:
        return None
    try:
        body = _Body(builder, loop, sequence.name)
        mode = body.mode()
    except (_OtherLoopError, LookupError, StopIteration, ValueError, TypeError):  # e.g. fewer operands than a bag
        return None
    return _bags(node, body, mode)


def _bags(node: Node, body: _Body, mode: str) -> Value | None:
    builder = node.builder
    if body.rows is None or body.offsets is None:
        return None
    found = _looked_up(builder, body.rows)
    if found is None:
        return None
    weight, indices, scales = found
    operands = [weight, indices, body.offsets, *([] if scales is None else [scales])]
    specs = [each.tensor for each in operands]
    if any(spec is None for spec in specs) or [spec.rank for spec in specs if spec] != [2, 1, 1, 1][: len(specs)]:
        return None
    if weight.dtype is None or weight.dtype.kind != "f" or (scales is not None and scales.dtype != weight.dtype):
        return None
    return node.make("onnx.EmbeddingBags", *operands, mode=mode)


def _looked_up(builder: Builder, rows: Value) -> tuple[Value, Value, Value | None] | None:
    """Return the table, the indices and the per-row factors from which rows were computed."""
    maker, scales = builder.maker(rows), None
    if maker is not None and maker.type == "pnnx.Expression" and maker.params.get("expr") == "mul(@0,@1)":
        column = builder.value(maker.inputs[1])
        scales = _as_vector(builder, column)
        if scales is None:
            return None
        scales = None if _are_ones(builder, scales) else scales
        maker = builder.maker(builder.value(maker.inputs[0]))
    if maker is None or maker.type != "torch.index_select" or maker.params["dim"] != 0 or not _is_in_order(maker):
        return None
    weight, indices = (builder.value(name) for name in maker.inputs)
    return weight, indices, scales


def _as_vector(builder: Builder, column: Value) -> Value | None:
    """Return a column, (N, 1), as a vector; None if it is not known to be one."""
    if column.constant is not None:
        is_column = column.constant.ndim == 2 and column.constant.shape[1] == 1
        return constant(np.ascontiguousarray(column.constant[:, 0])) if is_column else None
    maker = builder.maker(column)
    is_lifted = maker is not None and maker.type == "torch.unsqueeze" and maker.params == {"dim": 1}
    return builder.value(maker.inputs[0]) if maker is not None and is_lifted else None


def _are_ones(builder: Builder, factors: Value) -> bool:
    maker = builder.maker(factors)
    if maker is not None and maker.type == "Tensor.expand":
        factors = builder.value(maker.inputs[0])
    return factors.constant is not None and bool(np.all(factors.constant == 1))


class _Body:
    """Body of a loop, evaluated with symbols.

    Attributes:
        rows: the value that bags are slices of, once found.
        offsets: the vector of bag boundaries, once found.
    """

    def __init__(self, builder: Builder, loop: Operator, sequence: str) -> None:
        self.rows: Value | None = None
        self.offsets: Value | None = None
        self._builder, self._loop = builder, loop
        self._body = loop.subgraphs["body"]
        self._at_last = False
        condition, *states = (builder.value(name) for name in loop.inputs[:3])
        self._place = loop.outputs.index(sequence)
        begun, turn = states[self._place], states[1 - self._place]
        first = builder.maker(begun)
        if first is None or first.type != "SequenceEmpty" or not _is_one(turn.constant, 0):
            raise _OtherLoopError
        self._turns = self._count()
        if not self._begins(condition):
            raise _OtherLoopError

    def mode(self) -> str:
        """Return how rows are pooled.

        Raises:
            _OtherLoopError: the loop does not compute bags.
        """
        states: list[_Symbol] = [_Turn(0), _Turn(0)]
        states[self._place] = _SEQUENCE
        captured = [self._outer(name) for name in self._loop.inputs[3:]]
        row: list[_Pooled] = []
        goes_on, *after = self._results(self._body, [_Fact("turn"), _GOES_ON, *states, *captured], row)
        wanted: list[_Symbol] = [_Turn(1), _Turn(1)]
        wanted[self._place] = _INSERTED
        if goes_on != _GOES_ON or after != wanted or len(row) != 1:
            raise _OtherLoopError
        return row[0].mode

    def _count(self) -> _Number | _Size:
        """Return the trip count, compared with the next iteration number: a constant or the length of a vector."""
        makers = {name: op for op in self._body.operators for name in op.outputs}
        goes_on = makers[next(op.inputs[0] for op in self._body.operators if op.type == "pnnx.Output")]
        if goes_on.type != "torch.lt":
            raise _OtherLoopError
        limit = makers[goes_on.inputs[1]]
        if limit.type == "pnnx.Attribute":
            found = self._constant(limit.attributes["data"].data)
        else:  # captured: the body's inputs are iteration number, condition, two states, captured values
            handed = [op.outputs[0] for op in self._body.operators if op.type == "pnnx.Input"]
            found = self._outer(self._loop.inputs[3:][handed[4:].index(goes_on.inputs[1])])
        if isinstance(found, _Number) and found.value < 1 or not isinstance(found, _Number | _Size):
            raise _OtherLoopError
        return found

    def _begins(self, condition: Value) -> bool:
        """Return whether the first iteration runs whenever there is a bag."""
        if condition.constant is not None:
            return isinstance(self._turns, _Number) and bool(condition.constant.all())
        maker = self._builder.maker(condition)
        if maker is None or maker.type != "torch.lt":
            return False
        first, count = maker.inputs
        return _is_one(self._builder.value(first).constant, 0) and self._outer(count) == self._turns

    def _outer(self, name: str) -> _Symbol:
        """Return the symbol of a value outside the loop."""
        maker = self._builder.maker(self._builder.value(name))
        if maker is not None and maker.type in ("Size", "Shape") and not maker.params:
            return self._size(maker.inputs[0])
        return _Outer(name)

    def _size(self, name: str) -> _Symbol:
        """Return the symbol of the length of a vector; reshaping a vector to a vector keeps its length."""
        vector = self._builder.value(name)
        maker = self._builder.maker(vector)
        while vector.rank == 1 and maker is not None and maker.type == "Tensor.reshape":
            before = self._builder.value(maker.inputs[0])
            if before.rank != 1:
                break
            vector, maker = before, self._builder.maker(before)
        return _Size(vector.name) if vector.rank == 1 else _Outer(name)

    def _results(self, graph: Graph, given: Sequence[_Symbol], row: list[_Pooled]) -> list[_Symbol]:
        """Evaluate a graph and append the rows it inserts into the sequence to ``row``."""
        handed, known, results = iter(given), dict[str, _Symbol](), list[_Symbol]()
        for op in graph.operators:
            if op.type == "pnnx.Input":
                known[op.outputs[0]] = next(handed)
            elif op.type == "pnnx.Output":
                results.append(known[op.inputs[0]])
            elif op.type == "pnnx.Attribute":
                known[op.outputs[0]] = self._constant(op.attributes["data"].data)
            elif op.type == "SequenceInsert" and not row and [known[name] for name in op.inputs[:1]] == [_SEQUENCE]:
                row.append(self._pooled(op, known))
                known[op.outputs[0]] = _INSERTED
            else:
                known[op.outputs[0]] = self._evaluated(op, [known[name] for name in op.inputs])
        return results

    def _pooled(self, op: Operator, known: dict[str, _Symbol]) -> _Pooled:
        inserted = known[op.inputs[1]]
        if len(op.inputs) != 2 or not _is_in_order(op) or not isinstance(inserted, _Pooled):
            raise _OtherLoopError
        return inserted

    def _constant(self, data: Array) -> _Symbol:
        if data.size == 1:
            return _Number(float(data.reshape(-1)[0]))
        if data.ndim == 2 and data.shape[0] == 1 and not data.any():
            return _ZEROS
        if data.ndim == 1 and self._is_offsets(constant(data)):
            return _OFFSETS
        raise _OtherLoopError

    def _is_offsets(self, vector: Value) -> bool:
        """Return whether a vector holds the bag boundaries: it has one element more than there are iterations."""
        spec = vector.tensor
        if spec is None or spec.rank != 1 or spec.dtype.kind != "i" or not self._has_turns(vector):
            return False
        if self.offsets is None:
            self.offsets = vector
        if vector.constant is None or self.offsets.constant is None:
            return vector.name == self.offsets.name and vector.constant is self.offsets.constant
        return np.array_equal(vector.constant, self.offsets.constant)

    def _has_turns(self, offsets: Value) -> bool:
        if isinstance(self._turns, _Number):
            return offsets.tensor is not None and offsets.tensor.shape == (self._turns.value + 1,)
        parts = self._joined(offsets)
        if len(parts) != 2 or self._size(parts[0].name) != self._turns:
            return False
        return parts[1].tensor is not None and parts[1].tensor.shape == (1,)

    def _joined(self, vector: Value) -> list[Value]:
        """Return the vectors that were concatenated; an empty list if there was no concatenation."""
        maker = self._builder.maker(vector)
        if maker is None or maker.type != "torch.cat" or maker.params != {"dim": 0}:
            return []
        return [self._builder.value(name) for name in maker.inputs]

    def _evaluated(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        params = {key: value for key, value in op.params.items() if key != "allow_empty"}
        if op.type in _POOLS and params == _ROW and operands == [_ROWS]:
            return _Pooled(_POOLS[op.type])
        rule = _RULES.get(op.type)
        if rule is None or not _is_in_order(op):
            raise _OtherLoopError
        return rule(self, op, operands)

    def _reshape(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        if op.params != {"shape": (1,)} or not isinstance(operands[0], _Turn):
            raise _OtherLoopError
        return operands[0]

    def _to(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        if operands != [_LENGTH]:
            raise _OtherLoopError
        return _LENGTH

    def _expression(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        text = str(op.params["expr"])
        if operands == [self._turns] and text == "sub(@0,1)":
            return _LAST_TURN
        if operands == [_Pooled("sum"), _LENGTH] and text == "div(@0,@1)":
            return _Pooled("mean")
        if text == "sub(@0,@1)" and operands[1:] == [_START] and self._is_end(operands[0]):
            return _LENGTH
        if (added := _ADDED.fullmatch(text)) and isinstance(operands[0], _Turn):
            return _Turn(operands[0].more + int(added[1]))
        if (whole := _SUBTRACTED.fullmatch(text)) and operands == [_START] and self._is_end(_Number(float(whole[1]))):
            return _LENGTH
        raise _OtherLoopError

    def _slice(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        ends = op.params.get("ends")
        whole, first, last = [*operands, _Number(ends[0])] if isinstance(ends, tuple) else operands  # type: ignore[arg-type]
        if op.params["dims"] not in ((0,), FIRST_AXES):
            raise _OtherLoopError
        if isinstance(first, _Turn) and last == _Turn(first.more + 1):
            is_met = whole == _OFFSETS
            if isinstance(whole, _Outer):
                is_met = self._is_offsets(self._builder.value(whole.name))
            if is_met and first.more in (0, 1):
                return _Bound(first.more)
        elif first == _START and self._is_end(last) and isinstance(whole, _Outer):
            rows = self._builder.value(whole.name)
            if self.rows is None or self.rows.name == rows.name:
                self.rows = rows
                return _ROWS
        raise _OtherLoopError

    def _is_end(self, symbol: _Symbol) -> bool:
        """Return whether a bag ends there; in the last iteration the last offset, if known, is an end too."""
        if symbol == _END:
            return True
        if not self._at_last or self.offsets is None:
            return False
        last = self.offsets.constant[-1:] if self.offsets.constant is not None else None
        if last is None and (parts := self._joined(self.offsets)):
            last = parts[-1].constant
            if last is None:
                return isinstance(symbol, _Size) and self._outer(parts[-1].name) == symbol
        return isinstance(symbol, _Number) and _is_one(last, int(symbol.value))

    def _shape(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        """Return the symbol of a Shape operator: the length of a vector."""
        (vector,) = operands
        if op.params not in ({}, {"start": 0, "end": 1}) or not isinstance(vector, _Outer):
            raise _OtherLoopError
        return self._size(vector.name)

    def _equal(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        if operands in ([_START, _END], [_END, _START]):
            return _IS_EMPTY
        last = _Number(self._turns.value - 1) if isinstance(self._turns, _Number) else _LAST_TURN
        if operands == [_Turn(0), last]:
            return _IS_LAST
        raise _OtherLoopError

    def _greater(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        if operands != [_LENGTH, _Number(0)]:
            raise _OtherLoopError
        return _IS_FILLED

    def _less(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        if operands != [_Turn(1), self._turns]:
            raise _OtherLoopError
        return _GOES_ON

    def _branch(self, op: Operator, operands: list[_Symbol]) -> _Symbol:
        """Return the symbol of both branches: an empty bag is zeros, and only the last iteration may know its end."""
        condition, *captured = operands
        then, other = self._branches(op, captured, is_last=condition == _IS_LAST)
        if condition == _IS_EMPTY and then == _ZEROS:
            return other
        if condition == _IS_FILLED and (then, other) == (_Pooled("mean"), _Pooled("sum")):
            return then  # sum and mean of an empty bag are both zeros
        if condition == _IS_LAST and then == other:
            return then
        raise _OtherLoopError

    def _branches(self, op: Operator, captured: list[_Symbol], *, is_last: bool) -> Iterator[_Symbol]:
        for name in ("then_branch", "else_branch"):
            graph = op.subgraphs[name]
            count = sum(each.type == "pnnx.Input" for each in graph.operators)
            before, self._at_last = self._at_last, self._at_last or (is_last and name == "then_branch")
            (result,) = self._results(graph, captured[:count], [_Pooled("")])
            self._at_last, captured = before, captured[count:]
            yield result


_RULES: Final[dict[str, Callable[[_Body, Operator, list[_Symbol]], _Symbol]]] = {
    "Tensor.reshape": _Body._reshape,
    "Tensor.to": _Body._to,
    "pnnx.Expression": _Body._expression,
    "Shape": _Body._shape,
    "Tensor.slice": _Body._slice,
    "torch.eq": _Body._equal,
    "torch.gt": _Body._greater,
    "torch.lt": _Body._less,
    "onnx.If": _Body._branch,
}


def _is_in_order(op: Operator) -> bool:
    """Return whether the operands are the operator's first ones, in order."""
    return not any(op.labels) or tuple(op.labels) == _NAMES.get(op.type, ())[: len(op.inputs)]


def _is_one(array: Array | None, value: int) -> bool:
    return array is not None and array.size == 1 and int(array.reshape(-1)[0]) == value
