"""Evaluation of a tree: with values, or with what is known of them before the run.

The tree becomes steps of a stack machine, so neither depth nor length is limited. Of the arguments of a call the one
that needs most values is computed first, as Sethi and Ullman assign registers: a tree of n calls of two arguments holds
at most about log2(n) values. The operands of a call are released before the next call begins.

PNNX writes ``torch.div(x, y, rounding_mode="floor")`` as plain ``div``. For integers the annotated dtype of the result
tells: when ``div`` is the outermost function, its arguments are integers and so is the annotation, it rounds down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from engine.errors import EngineError, ExpressionError
from engine.expression.elementwise import with_lists
from engine.expression.functions import FUNCTIONS, Function
from engine.expression.printer import format
from engine.expression.tree import Call, Input, List, Literal, Node, check_arity, postorder
from engine.limits import check_size
from engine.promotion import Category, category, dtype_category
from engine.tensor import UNKNOWN, TensorSpec, dtype_name, spec_of


class Step(NamedTuple):
    """A node; for a call its function, and the stack positions of its arguments in their order."""

    node: Node
    function: Function | None
    places: tuple[int, ...]


@lru_cache(maxsize=1024)
def program_of(root: Node) -> tuple[Step, ...]:
    """Return every node after its children; the root is the last.

    Raises:
        ExpressionError: for an unknown function.
    """
    orders = _orders(root)
    backwards: list[Step] = []
    pending = [root]
    while pending:
        node = pending.pop()
        order = orders[node]
        places = tuple(sorted(range(len(order)), key=order.__getitem__))
        backwards.append(Step(node, _function(node) if isinstance(node, Call) else None, places))
        pending.extend(node.children[place] for place in order)
    return tuple(reversed(backwards))


def _orders(root: Node) -> Mapping[Node, tuple[int, ...]]:
    """Return for each node the order in which its children are computed; all values are assumed to have one size."""
    orders: dict[Node, tuple[int, ...]] = {}
    most: dict[Node, int] = {}
    kept: dict[Node, int] = {}
    for node in postorder(root):
        if node in orders:
            continue
        needs = [(kept[child] - most[child], place) for place, child in enumerate(node.children)]
        orders[node] = tuple(place for _, place in sorted(needs))
        held = peak = 0
        for child in (node.children[place] for place in orders[node]):
            peak = max(peak, held + most[child])
            held += kept[child]
        is_call = isinstance(node, Call)
        kept[node] = 1 if is_call else held
        most[node] = max(peak, held + is_call)
    return orders


def _function(call: Call) -> Function:
    function = FUNCTIONS.get(call.function)
    if function is None or len(call.args) not in function.arity:
        raise ExpressionError("unknown function", found=f"{call.function} of {len(call.args)}",
                              expected="a function of the language with all its arguments")  # fmt: skip
    return function


Apply: TypeAlias = Callable[[Function, list[object]], object]


def evaluate(node: Node, operands: Sequence[object], *, annotated: TensorSpec | None = None) -> object:
    """Return the value of an expression.

    Args:
        operands: values of ``@0``, ``@1``, ...: arrays, Python numbers, None, strings, lists of those.
        annotated: the file's annotation of the result.

    Returns:
        An array (0-dim ones stay arrays), a Python number, None, a string, or a list of those. ``@0`` alone, and a
        function without effect, return the operand itself; operands are never modified.

    Raises:
        ExpressionError: for missing inputs, unsupported dtypes, integers divided by 0.
        ShapeError: for operands that do not broadcast, and for values that are not numbers.
    """
    with np.errstate(all="ignore"):
        return _run(node, operands, _evaluate_call, annotated)


def infer(node: Node, operands: Sequence[object], *, annotated: TensorSpec | None = None) -> object:
    """Return what is known before the run of the result of evaluate().

    Args:
        operands: TensorSpecs, known values, and UNKNOWN for a number or a tensor that is unknown before a run.
        annotated: the file's annotation of the result.

    Returns:
        A TensorSpec, a value, UNKNOWN, or a list of those.

    Raises:
        ExpressionError, ShapeError: as evaluate(); and for an intermediate tensor that is too large.
    """
    with np.errstate(all="ignore"):
        return _public(_run(node, [spec_of(operand) for operand in operands], _infer_call, annotated))


def _evaluate_call(function: Function, args: list[object]) -> object:
    return function.evaluate(*args)


def peak_bytes(node: Node, operands: Sequence[object], *, annotated: TensorSpec | None = None) -> int:
    """Return the most bytes that evaluate() holds at once in addition to the operands, its result included.

    Args:
        operands: as for infer(); dynamic dimensions count as zero.

    Raises:
        ExpressionError, ShapeError: as evaluate().
    """
    made: list[int] = []

    def apply(function: Function, args: list[object]) -> object:
        value = _infer_call(function, args)
        made.append((value.size or 0) * value.dtype.itemsize if isinstance(value, TensorSpec) else 0)
        return value

    with np.errstate(all="ignore"):
        _run(node, [spec_of(operand) for operand in operands], apply, annotated)
    return _peak(node, made)


def _peak(root: Node, made: list[int]) -> int:
    """Return the most bytes alive, given the bytes that each call makes, in the order they run."""
    sizes = iter(made)
    held: list[int] = []
    alive = peak = 0
    for node, function, places in program_of(root):
        split = len(held) - len(places)
        taken = sum(held[split:])
        del held[split:]
        if function is not None:
            size = next(sizes)
            peak = max(peak, alive + size)
            alive += size - taken
            taken = size
        held.append(taken if isinstance(node, (Call, List)) else 0)
    return peak


def _infer_call(function: Function, args: list[object]) -> object:
    value = function.infer(*args)
    if isinstance(value, TensorSpec):
        check_size(value.shape, value.dtype)
    return value


def _run(root: Node, operands: Sequence[object], apply: Apply, annotated: TensorSpec | None) -> object:
    check_arity(root, len(operands))
    stack: list[object] = []
    program = program_of(root)
    root = program[-1].node  # the program may hold another, equal tree
    for node, function, places in program:
        if isinstance(node, Input):
            stack.append(operands[node.index])
        elif isinstance(node, Literal):
            stack.append(node.value)
        elif function is None:
            stack.append(_take(stack, places))
        else:
            # Not kept in a variable: the operands of a call are released before the next one begins.
            stack.append(_call(root, node, function, _take(stack, places), apply, annotated))
    return stack[0]


def _take(stack: list[object], places: Sequence[int]) -> list[object]:
    """Remove the last values of a stack and return them; ``places`` are the positions of the arguments among them."""
    split = len(stack) - len(places)
    found = stack[split:]
    del stack[split:]
    return [found[place] for place in places]


def _call(root: Node, node: Node, function: Function, args: list[object], apply: Apply,
          annotated: TensorSpec | None) -> object:  # fmt: skip
    try:
        if node is root and function.name == "div" and _is_integral_division(args, annotated):
            function = FUNCTIONS["floor_divide"]
        if node is root and function.name == "pow" and annotated is not None and _is_integral_power(args, annotated):
            return apply(FUNCTIONS[f"torch.{dtype_name(annotated.dtype)}"], [apply(function, args)])
        return apply(function, args)
    except EngineError as error:
        text = format(node)
        raise error.at(text if len(text) <= 60 else text[:57] + "...") from None


def _is_integral_division(args: list[object], annotated: TensorSpec | None) -> bool:
    integral = annotated is not None and dtype_category(annotated.dtype) is Category.INTEGER
    return integral and all(category(arg) is Category.INTEGER for arg in with_lists(args))


def _is_integral_power(args: list[object], annotated: TensorSpec) -> bool:
    """Return whether a power of integers with a floating exponent is annotated as integers: ONNX truncates it."""
    integral = dtype_category(annotated.dtype) is Category.INTEGER
    base, exponent = with_lists(args)
    return integral and category(base) is Category.INTEGER and category(exponent) is Category.FLOATING


def _public(value: object) -> object:
    """Return a value with unknown numbers of any category replaced by UNKNOWN."""
    if isinstance(value, Category):
        return UNKNOWN
    return [_public(item) for item in value] if isinstance(value, list) else value
