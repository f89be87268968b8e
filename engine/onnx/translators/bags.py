"""Embedding bags that PyTorch's exporter writes as a loop over slices of the indices.

Iteration k computes the sum or mean of ``weight[indices[a[k] : b[k]]]``, where ``b`` is ``a[1:]``. Other
loops stay loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.onnx.translation.builder import Builder
from engine.onnx.translation.node import Node, Part
from engine.onnx.translation.value import Axis, Value, constant
from engine.pnnx.graph import Operator

_POOLS: Final = {"torch.sum": "sum", "torch.mean": "mean"}
_FLOATS: Final = ("float32", "float64")
_BY_ROWS: Final = {"dim": 0, "counts_back": True}
_TO_THE_END: Final = 2**31 - 1
# The body's first inputs: iteration number and condition.
_HANDED: Final = 2


def embedding_bags(node: Node, count: Value | None, condition: Value | None, body: Part) -> Value | None:
    """Return EmbeddingBags in place of a loop without states; None if the loop computes something else."""
    is_endless = condition is None or _is_true(condition.constant)
    found = _Body(body).bags()
    if count is None or not is_endless or found is None:
        return None
    a, b = found.first, found.last
    if not _is_rest(node.builder, a, b) or not _is_length(count, b):
        return None
    specs = [each.tensor for each in (found.weight, found.indices, a)]
    if any(spec is None for spec in specs) or [spec.rank for spec in specs if spec] != [2, 1, 1]:
        return None
    if found.weight.dtype is None or found.weight.dtype.name not in _FLOATS:
        return None
    scales = [] if found.scales is None else [found.scales]
    if any(each.dtype != found.weight.dtype or each.rank != 1 for each in scales):
        return None
    return node.make("onnx.EmbeddingBags", found.weight, found.indices, a, *scales, mode=found.mode)


@dataclass(frozen=True, slots=True)
class _Bags:
    """Operands of the bags: iteration k pools the rows of ``indices[first[k] : last[k]]``."""

    weight: Value
    indices: Value
    first: Value
    last: Value
    scales: Value | None
    mode: str


class _Body:
    """Body of a loop, matched backwards from its results."""

    def __init__(self, body: Part) -> None:
        operators = body.graph.operators
        self._makers = {name: op for op in operators for name in op.outputs}
        inputs = [op.outputs[0] for op in operators if op.type == "pnnx.Input"]
        self._handed = inputs[:_HANDED]
        self._captured = dict(zip(inputs[_HANDED:], body.captured, strict=False))
        self._is_handed_two = len(inputs) == _HANDED + len(body.captured)
        self._results = [op.inputs[0] for op in operators if op.type == "pnnx.Output"]

    def bags(self) -> _Bags | None:
        """Return the operands of the bags; None if an iteration computes something else."""
        if not self._is_handed_two or len(self._results) != 2 or not self._goes_on(self._results[0]):
            return None
        pool = self._makers[self._results[1]]
        if pool.type not in _POOLS or pool.params != {"dim": (0,), "keepdim": False}:
            return None
        rows, scales = self._makers[pool.inputs[0]], None
        if rows.type == "pnnx.Expression" and rows.params.get("expr") == "mul(@0,@1)":
            scale, rows = self._makers[rows.inputs[1]], self._makers[rows.inputs[0]]
            if scale.type != "torch.unsqueeze" or scale.params != {"dim": 1}:
                return None
            scales = self._stretch(scale.inputs[0])
            if scales is None:
                return None
        if rows.type != "torch.index_select" or rows.params != _BY_ROWS:
            return None
        weight, stretch = self._value(rows.inputs[0]), self._stretch(rows.inputs[1])
        if weight is None or stretch is None or (scales is not None and scales[1:] != stretch[1:]):
            return None
        return _Bags(weight, *stretch, scales and scales[0], _POOLS[pool.type])

    def _goes_on(self, name: str) -> bool:
        """Return whether the condition stays true."""
        maker = self._makers[name]
        return name == self._handed[1] or (maker.type == "pnnx.Attribute" and _is_true(maker.attributes["data"].data))

    def _stretch(self, name: str) -> tuple[Value, Value, Value] | None:
        """Return the sliced vector and the vectors of its bounds; None if it is no such slice."""
        op = self._makers[name]
        if op.type != "Tensor.slice" or op.params != {"dims": (0,)} or op.labels != ("input", "starts", "ends"):
            return None
        whole, first, last = self._value(op.inputs[0]), self._bound(op.inputs[1]), self._bound(op.inputs[2])
        return None if whole is None or first is None or last is None else (whole, first, last)

    def _bound(self, name: str) -> Value | None:
        """Return the vector whose element at the iteration number is the bound."""
        lifted = self._makers[name]
        if lifted.type != "torch.unsqueeze" or lifted.params != {"dim": 0}:
            return None
        element = self._makers[lifted.inputs[0]]
        is_selected = element.type == "torch.index_select" and element.params == _BY_ROWS
        if not is_selected or element.inputs[1] != self._handed[0]:
            return None
        return self._value(element.inputs[0])

    def _value(self, name: str) -> Value | None:
        """Return a captured or constant value; None if the body computes it."""
        op = self._makers[name]
        if op.type == "pnnx.Attribute":
            return constant(op.attributes["data"].data)
        return self._captured.get(name)


def _is_rest(builder: Builder, a: Value, b: Value) -> bool:
    """Return whether ``b`` is ``a[1:]``."""
    if a.constant is not None and b.constant is not None:
        return a.constant.ndim == 1 and np.array_equal(a.constant[1:], b.constant)
    maker: Operator | None = builder.maker(b)
    if maker is None or a.rank != 1 or maker.type != "Tensor.slice" or maker.inputs != (a.name,):
        return False
    wanted = {"dim": 0, "start": 1, "step": 1}
    end = maker.params.get("end")
    length = a.tensor.shape[0] if a.tensor is not None else None
    is_whole = isinstance(end, int) and (end >= _TO_THE_END or (length is not None and end >= length))
    return is_whole and {key: value for key, value in maker.params.items() if key != "end"} == wanted


def _is_length(count: Value, b: Value) -> bool:
    """Return whether the trip count is the length of a vector."""
    length = b.tensor.shape[0] if b.tensor is not None and b.rank == 1 else None
    if count.constant is not None:
        return count.constant.size == 1 and length is not None and int(count.constant.reshape(())) == length
    if count.sizes is None or len(count.sizes) != 1:
        return False
    (size,) = count.sizes
    return isinstance(size, Axis) and size.axis == 0 and size.value.name == b.name != ""


def _is_true(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1 and bool(value.any())
