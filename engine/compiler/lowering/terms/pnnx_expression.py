"""The rule of pnnx.Expression: its tree, call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    return converted(layer.tree, operands, lambda value: None)


def converted(tree: Node, operands: Sequence[Expr | None], other: Callable[[object], Expr | None]) -> Expr | None:
    """A tree of calls as one of functions that kernels compute; None where there is none.

    Args:
        operands: what inputs are.
        other: what a literal is that is no real number.
    """
    done: dict[Node, Expr] = {}
    measured: dict[int, tuple[int, int]] = {}
    for node in postorder(tree):
        if node in done:
            continue
        found = _convert(node, [done[each] for each in node.children], operands, other)
        # What walks the trees of kernels recurses, and walks what is repeated again.
        if found is None or not is_moderate(found, measured):
            return None
        done[node] = found
    return done[tree]


def _convert(
    node: Node,
    arguments: Sequence[Expr],
    operands: Sequence[Expr | None],
    other: Callable[[object], Expr | None],
) -> Expr | None:
    if isinstance(node, Input):
        return operands[node.index]
    if isinstance(node, Literal):
        return Number(node.value) if isinstance(node.value, bool | int | float) else other(node.value)
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
