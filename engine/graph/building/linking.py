"""Linking: operators as read, joined by their operands. Edges are keyed by operand, never by producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine import pnnx
from engine.cancellation import cancellable_quick
from engine.errors import EngineError, GraphError, ParameterError
from engine.graph.building.subgraphs import build_subgraphs
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers import Annotations, BoundLayer, Registry, bind
from engine.tensor import TensorSpec

BOUNDARY_TYPES = ("pnnx.Input", "pnnx.Output")


def link(
    source: pnnx.Graph, registry: Registry, layers: Mapping[int, BoundLayer] | None = None
) -> tuple[list[RuntimeOperator], dict[str, RuntimeOperand]]:
    """Make every operator with its layer, and every operand with its producer and consumers.

    Args:
        layers: id() of an operator as read -> the layer it has already in another graph, to share its weights.

    Raises:
        UnsupportedOperatorError: all unknown types at once.
        GraphError: an operand has two producers or none, an operator's name repeats, there is no output.
        ParameterError: an operator's parameters or attributes do not fit its type; names the operator.
    """
    if not any(op.type == "pnnx.Output" for op in source.operators):
        raise GraphError("the graph has no output", found=f"{len(source.operators)} operators")
    registry.check([(op.type, op.name) for op in source.operators if op.type not in BOUNDARY_TYPES])
    operands = _make_operands(source)
    _check_constants(source, registry)
    binder = _Binder(source.annotations, registry, layers or {})
    operators = [_make_operator(op, operands, binder) for op in cancellable_quick(source.operators)]
    _check_names(operators)
    for op in operators:
        for operand in op.outputs:
            operand.producer = op
        for operand in op.inputs:
            operand.consumers.append(op)
    return operators, operands


def _make_operands(source: pnnx.Graph) -> dict[str, RuntimeOperand]:
    operands: dict[str, RuntimeOperand] = {}
    makers: dict[str, str] = {}
    for op in source.operators:
        for name in op.outputs:
            if name in makers:
                found = f"{makers[name]} and {op.name}"
                raise GraphError(f"operand '{name}' is produced twice", found=found, expected="one operator")
            makers[name] = op.name
            operands[name] = RuntimeOperand(name, source.annotations.get(name), slot=len(operands))
    return operands


@dataclass(frozen=True, slots=True)
class _Binder:
    """Factory of the layers of operators."""

    annotations: Mapping[str, TensorSpec]
    registry: Registry
    shared: Mapping[int, BoundLayer]

    def layer(self, op: pnnx.Operator) -> BoundLayer | None:
        """Return the layer of an operator; the graph's inputs and outputs have none."""
        if op.type in BOUNDARY_TYPES:
            return None
        return self.shared.get(id(op)) or bind_operator(op, self.annotations, self.registry)


def _make_operator(op: pnnx.Operator, operands: Mapping[str, RuntimeOperand], binder: _Binder) -> RuntimeOperator:
    for name in op.inputs:
        if name not in operands:
            raise GraphError(f"operand '{name}' is used but never produced", where=f"{op.name} ({op.type})")
    _check_counts(op)
    return RuntimeOperator(
        source=op,
        inputs=tuple(operands[name] for name in op.inputs),
        outputs=tuple(operands[name] for name in op.outputs),
        layer=binder.layer(op),
    )


def _check_constants(source: pnnx.Graph, registry: Registry) -> None:
    """Refuse ONNX operators with a constant that the converter wrote as None: their results would be wrong."""
    lost = {name: op.name for op in source.operators if _is_none(op) for name in op.outputs}
    if not lost:
        return
    for op in source.operators:
        names = [name for name in op.inputs if name in lost]
        if names and op.type not in BOUNDARY_TYPES and not registry[op.type].takes_none:
            raise ParameterError(
                "the converter has lost a constant",
                where=f"{op.name} ({op.type})",
                found=f"operand '{names[0]}' is None",
                expected="a number: pnnx keeps single ones of float32, int32, int64 and bool only",
            )


def _is_none(op: pnnx.Operator) -> bool:
    key = {"pnnx.Expression": "expr", "prim::Constant": "value"}.get(op.type)
    return key is not None and op.params.get(key) in (None, "None")


def _check_counts(op: pnnx.Operator) -> None:
    """Refuse wrong numbers of operands: an input makes one, an output takes one, others make at least one."""
    found = f"{len(op.inputs)} inputs, {len(op.outputs)} outputs"
    counts = (len(op.inputs), len(op.outputs))
    expected = {"pnnx.Input": (0, 1), "pnnx.Output": (1, 0)}.get(op.type)
    if expected is not None and counts != expected:
        raise GraphError("wrong number of operands", where=f"{op.name} ({op.type})", found=found)
    if expected is None and not op.outputs:
        raise GraphError("the operator has no output", where=f"{op.name} ({op.type})", found=found)


def bind_operator(op: pnnx.Operator, annotations: Mapping[str, TensorSpec], registry: Registry) -> BoundLayer:
    """Return the layer of one operator, its arguments resolved.

    Raises:
        ParameterError: its parameters or attributes do not fit its type; names the operator.
    """
    try:
        return bind(
            registry[op.type],
            n_inputs=len(op.inputs),
            params=op.params,
            attributes={key: attribute.data for key, attribute in op.attributes.items()},
            annotations=Annotations(
                inputs=tuple(annotations.get(name) for name in op.inputs),
                outputs=tuple(annotations.get(name) for name in op.outputs),
                labels=op.labels,
                subgraphs=build_subgraphs(op.subgraphs, registry),
            ),
        )
    except EngineError as error:
        raise error.at(f"{op.name} ({op.type})") from None
    except Exception as exc:  # values of the right kind that make no sense together
        where, found = f"{op.name} ({op.type})", f"{type(exc).__name__}: {exc}"
        raise ParameterError("parameters do not fit the operator", where=where, found=found) from exc


def _check_names(operators: list[RuntimeOperator]) -> None:
    seen: set[str] = set()
    for op in operators:
        if op.name in seen:
            raise GraphError("two operators have one name", found=op.name)
        seen.add(op.name)


def reused_layers(operators: Iterable[RuntimeOperator], source: pnnx.Graph) -> dict[int, BoundLayer]:
    """Return the layers of a graph that a changed copy of it can reuse, by id() of the copy's operator.

    An operator may have other operand names, but nothing a layer is made from may differ: type, parameters, attributes,
    labels, and the annotations of its operands.
    """
    old = {op.name: op for op in operators if op.layer is not None}
    reused: dict[int, BoundLayer] = {}
    for op in source.operators:
        before = old.get(op.name)
        if before is not None and before.layer is not None and _is_same(before, op, source):
            reused[id(op)] = before.layer
    return reused


def _is_same(before: RuntimeOperator, op: pnnx.Operator, source: pnnx.Graph) -> bool:
    is_equal = (
        before.source.type == op.type
        and before.source.params is op.params
        and before.source.attributes is op.attributes
        and before.source.labels == op.labels
    )
    return (
        is_equal
        and _annotations(before.inputs) == [source.annotations.get(name) for name in op.inputs]
        and _annotations(before.outputs) == [source.annotations.get(name) for name in op.outputs]
    )


def _annotations(operands: Iterable[RuntimeOperand]) -> list[TensorSpec | None]:
    return [operand.annotation for operand in operands]
