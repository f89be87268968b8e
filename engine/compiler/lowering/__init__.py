"""From operators to kernels: a rule a layer, and the walk that applies them."""

from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules import conv, conv_transpose, linear, map, normalising, pool, rearrange, resize, rows
from engine.compiler.lowering.walk import lower

__all__ = [
    "Lowering",
    "conv",
    "conv_transpose",
    "lower",
    "linear",
    "map",
    "normalising",
    "pool",
    "rearrange",
    "resize",
    "rows",
]
