"""Comparison of inferred shapes and dtypes with the annotations of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from engine.cancellation import cancellable_quick
from engine.errors import EngineError, GraphError, ShapeError
from engine.graph.building.export_diagnosis import ExportFinding, is_shape_of_later, likely_cause
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.tensor import BFLOAT16, TensorSpec


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
