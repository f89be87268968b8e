"""Running a tree: with values, or with what is known of them before the run.

Both walk the tree with a stack, so neither depth nor length is limited here.

PNNX writes ``torch.div(x, y, rounding_mode="floor")`` as plain ``div``. For integers the annotated dtype of the result
tells: when ``div`` is the outermost function, its arguments are integers and so is the annotation, it rounds down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from engine.errors import EngineError, ExpressionError
from engine.expression.functions import FUNCTIONS, Function
from engine.expression.printer import format
from engine.expression.tree import Call, Input, Literal, Node, check_arity, postorder
from engine.promotion import Category, category, dtype_category
from engine.tensor import UNKNOWN, TensorSpec, spec_of

Apply: TypeAlias = Callable[[Function, list[object]], object]


def evaluate(node: Node, operands: Sequence[object], *, annotated: TensorSpec | None = None) -> object:
    """The value of an expression.

    Args:
        operands: what ``@0``, ``@1``, ... stand for: arrays, Python numbers, None, strings, lists of those.
        annotated: what the file says of the result.

    Returns:
        An array (0-dim ones stay arrays), a Python number, None, a string, or a list of those. ``@0`` alone, and a
        function that changes nothing, return the operand itself; operands are never changed.

    Raises:
        ExpressionError: for inputs that are not given, dtypes a function is not defined for, integers divided by 0.
        ShapeError: for operands that do not broadcast, and for values that are no numbers.
    """
    with np.errstate(all="ignore"):
        return _run(node, operands, _evaluate_call, annotated)


def infer(node: Node, operands: Sequence[object], *, annotated: TensorSpec | None = None) -> object:
    """What evaluate() will return, as far as it is known before the run.

    Args:
        operands: TensorSpecs, values that are known, and UNKNOWN, which counts as an integer where it is computed with.
        annotated: what the file says of the result.

    Returns:
        A TensorSpec, a value, UNKNOWN, or a list of those.

    Raises:
        ExpressionError, ShapeError: as evaluate().
    """
    with np.errstate(all="ignore"):
        return _public(_run(node, [spec_of(operand) for operand in operands], _infer_call, annotated))


def _evaluate_call(function: Function, args: list[object]) -> object:
    return function.evaluate(*args)


def _infer_call(function: Function, args: list[object]) -> object:
    return function.infer(*args)


def _run(root: Node, operands: Sequence[object], apply: Apply, annotated: TensorSpec | None) -> object:
    check_arity(root, len(operands))
    stack: list[object] = []
    program = _program(root)
    root = program[-1][0]  # of two equal trees the program may hold the other
    for node, function in program:
        if isinstance(node, Input):
            stack.append(operands[node.index])
        elif isinstance(node, Literal):
            stack.append(node.value)
        else:
            args = _take(stack, len(node.children))
            stack.append(args if function is None else _call(root, node, function, args, apply, annotated))
    return stack[0]


def _take(stack: list[object], count: int) -> list[object]:
    split = len(stack) - count
    args = stack[split:]
    del stack[split:]
    return args


def _call(root: Node, node: Node, function: Function, args: list[object], apply: Apply,
          annotated: TensorSpec | None) -> object:  # fmt: skip
    try:
        if node is root and function.name == "div" and _is_integral_division(args, annotated):
            function = FUNCTIONS["floor_divide"]
        return apply(function, args)
    except EngineError as error:
        text = format(node)
        raise error.at(text if len(text) <= 60 else text[:57] + "...") from None


def _is_integral_division(args: list[object], annotated: TensorSpec | None) -> bool:
    integral = annotated is not None and dtype_category(annotated.dtype) is Category.INTEGER
    return integral and all(category(arg) is Category.INTEGER for arg in args)


@lru_cache(maxsize=1024)
def _program(root: Node) -> tuple[tuple[Node, Function | None], ...]:
    """The nodes in the order they run, calls with their functions."""
    return tuple((node, _function(node) if isinstance(node, Call) else None) for node in postorder(root))


def _function(call: Call) -> Function:
    function = FUNCTIONS.get(call.function)
    if function is None or len(call.args) not in function.arity:
        raise ExpressionError("no such function", found=f"{call.function} of {len(call.args)}",
                              expected="a function of the language with all its arguments")  # fmt: skip
    return function


def _public(value: object) -> object:
    """Numbers only a run can tell are UNKNOWN to the outside, whatever their category."""
    if isinstance(value, Category):
        return UNKNOWN
    return [_public(item) for item in value] if isinstance(value, list) else value
