"""Element-wise operators as expressions that give the same numbers.

All bits are equal except one: a zero on a bound, as in ``relu(-0.0)``, may have either sign, which neither PyTorch nor
numpy defines.

Only operators that are one function of the language, or a bound on each side, are expressed. Sigmoid, softplus and the
like stay operators: the compiler has better functions for them than a tree of exponentials and quotients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from engine.expression import FUNCTIONS, Call, Input, Literal, Node
from engine.graph import RuntimeOperator
from engine.layers import Layer
from engine.layers.creation.container import Expression
from engine.layers.definition.bound import Source
from engine.layers.elementwise.arithmetic import Add, Div, Sub
from engine.layers.elementwise.functions import DEFINITIONS, Binary, Unary
from engine.layers.elementwise.piecewise import Hardtanh, ReLU
from engine.layers.elementwise.ternary import Clamp
from engine.passes.support.algebra import explicit, rounds_down
from engine.passes.support.facts import Facts, is_pure, is_static
from engine.tensor import BFLOAT16, TensorSpec

Template: TypeAlias = Callable[..., Node | None]

_NUMBERS: Final = (bool, int, float, complex)


def tree_of(op: RuntimeOperator, facts: Facts) -> Node | None:
    """Return an operator as an expression of its inputs; None if it is not such a function of their elements."""
    if op.layer is None or len(op.outputs) != 1 or not is_static(op) or not is_pure(op):
        return None
    layer, annotation = op.layer.layer, op.outputs[0].annotation
    if isinstance(layer, Expression):
        return explicit(layer.tree, [facts.known(operand) for operand in op.inputs], annotation)
    template, sources = _template(layer), op.layer.positional
    if template is None or op.layer.keywords or not all(map(_is_simple, sources)):
        return None
    if not all(isinstance(facts.known(operand), TensorSpec) for operand in op.inputs):
        return None
    if isinstance(layer, _OF_FLOATS) and not _is_floating(facts.spec(op.inputs[0])):
        return None
    tree = template(layer, *map(_argument, sources))
    return None if tree is None or rounds_down(tree, annotation) else tree


def _template(layer: Layer) -> Template | None:
    if isinstance(layer, (Unary, Binary)):
        return _function if FUNCTIONS.get(layer.function) is DEFINITIONS[layer.function] else None
    return _TEMPLATES.get(type(layer))


def _is_simple(source: Source) -> bool:
    """Return whether an argument is an input, a number, or omitted."""
    return source.index is not None or source.constant is None or isinstance(source.constant, _NUMBERS)


def _argument(source: Source) -> Node | None:
    """Return an argument as a node; None if it is omitted."""
    if source.index is not None:
        return Input(source.index)
    return Literal(source.constant) if isinstance(source.constant, _NUMBERS) else None


def _is_floating(spec: TensorSpec | None) -> bool:
    return spec is not None and (spec.dtype == BFLOAT16 or np.issubdtype(spec.dtype, np.floating))


def _function(layer: Any, *arguments: Node | None) -> Node | None:
    known = tuple(each for each in arguments if each is not None)
    return Call(layer.function, known) if len(known) == len(arguments) else None


def _scaled(node: Node, alpha: float | complex) -> Node:
    return node if alpha == 1 else Call("mul", (node, Literal(alpha)))


def _add(layer: Add, x: Node, other: Node | None) -> Node | None:
    return None if other is None else Call("add", (x, _scaled(other, layer.alpha)))


def _sub(layer: Sub, x: Node, other: Node | None) -> Node | None:
    return None if other is None else Call("sub", (x, _scaled(other, layer.alpha)))


def _div(layer: Div, x: Node, other: Node | None) -> Node | None:
    names = {None: "div", "floor": "floor_divide"}
    if other is None or layer.rounding_mode not in names or layer.truncates_integers:
        return None
    return Call(names[layer.rounding_mode], (x, other))


def _relu(layer: ReLU, x: Node) -> Node:
    return Call("maximum", (x, Literal(0)))


def _hardtanh(layer: Hardtanh, x: Node) -> Node:
    return Call("minimum", (Call("maximum", (x, Literal(layer.min_val))), Literal(layer.max_val)))


def _clamp(layer: Clamp, x: Node, low: Node | None, high: Node | None) -> Node | None:
    bounds = [("maximum", low), ("minimum", high)]
    if any(isinstance(bound, Input) for _, bound in bounds):
        return None  # a tensor as a bound would affect the dtype of both steps
    for name, bound in bounds:
        x = x if bound is None else Call(name, (x, bound))
    return x


_TEMPLATES: Final[Mapping[type[Layer], Template]] = {
    Add: _add,
    Sub: _sub,
    Div: _div,
    ReLU: _relu,
    Hardtanh: _hardtanh,
    Clamp: _clamp,
}
"""Layer -> function from its arguments to an expression."""

_OF_FLOATS: Final = (ReLU, Hardtanh, Clamp)
"""Layers whose expression holds for floating operands only: integers would be promoted."""
