"""The language of ``pnnx.Expression``: text to tree, tree to text, tree to value.

tree = parse("sub(add(@0,@1),mul(@2,3))")
infix(tree)                      # (@0 + @1) - @2 * 3
infer(tree, [spec, spec, spec])  # shape and dtype of the value
evaluate(tree, [a, b, c])        # the value
"""

from __future__ import annotations

from engine.expression.evaluation import evaluate, infer, peak_bytes
from engine.expression.functions import FUNCTIONS, Function
from engine.expression.parser import parse
from engine.expression.printer import explain, format, infix
from engine.expression.tree import Call, Input, List, Literal, Node, check_arity, inputs, postorder

__all__ = [
    "FUNCTIONS",
    "Call",
    "Function",
    "Input",
    "List",
    "Literal",
    "Node",
    "check_arity",
    "evaluate",
    "explain",
    "format",
    "infer",
    "infix",
    "inputs",
    "parse",
    "peak_bytes",
    "postorder",
]
