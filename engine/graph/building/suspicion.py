"""What a file says of operators that refuse their operands: where it contradicts itself, the converter is to blame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.errors import EngineError, ShapeError
from engine.graph.building.inference import find_mismatches
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator


def remark_on(
    error: EngineError,
    order: Sequence[RuntimeOperator],
    operands: Mapping[str, RuntimeOperand],
    values: Mapping[str, object],
) -> str:
    """What speaks for a loss in the converter; nothing where nothing does.

    The file has the shapes that PyTorch computed. Where one before the error is another, something was lost there;
    where all are as it says, and it says what the operator gives that refuses them, this one is not what it was.

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
    return f"the file says it gives {given}: the converter has changed it, or an operator before it"
