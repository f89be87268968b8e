"""From operators to kernels: a rule a layer, and the walk that applies them. Importing the room registers all rules."""

from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules import conv, conv_transpose, linear, map, normalising, pool, rearrange, resize, rows
from engine.compiler.lowering.terms import activations, batch_norm, functions, pnnx_expression, ternary
from engine.compiler.lowering.walk import lower

__all__ = ["Lowering", "lower"]
__all__ += [  # rules of kernels
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
__all__ += ["activations", "batch_norm", "functions", "pnnx_expression", "ternary"]  # rules of expressions
