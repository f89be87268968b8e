"""Inference of every operand's shape and dtype before a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.cancellation import cancellable
from engine.errors import EngineError, ExecutionError, ShapeError
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.foreign import fitted
from engine.limits import check_results
from engine.tensor import UNKNOWN, TensorSpec

_LONGEST: Final = 500
"""Characters of a foreign exception's text that a message repeats."""


def propagate(order: Iterable[RuntimeOperator], inputs: Mapping[str, object]) -> dict[str, object]:
    """Infer what is known of every operand from the graph's inputs.

    Args:
        order: operators, makers before users.
        inputs: operand name -> TensorSpec or value, for the operands that pnnx.Input operators make.

    Returns:
        operand name -> TensorSpec, Python value, container of them, or UNKNOWN.

    Raises:
        EngineError: when operands cannot fit their operator; names the operator.
    """
    values: dict[str, object] = dict(inputs)
    follow(order, values)
    return values


def follow(order: Iterable[RuntimeOperator], values: dict[str, object]) -> None:
    """Infer like ``propagate``, but into ``values``: if an operator refuses its operands, earlier results are kept.

    Raises:
        EngineError: when operands cannot fit their operator; names the operator.
    """
    for op in cancellable(order):
        if op.layer is not None:
            results = _infer(op, [values[operand.name] for operand in op.inputs])
            values.update(zip([operand.name for operand in op.outputs], results, strict=True))


def _infer(op: RuntimeOperator, inputs: Sequence[object]) -> list[object]:
    if op.layer is None:
        return []
    try:
        results = split_outputs(op, _alone(op, op.layer.infer(inputs)))
        check_results(results)
    except EngineError as error:
        raise (error if op.where in error.where else error.at(op.where)) from error.__cause__
    except Exception as exc:  # a number, list or string where the layer expects a tensor, or the other way round
        found = ", ".join(_kind(value) for value in inputs) or "no operands"
        raise ShapeError("operands of the wrong kind", where=op.where, found=found) from exc
    return [
        operand.annotation if result is UNKNOWN and operand.annotation is not None else result
        for operand, result in zip(op.outputs, results, strict=True)
    ]


def _kind(value: object) -> str:
    return str(value) if isinstance(value, TensorSpec) else type(value).__name__.lstrip("_").lower()


class UnforeseenResultError(ExecutionError):
    """A result has another shape or dtype than the file's annotation, used for lack of an inference rule."""


def computed_outputs(op: RuntimeOperator, result: Any) -> Sequence[object]:
    """Return the result of forward() as one value an output; a user's layer must keep what its infer() promised.

    Raises:
        ExecutionError: another number of values, or others than were announced.
    """
    if op.layer is None or not op.layer.is_foreign:
        return split_outputs(op, result)
    result = _alone(op, result)
    try:
        return [
            fitted(value, None if operand.value is operand.annotation else operand.value)
            for operand, value in zip(op.outputs, split_outputs(op, result), strict=True)
        ]
    except EngineError as error:
        raise error if error.where else error.at(op.where) from None


def _alone(op: RuntimeOperator, result: Any) -> Any:
    """Return the one tensor that a user's layer returned or announced as a list; a real list is returned unchanged."""
    if op.layer is None or not op.layer.is_foreign or len(op.outputs) != 1 or not isinstance(result, (tuple, list)):
        return result
    if len(result) == 1 and (isinstance(result, tuple) or op.outputs[0].annotation is not None):
        return result[0]
    if op.outputs[0].annotation is not None:
        found = f"{len(result)} values"
        raise ExecutionError("wrong number of results", where=op.where, found=found, expected="1 value")
    return result


def split_outputs(op: RuntimeOperator, result: Any) -> Sequence[object]:
    """Return the result of a layer, or its announcement, as one value an output.

    Raises:
        ExecutionError: when the layer returned another number of values.
    """
    count = len(op.outputs)
    if count == 1:
        return [result]
    if result is UNKNOWN:
        return [UNKNOWN] * count
    if not isinstance(result, (tuple, list)) or len(result) != count:
        found = f"{len(result)} values" if isinstance(result, (tuple, list)) else "one value"
        raise ExecutionError("wrong number of results", where=op.where, found=found, expected=f"{count} values")
    return result
