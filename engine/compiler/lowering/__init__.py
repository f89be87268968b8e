"""From operators to kernels: a rule a layer, and the walk that applies them."""

from engine.compiler.lowering import conv, conv_transpose, linear, map, normalising, pool, rearrange, resize, rows
from engine.compiler.lowering.builder import Lowering, Options

__all__ = [
    "Lowering",
    "Options",
    "conv",
    "conv_transpose",
    "linear",
    "map",
    "normalising",
    "pool",
    "rearrange",
    "resize",
    "rows",
]
