"""Translation of a built graph to ONNX nodes, operator by operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, UnsupportedOperatorError
from engine.graph import RuntimeOperand, RuntimeOperator
from engine.layers.definition.bound import BoundLayer, Source
from engine.layers.definition.composite import UnknownSizeError
from engine.layers.definition.known import SHAPE_PARAMETERS, is_repeatable
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import unfolded
from engine.layers.definition.parameter import coerce_named, holds_list
from engine.onnx_writing.registry import rule_of
from engine.onnx_writing.value import Operand, Value, as_parameter, is_static
from engine.onnx_writing.writer import Writer, described_by, with_fields
from engine.tensor import UNKNOWN, TensorSpec, is_known, scalar_tensor

_SHOWN: Final = 10
"""Refused operators that a message lists."""


class GraphWriter:
    """Writer of the operators of a built graph or subgraph.

    Args:
        to: receives the nodes.
        names: operand -> name of the output of the graph.
        round_results: as in ``save_onnx``.

    Attributes:
        values: operand -> its value in the ONNX graph.
    """

    def __init__(self, to: Writer, names: dict[str, str] | None = None, *, round_results: bool = False) -> None:
        self._to = to
        self._names = names or {}
        self._round_results = round_results
        self._refused: list[str] = []
        self._written: set[str] = set()
        self._rounded: dict[str, RuntimeOperand] = {}
        self.values: dict[str, Operand] = {}

    def write(self, operators: Sequence[RuntimeOperator]) -> None:
        """Add the nodes of all operators.

        Raises:
            UnsupportedOperatorError: every operator that ONNX cannot express, with the reason.
        """
        self._write_known(operators)
        if self._refused:
            shown = "; ".join(self._refused[:_SHOWN])
            more = f"; and {len(self._refused) - _SHOWN} more" if len(self._refused) > _SHOWN else ""
            count = f"{len(self._refused)} operator{'s' if len(self._refused) > 1 else ''}"
            raise UnsupportedOperatorError(f"{count} cannot be written as ONNX: {shown}{more}")

    def _write_known(self, operators: Sequence[RuntimeOperator]) -> None:
        """Write the operators whose operands are known, each once."""
        for op in operators:
            is_done = op.type in ("pnnx.Input", "pnnx.Output") or op.name in self._written
            if not is_done and all(each.name in self.values for each in op.inputs):
                self._written.add(op.name)
                self._write(op)

    def _write(self, op: RuntimeOperator) -> None:
        self._to.scope = op.name
        try:
            results = self._known(op) or self._computed(op)
        except (EngineError, UnknownSizeError) as error:
            self._refused.append(f"{op.where}: {error}")
            return
        for operand, result in zip(op.outputs, results, strict=True):
            self.values[operand.name] = self._named(operand, result)
            if self._round_results:
                self._round(operand)

    def _round(self, operand: RuntimeOperand) -> None:
        """Write the operators that round an operand to bytes and back, so that others can read that.

        A runtime computes a layer with bytes if all that it reads and makes is rounded. Where a file rounds an operand
        and uses that nowhere, readers of the operand shall read it rounded, and their other operands, too.
        """
        for first in operand.consumers:
            if first.type != "QuantizeLinear" or first.inputs[0] is not operand:
                continue
            for last in first.outputs[0].consumers:
                if last.type == "DequantizeLinear":
                    makers = [each.producer for op in (first, last) for each in op.inputs[1:]]
                    self._write_known([*(each for each in makers if each is not None), first, last])
                    if last.outputs[0].name in self.values:
                        self._rounded[operand.name] = last.outputs[0]

    def _inputs(self, op: RuntimeOperator) -> list[Operand]:
        """Return the values that an operator reads, rounded if it is to be computed with bytes."""
        rounded = [self._rounded.get(each.name) for each in op.inputs]
        is_plain = op.type == "QuantizeLinear" or all(each is None or each.consumers for each in rounded)
        pairs = zip(op.inputs, rounded, strict=True)
        return [self.values[each.name if other is None or is_plain else other.name] for each, other in pairs]

    def _named(self, operand: RuntimeOperand, result: Operand) -> Operand:
        """Return a result with the shape that the graph knows, under the operand's name."""
        result = described_by(result, operand.value)
        if isinstance(result, Value) and result.constant is None:
            self._to.rename(result, self._names.get(operand.name), operand.name)
        return result

    def _known(self, op: RuntimeOperator) -> list[Operand] | None:
        """Return the outputs of an operator whose values are known before a run; None if one is not."""
        if op.definition is None or not is_repeatable(op.definition):
            return None
        rule = rule_of(type(op.definition))
        if rule is not None and not rule.folds and op.definition.does_arithmetic:  # weights stay quantised
            return None
        values = [_constant_of(each.value) for each in op.outputs]
        if any(each is UNKNOWN for each in values):
            return None
        return list(self._to.stored_arrays(values))

    def _computed(self, op: RuntimeOperator) -> list[Operand]:
        assert op.layer is not None  # only inputs and outputs have none
        bound = unfolded(op.layer)
        inputs = self._inputs(op)
        layer = self._layer(bound, inputs)
        names = [name for name in bound.signature.operands if name in bound.signature.leading]
        names += [f"operand{k}" for k in range(len(bound.positional) - len(names))]
        given = [
            self._argument(source, inputs, f"{op.name}.{name}")
            for source, name in zip(bound.positional, names, strict=False)
        ]
        named = {key: self._argument(each, inputs, f"{op.name}.{key}") for key, each in bound.keywords.items()}
        result = self._to.apply(layer, *given, **named)
        return [result] if len(op.outputs) == 1 else list(result)

    def _argument(self, source: Source, inputs: Sequence[Operand], name: str) -> Operand:
        if source.index is None:
            if isinstance(source.constant, np.ndarray):
                return self._to.store(source.constant, name)
            return _as_tensors(self._to, source.constant) if source.is_tensor else source.constant
        value = inputs[source.index]
        return _as_tensors(self._to, value) if source.is_tensor else value

    def _layer(self, bound: BoundLayer, inputs: Sequence[Operand]) -> Layer:
        """Return the layer with the parameters that come as operands, which may be tensors."""
        if not bound.dynamic:
            return bound.layer
        fields, hints = {}, bound.signature.fields
        for name, index in bound.dynamic.items():
            value = inputs[index]
            if isinstance(value, Value) and name in SHAPE_PARAMETERS and value.sizes is not None and value.rank > 1:
                value = [self._to.size(value, axis) for axis in range(value.rank)]
            if is_static(value):
                fields[name] = coerce_named(name, as_parameter(value), hints[name])
            elif isinstance(value, Value) and holds_list(hints[name]) and value.sizes == ():
                fields[name] = (value,)
            else:
                fields[name] = tuple(value) if isinstance(value, list) else value
        if all(map(is_static, fields.values())):
            return dataclasses.replace(bound.layer, **fields)
        return with_fields(bound.layer, fields)


def _constant_of(value: object) -> Any:
    """Return what is known of an operand: a Python value or an array; UNKNOWN if a run decides it."""
    if isinstance(value, TensorSpec):
        return UNKNOWN if value.value is None else value.value
    if isinstance(value, list | tuple):
        items = [_constant_of(each) for each in value]
        return UNKNOWN if any(each is UNKNOWN for each in items) else type(value)(items)
    return value if is_known(value) else UNKNOWN


def _as_tensors(to: Writer, value: Operand) -> Operand:
    """Return numbers as PyTorch's tensors, those of a list one by one."""
    if isinstance(value, bool | int | float):
        return to.store(scalar_tensor(value))
    if isinstance(value, Value) and value.is_number:
        return dataclasses.replace(value, is_number=False)
    return type(value)(_as_tensors(to, each) for each in value) if isinstance(value, list | tuple) else value
