"""Support vector machines: probabilities of classes from those of pairs."""

from __future__ import annotations

from engine.compiler.kernels.pairs import Pairs
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.storage import FLOAT32, row_major
from engine.layers.onnx.learning.vectors import PairProbabilities
from engine.tensor import dtype_name

# The matrix of a row is in stack memory.
_MAX_CLASSES = 32


@kernels_for(PairProbabilities)
def lower_pair_probabilities(context: Context) -> Lowered:
    """Row by row, in float64."""
    classes, wins = context.layer(PairProbabilities).classes, context.elements(0)
    if wins.dtype.name != "float64" or classes > _MAX_CLASSES:
        raise NotLoweredError(f"there is no kernel for {dtype_name(wins.dtype)} or more than {_MAX_CLASSES} classes")
    source, result = row_major(wins.shape, wins.dtype), row_major((wins.shape[0], classes), FLOAT32)
    copies = [] if wins.is_row_major else [context.copy(wins, source)]
    kernel = Pairs(rows=wins.shape[0], classes=classes, host=context.host)
    return context.lowered(result, *copies, context.step(kernel, source if copies else wins, result))
