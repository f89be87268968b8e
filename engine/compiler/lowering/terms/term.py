"""Element-wise operators as expressions: from a bound layer to the tree a kernel can carry.

Only maps of one dtype: every tensor among the operands is float32, or float64, numbers are Python's and real, and so
is the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler.kernels.expr import Apply, Expr, Number, Operand, operands_of, substitute
from engine.compiler.kernels.functions.typed import DOUBLES
from engine.compiler.lowering.terms.registry import EXPRESSION_RULES, PREPARATIONS, SINGLE, Argument
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.definition.parameter import coerce
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec, is_known, known_value

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """What an operator computes of every element.

    Args:
        tree: its operand k stands for ``inputs[k]``.
        inputs: each the index of an operand of the operator, or a constant; all broadcast as in numpy. Those
            the result does not depend on are left out.
    """

    tree: Expr
    inputs: tuple[int | Array, ...]


def term_of(bound: BoundLayer, inputs: Sequence[object]) -> Term | None:
    """The expression an operator stands for; None when it is no map of one dtype or reads no tensor.

    Args:
        inputs: what is known of each operand of the operator: a TensorSpec, a Python value, UNKNOWN, or the array
            itself where the operand is a constant.

    Raises:
        EngineError: the operands do not fit the layer.
    """
    layer = settled(bound, inputs)
    if layer is None or type(layer) not in EXPRESSION_RULES or bound.keywords:
        return None
    result = bound.infer(inputs)
    dtype = result.dtype if isinstance(result, TensorSpec) else None
    if dtype is None or dtype not in (_FLOAT32, *(() if type(layer) in SINGLE else (_FLOAT64,))):
        return None
    given = [_given(source.value(inputs), source.index, dtype) for source in bound.positional]
    prepare = PREPARATIONS.get(type(layer))
    arguments = given if prepare is None else prepare(layer, *given)
    term = None if arguments is None else _term(layer, arguments, dtype)
    return None if term is None or (dtype == _FLOAT64 and not _names(term.tree) <= DOUBLES.keys()) else term


def _names(tree: Expr) -> set[str]:
    if not isinstance(tree, Apply):
        return set()
    return {tree.name}.union(*(_names(each) for each in tree.arguments))


def _given(value: object, index: int | None, dtype: DType) -> Argument:
    """An argument; truths that are known are 1.0 and 0.0."""
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return Argument(value.astype(dtype))
    return Argument(value, index)


def settled(bound: BoundLayer, inputs: Sequence[object]) -> Layer | None:
    """The layer with the parameters that arrive as operands filled in; None if only a run can tell them.

    Args:
        inputs: what is known of each operand of the operator, as ``term_of`` takes it.

    Raises:
        EngineError: a parameter is not what the layer takes.
    """
    if not bound.dynamic:
        return bound.layer
    values = {name: known_value(inputs[index]) for name, index in bound.dynamic.items()}
    if not is_known(list(values.values())):
        return None
    hints = bound.signature.fields
    fields = {name: coerce(value, hints[name]) for name, value in values.items()}
    return dataclasses.replace(bound.layer, **fields)


def _term(layer: Layer, arguments: Sequence[Argument], dtype: DType) -> Term | None:
    inputs: dict[int, int | Array] = {}  # by operand of the tree
    numbers: dict[int, int] = {}  # operand of the operator -> of the tree
    terms: list[Expr | None] = []
    for argument in arguments:
        value = argument.value
        if isinstance(value, bool | int | float):
            terms.append(Number(value))
        elif value is None:
            terms.append(None)
        elif _is_of(value, dtype) and argument.index is not None:
            number = numbers.setdefault(argument.index, len(inputs))
            inputs[number] = argument.index
            terms.append(Operand(number))
        elif _is_of(value, dtype) and isinstance(value, np.ndarray):
            inputs[len(inputs)] = value
            terms.append(Operand(len(inputs) - 1))
        else:
            return None
    tree = EXPRESSION_RULES[type(layer)](layer, *terms)
    used = [] if tree is None else sorted(operands_of(tree))
    if tree is None or not used:
        return None
    renumbered = [Operand(used.index(number)) if number in used else Number(0.0) for number in inputs]
    return Term(_rounded(substitute(tree, renumbered), dtype), tuple(inputs[number] for number in used))


def _is_of(value: object, dtype: DType) -> bool:
    return isinstance(value, TensorSpec | np.ndarray) and value.dtype == dtype


def _rounded(tree: Expr, dtype: DType) -> Expr:
    """The tree with its numbers rounded to a dtype, as they are where they meet a tensor."""
    if isinstance(tree, Number):
        return Number(float(cast(tree.value, dtype)))
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(_rounded(each, dtype) for each in tree.arguments))
    return tree
