"""Tensors of the lists of a graph, by name, so that operators on lists read the tensors directly.

If a position is known only in a run, or the operator that made a list is not supported, the reference runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from engine.compiler.inlining.splice import Splice
from engine.compiler.inlining.trip_counts import Budget
from engine.compiler.inlining.unrolling import cut
from engine.errors import EngineError, RunCancelledError
from engine.graph import RuntimeOperator
from engine.layers.creation.container import ListConstruct
from engine.layers.onnx.control.sequence import (
    ConcatFromSequence,
    SequenceAt,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.tensor import TensorSpec, known_value

MOST_ITEMS: Final = 1024
"""Most items of a tracked list: one that grows in a loop is written once an iteration."""


class Sequences:
    """Lists of a graph whose source is being rewritten.

    Args:
        values: known spec or value of every operand of the graph.
    """

    def __init__(self, splice: Splice, values: Mapping[str, Any], budget: Budget) -> None:
        self._splice, self._values, self._budget = splice, values, budget
        self._items: dict[str, Sequence[str]] = {}

    def items(self, operand: str) -> Sequence[str] | None:
        """Return the names of the items of a list; None if they are unknown."""
        (name,) = self._splice.names([operand])
        return self._items.get(name)

    def record(self, operand: str, items: Sequence[str]) -> None:
        """Record the items of a list."""
        if len(items) <= MOST_ITEMS:
            self._items[operand] = items

    def follow(self, op: RuntimeOperator) -> None:
        """Record the list that an unchanged operator makes, if any."""
        found: Any = None
        if isinstance(op.definition, ListConstruct):
            found = self._splice.names(each.name for each in op.inputs)
        elif isinstance(op.definition, (SequenceInsert, SequenceErase)):
            found = self._arranged(op)
        if isinstance(found, list):
            self.record(op.outputs[0].name, found)

    def replace_by_items(self, op: RuntimeOperator) -> object:
        """Replace an operator on a list by its result; return the decision, or None if there is none."""
        layer = op.definition
        if isinstance(layer, SplitToSequence):
            return self._split(op, layer)
        items = self.items(op.inputs[0].name) if op.inputs else None
        if items is None:
            return None
        if isinstance(layer, SequenceAt):
            return self._at(op)
        if isinstance(layer, SequenceLength):
            self._splice.replace_operand(op.outputs[0].name, self._splice.constant(np.asarray(len(items), INT64)))
            return len(items)
        if isinstance(layer, ConcatFromSequence) and items and self._budget.add(1):
            type = "torch.stack" if layer.new_axis else "torch.cat"
            self._splice.make(type, op.name, items, op.outputs[0].name, params={"dim": layer.axis})
            return tuple(items)
        return None

    def _at(self, op: RuntimeOperator) -> object:
        found = self._arranged(op)
        if not isinstance(found, str):
            return None
        self._splice.replace_operand(op.outputs[0].name, found)
        return found

    def _arranged(self, op: RuntimeOperator) -> Any:
        """Return what an operator makes of a list of names, if its position is known."""
        assert op.layer is not None
        arguments: list[Any] = []
        for k, source in enumerate(op.layer.positional):
            name = "" if source.index is None else op.inputs[source.index].name
            if k == 0:
                arguments.append(self.items(name))
            elif k == 1 and isinstance(op.definition, SequenceInsert):
                arguments.extend(self._splice.names([name]))
            else:
                arguments.append(known_value(self._values[name]) if name else source.constant)
        if not arguments or arguments[0] is None:
            return None
        try:
            return op.layer.layer.infer(list(arguments[0]), *arguments[1:])
        except RunCancelledError:
            raise
        except EngineError:  # a run reports the error
            return None

    def _split(self, op: RuntimeOperator, layer: SplitToSequence) -> object:
        """Replace a split by slices, one an item."""
        name, (output,) = op.inputs[0].name, op.outputs
        parts, whole = self._values[output.name], self._values[name]
        if not isinstance(parts, list) or not isinstance(whole, TensorSpec) or len(parts) > MOST_ITEMS:
            return None
        axis, rank = checked_axis(layer.axis, whole.rank), whole.rank
        if whole.shape[axis] is None or not self._budget.add(len(parts) + 1):
            return None
        ends, end, names = [], 0, []
        for part in parts:
            start, end = end, end + (1 if part.rank < rank else part.shape[axis])
            ends.append(end)
            (operand,) = self._splice.names([name])
            names.append(cut(self._splice, op.name, operand, axis, start, None if part.rank < rank else end))
        self._splice.make("prim::ListConstruct", op.name, names, output.name)
        self.record(output.name, names)
        return (len(parts), *ends, parts[0].rank < rank if parts else False)
