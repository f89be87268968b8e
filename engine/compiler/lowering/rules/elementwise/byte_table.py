"""Maps from bytes to bytes as tables: the operators compute all 256 results before the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from engine.compiler.kernels.byte_table import make_byte_table
from engine.compiler.lowering.fusion import Fused
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, kernel_step
from engine.compiler.storage import View, constant
from engine.errors import EngineError
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.passes.support.byte_products import BYTES
from engine.tensor import Array, is_known, known_value

_CODES: Final = np.arange(256, dtype=np.uint8)


def byte_table(lowering: Lowering, fused: Fused, target: View) -> KernelStep | None:
    """Return the step of a map from one tensor of bytes to bytes; None for other maps."""
    source = fused.byte_source
    if source is None or target.dtype not in BYTES or source.shape != target.shape:
        return None
    kernel = make_byte_table(target.shape, target.strides, source.strides, lowering.host)
    table = None if kernel is None else _results(lowering, fused, source)
    if kernel is None or table is None:
        return None
    return kernel_step(kernel, (target, source, constant(table)), fused.operators)


def _results(lowering: Lowering, fused: Fused, source: View) -> Array | None:
    """Return the results for all bytes, in the order of their bits; None if an operator does not compute them."""
    operators = {op.name: op for op in lowering.operators}
    codes = _CODES.view(source.dtype)
    values: dict[str, object] = {name: codes for name, view in lowering.views.items() if view is source}
    for name in fused.operators:
        if not _compute(lowering, operators[name], values):
            return None
    found = values.get(fused.operand.name)
    return found if isinstance(found, np.ndarray) and found.shape == _CODES.shape else None


def _compute(lowering: Lowering, op: RuntimeOperator, values: dict[str, object]) -> bool:
    """Compute the result of an operator for all bytes; return whether that is possible."""
    for operand in op.inputs:
        maker = lowering.deferred(operand)
        if operand.name not in values and maker is not None and not _compute(lowering, maker, values):
            return False
    inputs = [_value(lowering, operand, values) for operand in op.inputs]
    if op.layer is None or not all(map(is_known, inputs)):
        return False
    try:
        values[op.outputs[0].name] = op.layer.forward(inputs)
    except EngineError:  # a run reports it
        return False
    return True


def _value(lowering: Lowering, operand: RuntimeOperand, values: Mapping[str, object]) -> object:
    """Return the results for an operand, or its value where it is known; a single number has no dimensions."""
    if operand.name in values:
        return values[operand.name]
    value = known_value(lowering.constants.get(operand.name, lowering.values.get(operand.name)))
    return value.reshape(()) if isinstance(value, np.ndarray) and value.size == 1 else value
