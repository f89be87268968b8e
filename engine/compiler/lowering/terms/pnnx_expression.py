"""The rule of pnnx.Expression: its tree, call by call."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.expr import Expr, Number, is_moderate
from engine.compiler.lowering.terms.functions import function
from engine.compiler.lowering.terms.registry import expression_for
from engine.errors import EngineError
from engine.expression import Call, Input, Literal, Node, evaluate, postorder
from engine.layers.creation.container import Expression

_CASTS = ("torch.float", "torch.float32")


@expression_for(Expression)
def expression(layer: Expression, *operands: Expr | None) -> Expr | None:
    """Its tree, where every part is a number or a float32 tensor and every call a function of such."""
    done: dict[Node, Expr] = {}
    measured: dict[int, tuple[int, int]] = {}
    for node in postorder(layer.tree):
        if node in done:
            continue
        converted = _convert(node, [done[each] for each in node.children], operands)
        # What walks the trees of kernels recurses, and walks what is repeated again.
        if converted is None or not is_moderate(converted, measured):
            return None
        done[node] = converted
    return done[layer.tree]


def _convert(node: Node, arguments: Sequence[Expr], operands: Sequence[Expr | None]) -> Expr | None:
    if isinstance(node, Input):
        return operands[node.index]
    if isinstance(node, Literal):
        return Number(node.value) if isinstance(node.value, bool | int | float) else None
    if not isinstance(node, Call):
        return None
    numbers = [each.value for each in arguments if isinstance(each, Number)]
    if len(numbers) == len(arguments):
        return _number(node.function, numbers)
    return arguments[0] if node.function in _CASTS else function(node.function, *arguments)


def _number(name: str, arguments: list[float]) -> Number | None:
    """A function of numbers alone is one itself."""
    try:
        value = evaluate(Call(name, tuple(map(Literal, arguments))), ())
    except EngineError:
        return None
    return Number(value) if isinstance(value, bool | int | float) else None
