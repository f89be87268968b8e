"""Embedding bags that PyTorch's newer exporter writes as a loop inserting one pooled row an iteration into a sequence.

The body is evaluated with symbols instead of values: ``("turn", 1)`` for the iteration number plus 1, ``("bound", 0)``
for the offset there, ``"rows"`` for the rows between two offsets, ``("pooled", "sum")`` for their sum,
``("outer", name)`` for a value outside the loop, ``("size", name)`` for the length of such a vector, ``("number", 3)``
for a constant. If the inserted row is a pooled range of rows, the whole loop becomes one ``EmbeddingBags``. The loop is
kept if the body uses an operator that has no symbol here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

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
    "aten::_shape_as_tensor": ("input",),
    "Tensor.slice": ("input", "starts", "ends"),
}
_LOOP: Final = {"states": 2, "has_count": False, "has_condition": True}
_ADDED: Final = re.compile(r"add\(@0,(\d+)\)")
_SUBTRACTED: Final = re.compile(r"sub\((\d+),@0\)")
_Symbol: TypeAlias = Any
_START, _END = ("bound", 0), ("bound", 1)


class _OtherLoopError(Exception):
    """Loop that does not compute embedding bags."""


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
        if first is None or first.type != "prim::ListConstruct" or first.inputs or not _is_one(turn.constant, 0):
            raise _OtherLoopError
        self._turns = self._count()
        if not self._begins(condition):
            raise _OtherLoopError

    def mode(self) -> str:
        """Return how rows are pooled.

        Raises:
            _OtherLoopError: the loop does not compute bags.
        """
        states: list[_Symbol] = [("turn", 0), ("turn", 0)]
        states[self._place] = "sequence"
        captured = [self._outer(name) for name in self._loop.inputs[3:]]
        row: list[str] = []
        goes_on, *after = self._results(self._body, ["number", "goes on", *states, *captured], row)
        wanted: list[_Symbol] = [("turn", 1), ("turn", 1)]
        wanted[self._place] = "sequence with the row"
        if goes_on != "goes on" or after != wanted or len(row) != 1:
            raise _OtherLoopError
        return row[0]

    def _count(self) -> _Symbol:
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
        if found[0] not in ("number", "size") or found[0] == "number" and found[1] < 1:
            raise _OtherLoopError
        return found

    def _begins(self, condition: Value) -> bool:
        """Return whether the first iteration runs whenever there is a bag."""
        if condition.constant is not None:
            return bool(self._turns[0] == "number" and condition.constant.all())
        maker = self._builder.maker(condition)
        if maker is None or maker.type != "torch.lt":
            return False
        first, count = maker.inputs
        return _is_one(self._builder.value(first).constant, 0) and bool(self._outer(count) == self._turns)

    def _outer(self, name: str) -> _Symbol:
        """Return the symbol of a value outside the loop."""
        maker = self._builder.maker(self._builder.value(name))
        if maker is not None and maker.type == "torch.prod" and not maker.params:  # ONNX's Size
            maker = self._builder.maker(self._builder.value(maker.inputs[0]))
        if maker is not None and maker.type == "aten::_shape_as_tensor" and not maker.params:
            return self._size(maker.inputs[0])
        return "outer", name

    def _size(self, name: str) -> _Symbol:
        """Return the symbol of the length of a vector; reshaping a vector to a vector keeps its length."""
        vector = self._builder.value(name)
        maker = self._builder.maker(vector)
        while vector.rank == 1 and maker is not None and maker.type == "Tensor.reshape":
            before = self._builder.value(maker.inputs[0])
            if before.rank != 1:
                break
            vector, maker = before, self._builder.maker(before)
        return ("size", vector.name) if vector.rank == 1 else ("outer", name)

    def _results(self, graph: Graph, given: Sequence[_Symbol], row: list[str]) -> list[_Symbol]:
        """Evaluate a graph and append how the rows it inserts into the sequence are pooled to ``row``."""
        handed, known, results = iter(given), dict[str, _Symbol](), list[_Symbol]()
        for op in graph.operators:
            if op.type == "pnnx.Input":
                known[op.outputs[0]] = next(handed)
            elif op.type == "pnnx.Output":
                results.append(known[op.inputs[0]])
            elif op.type == "pnnx.Attribute":
                known[op.outputs[0]] = self._constant(op.attributes["data"].data)
            elif op.type == "SequenceInsert" and not row and [known[name] for name in op.inputs[:1]] == ["sequence"]:
                row.append(self._pooled(op, known))
                known[op.outputs[0]] = "sequence with the row"
            else:
                known[op.outputs[0]] = self._evaluated(op, [known[name] for name in op.inputs])
        return results

    def _pooled(self, op: Operator, known: dict[str, _Symbol]) -> str:
        kind, mode = known[op.inputs[1]]
        if len(op.inputs) != 2 or not _is_in_order(op) or kind != "pooled":
            raise _OtherLoopError
        return str(mode)

    def _constant(self, data: Array) -> _Symbol:
        if data.size == 1:
            return "number", float(data.reshape(-1)[0])
        if data.ndim == 2 and data.shape[0] == 1 and not data.any():
            return "zeros"
        if data.ndim == 1 and self._is_offsets(constant(data)):
            return "offsets"
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
        if self._turns[0] == "number":
            return offsets.tensor is not None and offsets.tensor.shape == (self._turns[1] + 1,)
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
        if not _is_in_order(op):
            raise _OtherLoopError
        params = {key: value for key, value in op.params.items() if key != "allow_empty"}
        last = ("number", self._turns[1] - 1) if self._turns[0] == "number" else "last turn"
        match (op.type, *operands):
            case ("torch.sum" | "torch.mean" | "torch.amax", "rows") if params == _ROW:
                return "pooled", _POOLS[op.type]
            case ("Tensor.reshape", ("turn", _)) if params == {"shape": (1,)}:
                return operands[0]
            case ("Tensor.to", "length"):
                return "length"
            case ("pnnx.Expression", *_):
                return self._expression(str(op.params["expr"]), operands)
            case ("aten::_shape_as_tensor", ("outer", name)) if params in ({}, {"start": 0, "end": 1}):
                return self._size(name)
            case ("Tensor.slice", *_) if params.get("dims") in ((0,), FIRST_AXES):
                ends: Any = params.get("ends")
                return self._slice(*operands, *([] if ends is None else [("number", ends[0])]))
            case ("torch.eq", *_) if operands in ([_START, _END], [_END, _START]):
                return "is empty"
            case ("torch.eq", ("turn", 0), place) if place == last:
                return "is last"
            case ("torch.gt", "length", ("number", 0)):
                return "is filled"
            case ("torch.lt", ("turn", 1), count) if count == self._turns:
                return "goes on"
            case ("onnx.If", condition, *captured):
                return self._branch(op, condition, captured)
        raise _OtherLoopError

    def _expression(self, text: str, operands: list[_Symbol]) -> _Symbol:
        added, whole = _ADDED.fullmatch(text), _SUBTRACTED.fullmatch(text)
        match (text, *operands):
            case ("sub(@0,1)", count) if count == self._turns:
                return "last turn"
            case ("div(@0,@1)", ("pooled", "sum"), "length"):
                return "pooled", "mean"
            case ("sub(@0,@1)", end, ("bound", 0)) if self._is_end(end):
                return "length"
            case (_, ("turn", more)) if added:
                return "turn", more + int(added[1])
            case (_, ("bound", 0)) if whole and self._is_end(("number", float(whole[1]))):
                return "length"
        raise _OtherLoopError

    def _slice(self, whole: _Symbol, first: _Symbol, last: _Symbol) -> _Symbol:
        if first[0] == "turn" and last == ("turn", first[1] + 1):
            is_met = whole == "offsets"
            if whole[0] == "outer":
                is_met = self._is_offsets(self._builder.value(whole[1]))
            if is_met and first[1] in (0, 1):
                return "bound", first[1]
        elif first == _START and self._is_end(last) and whole[0] == "outer":
            rows = self._builder.value(whole[1])
            if self.rows is None or self.rows.name == rows.name:
                self.rows = rows
                return "rows"
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
                return bool(symbol[0] == "size" and self._outer(parts[-1].name) == symbol)
        return symbol[0] == "number" and _is_one(last, int(symbol[1]))

    def _branch(self, op: Operator, condition: _Symbol, captured: list[_Symbol]) -> _Symbol:
        """Return the symbol of both branches: an empty bag is zeros, and only the last iteration may know its end."""
        then, other = self._branches(op, captured, is_last=condition == "is last")
        match condition, then, other:
            case "is empty", "zeros", _:
                return other
            case "is filled", ("pooled", "mean"), ("pooled", "sum"):
                return then  # sum and mean of an empty bag are both zeros
            case "is last", _, _ if then == other:
                return then
        raise _OtherLoopError

    def _branches(self, op: Operator, captured: list[_Symbol], *, is_last: bool) -> Iterator[_Symbol]:
        for name in ("then_branch", "else_branch"):
            graph = op.subgraphs[name]
            count = sum(each.type == "pnnx.Input" for each in graph.operators)
            before, self._at_last = self._at_last, self._at_last or (is_last and name == "then_branch")
            (result,) = self._results(graph, captured[:count], [""])
            self._at_last, captured = before, captured[count:]
            yield result


def _is_in_order(op: Operator) -> bool:
    """Return whether the operands are the operator's first ones, in order."""
    return not any(op.labels) or tuple(op.labels) == _NAMES.get(op.type, ())[: len(op.inputs)]


def _is_one(array: Array | None, value: int) -> bool:
    return array is not None and array.size == 1 and int(array.reshape(-1)[0]) == value
