"""Inference of every operand's shape and dtype before a run, compared with the file's annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.cancellation import cancellable, cancellable_quick
from engine.errors import EngineError, ExecutionError, GraphError, ShapeError
from engine.graph.building.export_diagnosis import ExportFinding, is_shape_of_later, likely_cause
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.foreign import fitted
from engine.limits import check_results
from engine.tensor import BFLOAT16, UNKNOWN, TensorSpec

_LONGEST: Final = 500
"""Characters of a foreign exception's text that a message repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """An operand whose computed spec contradicts the file's annotation.

    Args:
        operator: the operator that makes it, with its type.
        cause: what the converter probably lost, None where no known case fits.
    """

    operator: str
    operand: str
    computed: TensorSpec
    annotated: TensorSpec
    cause: str | None = None

    def as_error(self) -> GraphError:
        """Return the error that a strict build raises."""
        cause = "" if self.cause is None else f"; possible cause: {self.cause}"
        return GraphError(
            f"operand '{self.operand}' contradicts the file",
            where=self.operator,
            found=self.computed,
            expected=f"{self.annotated} as annotated{cause}",
        )

    def __str__(self) -> str:
        text = f"{self.operator}: operand '{self.operand}' is {self.computed}, the file says {self.annotated}"
        return text if self.cause is None else f"{text}; possible cause: {self.cause}"


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


def find_mismatches(operands: Iterable[RuntimeOperand]) -> list[Mismatch]:
    """Return the operands whose inferred spec contradicts the file."""
    return [mismatch for operand in cancellable_quick(operands) if (mismatch := _check(operand)) is not None]


def _check(operand: RuntimeOperand) -> Mismatch | None:
    computed, annotated = operand.spec, operand.annotation
    if computed is None or annotated is None or _agree(computed, annotated) or is_shape_of_later(operand):
        return None
    maker = operand.producer
    return Mismatch(
        operator=maker.where if maker is not None else "",
        operand=operand.name,
        computed=computed,
        annotated=annotated,
        cause=likely_cause(maker, computed, annotated) if maker is not None else None,
    )


def _agree(computed: TensorSpec, annotated: TensorSpec) -> bool:
    if computed.rank != annotated.rank:
        return False
    if any(None not in dims and dims[0] != dims[1] for dims in zip(computed.shape, annotated.shape, strict=True)):
        return False
    # The converter annotates half and bfloat16 models as float32.
    is_half = computed.dtype in (BFLOAT16, "float16") and annotated.dtype == "float32"
    return computed.dtype == annotated.dtype or is_half


def diagnose_refusal(
    error: EngineError,
    order: Sequence[RuntimeOperator],
    operands: Mapping[str, RuntimeOperand],
    values: Mapping[str, object],
) -> str:
    """Return a remark on why the converter is probably to blame for a refused operand; empty without evidence.

    The file has the shapes that PyTorch computed. If an inferred shape before the error differs, the converter lost
    something there. If all agree and the file has a shape for the refusing operator's result, that operator was
    changed.

    Args:
        error: of the first operator whose operands do not fit it.
        order: all operators, makers before users.
        values: what is known of operands up to there.
    """
    if not isinstance(error, ShapeError):
        return ""
    for name, value in values.items():
        operands[name].value = value
    mismatch = next(iter(find_mismatches(operands[name] for name in values)), None)
    if mismatch is not None:
        return f"before it, {mismatch}"
    refusing = next(
        (op for op in order if op.layer is not None and any(o.name not in values for o in op.outputs)), None
    )
    given = None if refusing is None else refusing.outputs[0].annotation
    if given is None:
        return ""
    return f"the file declares {given}: the converter changed this operator or one before it"


GraphWarning: TypeAlias = Mismatch | ExportFinding


def strict_error(warnings: Sequence[GraphWarning]) -> GraphError:
    """Return the first of some warnings as an error that states their number."""
    error, others = warnings[0].as_error(), len(warnings) - 1
    if others:
        error.problem += f" (and {others} more like it)"
    return error
