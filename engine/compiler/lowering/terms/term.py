"""Element-wise operators as expressions: the registry of rules, and from a bound layer to the tree of a kernel.

A rule gets the layer and the expressions of its arguments in the order of ``forward``, None where one is left out. It
returns the expression of the result, or None where this layer with these parameters is not such a map. Every tensor
among the operands is float32, and so is the result; or all of it is float64, unless the rule is for float32 alone.

A preparation comes before the rule and changes the arguments themselves: a weight for every channel is brought into
the shape that broadcasts against the input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from engine.compiler.kernels.expr import Apply, Expr, Number, Operand, names_of, operands_of, substitute
from engine.compiler.kernels.functions.typed import DOUBLES
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.definition.parameter import coerce
from engine.passes.support.byte_products import BYTES
from engine.promotion import cast
from engine.tensor import Array, DType, Shape, TensorSpec, is_known, known_value, product


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """Argument of ``forward`` before the run.

    Args:
        value: the spec of a tensor, the array of a constant one, or a Python value.
        index: number of the operator's operand; None if it is not an operand.
    """

    value: object
    index: int | None = None

    @property
    def shape(self) -> Shape:
        """Return the shape of the operand; () for a number."""
        return self.value.shape if isinstance(self.value, np.ndarray | TensorSpec) else ()

    @property
    def dtype(self) -> DType:
        """Return the dtype of the tensor; float32 for other values."""
        return self.value.dtype if isinstance(self.value, np.ndarray | TensorSpec) else np.dtype(np.float32)

    @property
    def array(self) -> Array | None:
        """Return the elements of the operand if they are known before the run, else None."""
        return self.value if isinstance(self.value, np.ndarray) else None


ExpressionRule: TypeAlias = Callable[..., Expr | None]
Preparation: TypeAlias = Callable[..., Sequence[Argument] | None]

EXPRESSION_RULES: dict[type[Layer], ExpressionRule] = {}
PREPARATIONS: dict[type[Layer], Preparation] = {}
SINGLE: set[type[Layer]] = set()
"""Layers whose rules are valid only for float32."""
CONVERTING: set[type[Layer]] = set()
"""Layers between float32 and bytes."""


def expression_for(*layers: type[Layer], doubles: bool = True) -> Callable[[ExpressionRule], ExpressionRule]:
    """Register the rule of exactly these classes, not of their subclasses.

    Args:
        doubles: whether it is valid for float64 too.
    """

    def add(rule: ExpressionRule) -> ExpressionRule:
        EXPRESSION_RULES.update(dict.fromkeys(layers, rule))
        if not doubles:
            SINGLE.update(layers)
        return rule

    return add


def converts(*layers: type[Layer]) -> Callable[[ExpressionRule], ExpressionRule]:
    """Register layers whose operands or results are bytes, which the expression has as float32."""

    def add(rule: ExpressionRule) -> ExpressionRule:
        CONVERTING.update(layers)
        return rule

    return add


def prepares(*layers: type[Layer]) -> Callable[[Preparation], Preparation]:
    """Register a preparation, which changes the arguments of these layers before their rule gets them.

    It takes the layer and the Arguments, and returns Arguments, or None where the layer is not a map.
    """

    def add(preparation: Preparation) -> Preparation:
        PREPARATIONS.update(dict.fromkeys(layers, preparation))
        return preparation

    return add


def per_channel(argument: Argument, rank: int) -> Argument | None:
    """Return a vector with an element a channel, broadcast along axis 1 of that rank; None if that is not possible."""
    is_single = product(argument.shape) == 1
    if argument.array is not None and is_single:
        return Argument(argument.array.reshape(()))
    if rank == 2 or (is_single and rank >= 1):
        return argument
    if argument.array is None or rank < 2:
        return None
    return Argument(argument.array.reshape(-1, *[1] * (rank - 2)))


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Expression that an operator computes of every element.

    Args:
        tree: its operand k stands for ``inputs[k]``.
        inputs: indices of operands of the operator, or constants; all broadcast as in numpy. Inputs that the result
            does not depend on are left out.
    """

    tree: Expr
    inputs: tuple[int | Array, ...]


def term_of(bound: BoundLayer, inputs: Sequence[object]) -> Term | None:
    """Return the expression of an operator; None if it is not a map of one dtype, or reads no tensor.

    Args:
        inputs: what is known of each operand of the operator: a TensorSpec, a Python value, UNKNOWN, or the array
            itself where the operand is a constant.

    Raises:
        EngineError: the operands do not fit the layer.
    """
    layer = with_known_parameters(bound, inputs)
    if layer is None or type(layer) not in EXPRESSION_RULES or bound.keywords:
        return None
    result = bound.infer(inputs)
    dtype = result.dtype if isinstance(result, TensorSpec) else None
    if type(layer) in CONVERTING and dtype in BYTES:
        dtype = _FLOAT32
    if dtype is None or dtype not in (_FLOAT32, *(() if type(layer) in SINGLE else (_FLOAT64,))):
        return None
    given = [_given(source.value(inputs), source.index, dtype) for source in bound.positional]
    prepare = PREPARATIONS.get(type(layer))
    arguments = given if prepare is None else prepare(layer, *given)
    term = None if arguments is None else _term(layer, arguments, dtype)
    return None if term is None or (dtype == _FLOAT64 and not names_of(term.tree) <= DOUBLES.keys()) else term


def _given(value: object, index: int | None, dtype: DType) -> Argument:
    """Return an argument; known booleans become 1.0 and 0.0."""
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return Argument(value.astype(dtype))
    return Argument(value, index)


def with_known_parameters(bound: BoundLayer, inputs: Sequence[object]) -> Layer | None:
    """Return the layer with the parameters that arrive as operands; None if one is known only at run time.

    Args:
        inputs: what is known of each operand of the operator, as ``term_of`` takes it.

    Raises:
        EngineError: a parameter has a wrong type or value.
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
        elif _is_of(value, dtype, type(layer)) and argument.index is not None:
            number = numbers.setdefault(argument.index, len(inputs))
            inputs[number] = argument.index
            terms.append(Operand(number))
        elif _is_of(value, dtype, type(layer)) and isinstance(value, np.ndarray):
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


def _is_of(value: object, dtype: DType, layer: type[Layer]) -> bool:
    if not isinstance(value, TensorSpec | np.ndarray):
        return False
    return value.dtype == dtype or (layer in CONVERTING and value.dtype in BYTES)


def _rounded(tree: Expr, dtype: DType) -> Expr:
    """Return the tree with its numbers rounded to a dtype, as they are where they meet a tensor."""
    if isinstance(tree, Number):
        return Number(float(cast(tree.value, dtype)))
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(_rounded(each, dtype) for each in tree.arguments))
    return tree
