"""Steps of a pipeline in the form of the engine's description of a graph, for drawings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import engine
from app.arrays import dtype_name
from app.pipelines.plan import Plan, PlannedStep


def describe(name: str, plan: Plan) -> dict[str, Any]:
    """Return inputs, steps as operators, and the values between them as operands."""
    inputs = [_row("pnnx.Input", port.name, [], [port.name]) for port in plan.signature.inputs]
    steps = [
        _row(step.config.model, step.name, list(_read(step)), [step.name], _parameters(step)) for step in plan.steps
    ]
    outputs = [_row("pnnx.Output", "answer", [step.name for step in plan.steps if step.finding is not None], [])]
    rows = [{"index": at, **row} for at, row in enumerate([*inputs, *steps, *outputs])]
    return {
        "name": name,
        "inputs": [_port(port) for port in plan.signature.inputs],
        "outputs": [_port(port) for port in plan.signature.outputs],
        "operators": rows,
        "operands": {
            **{port.name: _port(port) for port in plan.signature.inputs},
            **{step.name: {"shape": None, "dtype": None} for step in plan.steps},
        },
        "totals": {"operators": len(rows)},
        "warnings": [],
        "backend": "pipeline",
    }


def _row(
    type_: str, name: str, inputs: list[str], outputs: list[str], params: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "name": name, "type": type_, "params": params or {}, "attributes": {}, "inputs": inputs, "outputs": outputs,
        "kernel": None, "flops": None,
    }  # fmt: skip


def _read(step: PlannedStep) -> Iterator[str]:
    """Yield the inputs of the request and the steps that a step reads, each once."""
    read = [each.step or each.field for each in step.references]
    turn = step.config.turn
    yield from dict.fromkeys([*read, *([turn.step] if turn is not None else []), *step.config.where])


def _parameters(step: PlannedStep) -> dict[str, Any]:
    """Return the keys that the file gives."""
    return {key: value for key, value in step.config.as_dict().items() if key not in ("name", "model")}


def _port(port: engine.Port) -> dict[str, Any]:
    spec = port.spec
    return {
        "name": port.name,
        "shape": None if spec is None else list(spec.shape),
        "dtype": None if spec is None else dtype_name(spec.dtype),
    }
