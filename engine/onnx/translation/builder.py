"""Builder of operators one by one, with inference of their shapes and of constant values."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, ParameterError, RunCancelledError, ShapeError, UnsupportedOperatorError
from engine.layers import Annotations, BoundLayer, bind, registry
from engine.layers.definition.known import is_repeatable
from engine.limits import check_results
from engine.onnx.translation.joining import joined
from engine.onnx.translation.value import Axis, Size, Sum, Value, constant
from engine.pnnx.graph import Attribute, Graph, Operator, Parameter
from engine.tensor import UNKNOWN, Array, TensorSpec

_UNSAFE: Final = re.compile(r"[^\w./:\-]")  # letters of any alphabet are names
_LONGEST: Final = 120
MAX_OPERATORS: Final = 1 << 18
"""Most operators of one graph; bodies of functions count for each use."""


_FOLDED: Final = 1 << 20
"""Most elements computed when a file is read; larger constants are left to the passes."""

_WORK: Final = 1 << 28
"""Most operations for all of them."""

# Quantised constants stay quantised in the graph.
_KEPT: Final = ("QuantizeLinear", "DequantizeLinear", "pnnx.Attribute")


class Builder:
    """Builder of the operators of a graph."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.annotations: dict[str, TensorSpec] = {}
        self.size_names: dict[str, tuple[str | None, ...]] = {}
        self.labels: tuple[str, ...] = ()
        self._names: set[str] = set()
        self._operands: set[str] = set()
        self._reserved: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._work = _WORK
        self._makers: dict[str, Operator] = {}
        self._renamed: dict[str, str] = {}

    def maker(self, value: Value) -> Operator | None:
        """Return the operator that makes a value."""
        return self._makers.get(value.name)

    def value(self, name: str) -> Value:
        """Return the value of an operand."""
        maker = self._makers.get(name)
        if maker is not None and maker.type == "pnnx.Attribute":
            found = constant(maker.attributes["data"].data)
            found.name = name
            return found
        return Value(name, self.annotations.get(name, UNKNOWN))

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names, which a pair can write, for the inputs of these names."""
        self._reserved.update(name for name in names if _safe(name) == name)

    def input(self, name: str, spec: TensorSpec | None) -> Value:
        """Add an input of the graph; return its value."""
        operand = self.operand_name(name)
        index = sum(op.type == "pnnx.Input" for op in self.operators)
        self.operators.append(Operator("pnnx.Input", self.operator_name(f"pnnx_input_{index}"), (), (operand,)))
        if spec is not None:
            self.annotations[operand] = spec
        return Value(operand, UNKNOWN if spec is None else spec)

    def output(self, value: Value, name: str = "") -> Value:
        """Add an output of the graph.

        Args:
            name: its name in the file, and for callers.

        Returns:
            The value, or a copy with this name if the value has another name that counts.
        """
        value = self._nameable(value, name) if name else value
        index = sum(op.type == "pnnx.Output" for op in self.operators)
        operator = self.operator_name(f"pnnx_output_{index}")
        self.operators.append(Operator("pnnx.Output", operator, (self.operand(value),)))
        if name and self._maker_type(value) != "pnnx.Input":
            self._renamed[value.name] = name
        return value

    def _nameable(self, value: Value, name: str) -> Value:
        """Return a value whose operand may get an output's name: inputs and other outputs keep theirs."""
        if value.constant is not None:
            return constant(value.constant)
        is_named = value.name in self._renamed or self._maker_type(value) == "pnnx.Input"
        if not is_named or value.tensor is None or value.name == _safe(name):
            return value
        return self.add("nn.Identity", name, [value])[0]

    def _maker_type(self, value: Value) -> str:
        maker = self.maker(value)
        return "pnnx.Input" if maker is None else maker.type

    def operand(self, value: Value) -> str:
        """Return the operand of a value; a constant becomes one."""
        if not value.name:
            if value.constant is None:
                raise ShapeError("a value has no producer")
            value.name = self.operand_name("const")
            self._add("pnnx.Attribute", value.name, (), [value], {}, {"data": _attribute(value.constant)}, ())
        return value.name

    def add(
        self,
        type: str,
        name: str,
        inputs: Sequence[Value],
        *,
        outputs: Sequence[str] = ("",),
        params: Mapping[str, Parameter] | None = None,
        attributes: Mapping[str, Array] | None = None,
        labels: Sequence[str | None] = (),
        declared: Sequence[TensorSpec | None] = (),
        subgraphs: Mapping[str, Graph] | None = None,
        results: Sequence[object] | None = None,
    ) -> list[Value]:
        """Append an operator.

        Args:
            subgraphs: subgraphs that it runs itself.
            results: descriptions of its results, if already known.
            outputs: preferred names of its operands.
            attributes: stored tensors.
            labels: for each input the argument it stands for.
            declared: the file's declarations of the outputs.

        Raises:
            EngineError: the operator does not accept its parameters or operands.
        """
        if type not in registry:
            raise UnsupportedOperatorError(f"no layer for the operator type '{type}'")
        params = dict(params or {})
        stored = {key: _attribute(array) for key, array in (attributes or {}).items()}
        layer = None
        if results is None:
            results, layer = self.follow(type, inputs, params, stored, tuple(labels), len(outputs), declared)
        values = [_known(result) for result in results]
        if subgraphs is None and results is not None and layer is not None and type not in _KEPT:
            values = self._folded(layer, inputs, values) or values
        if all(value.constant is not None for value in values):
            return values
        for value, wanted in zip(values, outputs, strict=True):
            value.name = self.operand_name(wanted or name)
        self._add(
            type, name, [self.operand(value) for value in inputs], values, params, stored, tuple(labels), subgraphs
        )
        return values

    def follow(
        self,
        type: str,
        inputs: Sequence[Value],
        params: Mapping[str, Parameter],
        stored: Mapping[str, Attribute],
        labels: tuple[str | None, ...],
        count: int,
        declared: Sequence[TensorSpec | None],
    ) -> tuple[Sequence[object], BoundLayer]:
        """Return descriptions of the results, and the layer."""
        notes = (*declared, *(None,) * (count - len(declared)))
        annotations = Annotations(inputs=tuple(each.tensor for each in inputs), outputs=notes, labels=labels)
        attributes = {key: attribute.data for key, attribute in stored.items()}
        try:
            layer = bind(
                registry[type], n_inputs=len(inputs), params=params, attributes=attributes, annotations=annotations
            )
            result = layer.infer([each.spec for each in inputs])
            check_results(result)
        except EngineError:
            raise
        except Exception as exc:  # valid values that contradict each other
            raise ParameterError(
                "parameters do not fit the operator", found=f"{exc.__class__.__name__}: {exc}"
            ) from exc
        pairs = zip(_split(result, count), notes, strict=True)
        return [note if each is UNKNOWN and note is not None else each for each, note in pairs], layer

    def _folded(self, layer: BoundLayer, inputs: Sequence[Value], values: Sequence[Value]) -> list[Value] | None:
        """Return the results of an operator of constants only; None if they are large, or expensive to compute."""
        arrays = [value.constant for value in inputs if value.constant is not None]
        if not inputs or len(arrays) < len(inputs) or layer.layer.loops or not is_repeatable(layer.layer):
            return None
        specs = [value.tensor for value in values if value.tensor is not None and value.tensor.is_static]
        made = sum((spec.size or 0) for spec in specs)
        if len(specs) < len(values) or made > _FOLDED:
            return None
        try:
            work = layer.flops(specs[0], [each.spec for each in inputs]) + sum(array.size for array in arrays) + made
            if work > self._work:
                return None
            self._work -= work
            with np.errstate(all="ignore"):
                results = _split(layer.forward(list(arrays)), len(values))
        except RunCancelledError:
            raise
        except Exception:  # an operator that cannot be computed here stays in the graph, where a run reports it
            return None
        found = [np.ascontiguousarray(each).reshape(np.shape(each)) for each in results if isinstance(each, np.ndarray)]
        for each in found:
            each.flags.writeable = False
        return [constant(each) for each in found] if len(found) == len(values) else None

    def _add(
        self,
        type: str,
        name: str,
        inputs: Sequence[str],
        values: Sequence[Value],
        params: dict[str, Parameter],
        stored: dict[str, Attribute],
        labels: tuple[str | None, ...],
        subgraphs: Mapping[str, Graph] | None = None,
    ) -> None:
        if len(self.operators) >= MAX_OPERATORS:
            raise ShapeError(
                "too many operators", found=f"more than {MAX_OPERATORS:,}", expected=f"at most {MAX_OPERATORS:,}"
            )
        outputs = tuple(value.name for value in values)
        operator = Operator(
            type,
            self.operator_name(name),
            tuple(inputs),
            outputs,
            params,
            stored,
            labels,
            subgraphs=dict(subgraphs or {}),
        )
        self.operators.append(operator)
        for value in values:
            self._makers[value.name] = operator
            if isinstance(value.spec, TensorSpec):
                self.annotations[value.name] = replace(value.spec, value=None)

    def list_of(self, sizes: Sequence[Size], name: str) -> Value:
        """Return sizes as a list of numbers, for a dynamic parameter."""
        text, operands = _Speller().spelled(sizes)
        return self.add("pnnx.Expression", name, operands, params={"expr": text})[0]

    def operator_name(self, wanted: str) -> str:
        """Return a unique name for an operator."""
        name = self._fresh(wanted, self._names)
        self._names.add(name)
        return name

    def operand_name(self, wanted: str) -> str:
        """Return a unique name for an operand."""
        others = () if wanted in self._reserved else self._reserved
        name = self._fresh(wanted, self._operands, others)
        self._operands.add(name)
        return name

    def _fresh(self, wanted: str, *taken: Container[str]) -> str:
        base = _safe(wanted)
        name = base
        while any(name in each for each in taken):
            number = self._numbers.get(base, 0) + 1
            self._numbers[base] = number
            name = f"{base}_{number}"
        return name

    def graph(self) -> Graph:
        """Return the graph of all operators that something depends on, with what is known of their results."""
        operators = used(joined(self.used(), self.annotations))
        kept = {name for op in operators for name in op.outputs}
        names = self._final_names(kept)
        annotations = {names.get(name, name): spec for name, spec in self.annotations.items() if name in kept}
        size_names = {names.get(name, name): each for name, each in self.size_names.items()}
        return Graph([_with_names(op, names) for op in operators], annotations, size_names=size_names)

    def _final_names(self, kept: set[str]) -> dict[str, str]:
        """Return new names for operands: outputs get theirs, and operands with such a name another."""
        fixed = {name for op in self.operators if op.type == "pnnx.Input" for name in op.outputs}
        # The first output of a name gets it; exact names precede those that had to be changed.
        order = sorted(self._renamed.items(), key=lambda pair: _safe(pair[1]) != pair[1])
        owners = {_safe(wanted): operand for operand, wanted in reversed(order) if operand in kept}
        names = {operand: wanted for wanted, operand in owners.items() if wanted not in fixed}
        names |= {name: self.operand_name(name) for name in kept if name in owners and name not in {*names, *fixed}}
        return names

    def used(self) -> list[Operator]:
        """Return the operators that something depends on, and all inputs."""
        return used(self.operators)


def _safe(name: str) -> str:
    """Return a name as a pair can write it."""
    return _UNSAFE.sub("_", name)[:_LONGEST] or "value"


def _with_names(op: Operator, names: Mapping[str, str]) -> Operator:
    if names.keys().isdisjoint((*op.inputs, *op.outputs)):
        return op
    inputs, outputs = (tuple(names.get(name, name) for name in each) for each in (op.inputs, op.outputs))
    return replace(op, inputs=inputs, outputs=outputs)


def used(operators: Sequence[Operator], results: Iterable[str] = ()) -> list[Operator]:
    """Return the operators that results, or outputs of the graph, depend on, and all inputs."""
    needed = set(results)
    kept: list[Operator] = []
    for op in reversed(operators):
        if op.type in ("pnnx.Input", "pnnx.Output") or not needed.isdisjoint(op.outputs):
            needed.update(op.inputs)
            kept.append(op)
    return kept[::-1]


def _attribute(array: Array) -> Attribute:
    return Attribute(array.shape, array.dtype, array)


def _split(result: Any, count: int) -> Sequence[object]:
    if count == 1:
        return [result]
    if result is UNKNOWN:
        return [UNKNOWN] * count
    if not isinstance(result, (tuple, list)) or len(result) != count:
        raise ShapeError("wrong number of results", found=count, expected="as many as the operator has")
    return result


def _known(result: object) -> Value:
    if isinstance(result, TensorSpec) and result.value is not None:
        return constant(result.value)
    return Value(spec=result)


class _Speller:
    """Writer of sizes as an expression over the operands they come from."""

    def __init__(self) -> None:
        self._operands: list[Value] = []

    def spelled(self, sizes: Sequence[Size]) -> tuple[str, list[Value]]:
        text = "[" + ",".join(map(self._one, sizes)) + "]"
        return text, self._operands

    def _one(self, size: Size) -> str:
        if isinstance(size, Axis):
            if size.value not in self._operands:
                self._operands.append(size.value)
            return f"size(@{self._operands.index(size.value)},{size.axis})"
        if isinstance(size, Sum):
            return f"{size.function}({self._one(size.left)},{self._one(size.right)})"
        return str(size)
