"""Description of a graph as plain data, for JSON and drawings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import expression
from engine.cancellation import cancellable
from engine.graph.building.mismatches import GraphWarning, Mismatch
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.graph.port import Port
from engine.layers.creation.container import Expression
from engine.tensor import TensorSpec, dtype_name


def describe(
    name: str,
    state: str,
    operators: Sequence[RuntimeOperator],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    warnings: Sequence[GraphWarning],
) -> dict[str, Any]:
    """Return the description of a graph as dicts, lists, strings and numbers."""
    described = [_operator(op) for op in cancellable(operators)]
    operands = [operand for op in operators for operand in op.outputs]
    names = {port.operand: _names(port) for port in (*outputs, *inputs)}
    return {
        "name": name,
        "state": state,
        "inputs": [_port(port) for port in inputs],
        "outputs": [_port(port) for port in outputs],
        "operators": described,
        "operands": {each.name: _operand(each) | names.get(each.name, {}) for each in operands},
        "totals": _totals(operators, described),
        "warnings": [_warning(warning) for warning in warnings],
    }


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "operand": port.operand, **_spec(port.spec), **_names(port)}


def _names(port: Port) -> dict[str, Any]:
    return {"size_names": list(port.size_names)} if port.size_names else {}


def _spec(spec: object) -> dict[str, Any]:
    if not isinstance(spec, TensorSpec):
        return {"shape": None, "dtype": None}
    return {"shape": list(spec.shape), "dtype": dtype_name(spec.dtype)}


def _operand(operand: RuntimeOperand) -> dict[str, Any]:
    return {
        "producer": operand.producer.name if operand.producer is not None else None,
        "consumers": [op.name for op in operand.consumers],
        **_spec(operand.value),
    }


def _operator(op: RuntimeOperator) -> dict[str, Any]:
    text: dict[str, Any] = {
        "index": op.index,
        "name": op.name,
        "type": op.type,
        "params": {key: _plain(value) for key, value in op.params.items()},
        "attributes": {
            key: {"shape": list(a.shape), "dtype": dtype_name(a.dtype), "bytes": a.data.nbytes}
            for key, a in op.attributes.items()
        },
        "inputs": [operand.name for operand in op.inputs],
        "outputs": [operand.name for operand in op.outputs],
    }
    if op.layer is not None:
        text |= {"kernel": "reference", "flops": _flops(op)}
        if isinstance(op.definition, Expression):
            text["expression"] = expression.infix(op.definition.tree)
    return text


def _flops(op: RuntimeOperator) -> int | None:
    """Return the floating-point operations; None while a shape is dynamic."""
    specs = [operand.spec for operand in (*op.inputs, *op.outputs)]
    if op.layer is None or any(spec is not None and not spec.is_static for spec in specs):
        return None
    output = op.outputs[0].spec if op.outputs else None
    try:
        count = op.layer.flops(output, [operand.value for operand in op.inputs]) if output is not None else 0
        return int(count) if isinstance(count, (int, float)) else None
    except Exception:  # a count is not worth failing for, whatever a layer does with unusual operands
        return None


def _totals(operators: Sequence[RuntimeOperator], described: Sequence[dict[str, Any]]) -> dict[str, Any]:
    attributes = [attribute for op in operators for attribute in op.attributes.values()]
    flops = [op["flops"] for op in described if "flops" in op]
    return {
        "operators": len(operators),
        "parameters": sum(attribute.data.size for attribute in attributes),
        "bytes": sum(attribute.data.nbytes for attribute in attributes),
        "flops": None if None in flops else sum(flops),
    }


def _warning(warning: GraphWarning) -> dict[str, Any]:
    computed, annotated = (warning.computed, warning.annotated) if isinstance(warning, Mismatch) else (None, None)
    return {
        "operator": warning.operator,
        "operand": warning.operand,
        "computed": _spec(computed),
        "annotated": _spec(annotated),
        "cause": warning.cause,
        "message": str(warning),
    }


def _plain(value: object) -> object:
    """Return a parameter as JSON can hold it: tuples as lists, numbers JSON lacks as text."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, complex) or (isinstance(value, float) and value - value != 0):
        return str(value)
    return value
