"""The registry of element-wise rules: what a layer computes of one element of each operand, as an expression.

A rule gets the layer and the expressions of its arguments in the order of ``forward``, None where one is left out, and
returns the expression of the result, or None where this layer with these parameters is no such map. It may take for
granted that every tensor among the operands is float32, and so is the result; or all of it float64, unless the rule is
for float32 alone.

A preparation comes before the rule and changes the arguments themselves: a weight for every channel is brought into
the shape that broadcasts against the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from engine.compiler.kernels.expr import Expr
from engine.layers.definition.layer import Layer
from engine.tensor import Array, DType, Shape, TensorSpec, product


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """An argument of ``forward`` before the run.

    Args:
        value: the spec of a tensor, the array of a constant one, or a Python value.
        index: the operand of the operator it is, None where it is none, or no longer.
    """

    value: object
    index: int | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the operand; () for a number."""
        return self.value.shape if isinstance(self.value, np.ndarray | TensorSpec) else ()

    @property
    def dtype(self) -> DType:
        """The dtype of the tensor; float32 for what is no tensor."""
        return self.value.dtype if isinstance(self.value, np.ndarray | TensorSpec) else np.dtype(np.float32)

    @property
    def array(self) -> Array | None:
        """The elements of the operand, if they are known before the run."""
        return self.value if isinstance(self.value, np.ndarray) else None


ExpressionRule: TypeAlias = Callable[..., Expr | None]
Preparation: TypeAlias = Callable[..., Sequence[Argument] | None]

EXPRESSION_RULES: dict[type[Layer], ExpressionRule] = {}
PREPARATIONS: dict[type[Layer], Preparation] = {}
SINGLE: set[type[Layer]] = set()
"""Layers whose rules count on float32."""


def expression_for(*layers: type[Layer], doubles: bool = True) -> Callable[[ExpressionRule], ExpressionRule]:
    """Decorator: the rule of these very classes, not of those derived from them.

    Args:
        doubles: it is right for float64, too.
    """

    def add(rule: ExpressionRule) -> ExpressionRule:
        EXPRESSION_RULES.update(dict.fromkeys(layers, rule))
        if not doubles:
            SINGLE.update(layers)
        return rule

    return add


def prepares(*layers: type[Layer]) -> Callable[[Preparation], Preparation]:
    """Decorator: what becomes of the arguments of these layers before their rule gets them.

    It takes the layer and the Arguments, and returns Arguments, or None where the layer is no map.
    """

    def add(preparation: Preparation) -> Preparation:
        PREPARATIONS.update(dict.fromkeys(layers, preparation))
        return preparation

    return add


def per_channel(argument: Argument, rank: int) -> Argument | None:
    """A vector with an element a channel, broadcast along axis 1 of a tensor of that rank; None if it cannot be."""
    is_single = product(argument.shape) == 1
    if argument.array is not None and is_single:
        return Argument(argument.array.reshape(()))
    if rank == 2 or (is_single and rank >= 1):
        return argument
    if argument.array is None or rank < 2:
        return None
    return Argument(argument.array.reshape(-1, *[1] * (rank - 2)))
