"""Element-wise expressions, as kernels carry them: what happens to a value between register and memory.

A tree of numbers, operands and applied functions. The same tree is the epilogue of a convolution, where operand 0 is
the accumulator, and the body of a map. ``emit`` writes it for vectors of any width; every function is in ``FUNCTIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from engine.compiler.codegen.ir import Function, Value, constant, element_of
from engine.compiler.kernels.functions import math, typed

# Limits of an expression: the depth of nested functions, which walkers recurse through, and their number.
DEEPEST = 80
LARGEST = 400


@dataclass(frozen=True, slots=True)
class Number:
    """A float32 constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Operand:
    """The value an operand has at this element."""

    index: int


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of ``FUNCTIONS`` applied to arguments."""

    name: str
    arguments: tuple[Expr, ...]


Expr: TypeAlias = Number | Operand | Apply
Functions: TypeAlias = Mapping[str, Callable[..., Value]]


def apply(name: str, *arguments: Expr | float) -> Expr:
    """A function applied to expressions and numbers: ``apply("max", x, 0.0)``."""
    trees = (each if isinstance(each, Number | Operand | Apply) else Number(each) for each in arguments)
    return Apply(name, tuple(trees))


def substitute(tree: Expr, values: Sequence[Expr]) -> Expr:
    """The tree with operand k replaced by ``values[k]``."""
    if isinstance(tree, Operand):
        return values[tree.index]
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(substitute(each, values) for each in tree.arguments))
    return tree


def operands_of(tree: Expr) -> set[int]:
    """Indices of the operands a tree reads."""
    if isinstance(tree, Operand):
        return {tree.index}
    if isinstance(tree, Apply):
        return set().union(*(operands_of(each) for each in tree.arguments)) if tree.arguments else set()
    return set()


def extent(tree: Expr, done: dict[int, tuple[int, int]] | None = None) -> tuple[int, int]:
    """How deep functions are nested, and how many are applied, those of repeated sub-trees counted again.

    Args:
        done: of sub-trees measured before, by their identity; they must live on.
    """
    done = {} if done is None else done
    if not isinstance(tree, Apply):
        return 0, 0
    if id(tree) not in done:
        parts = [extent(each, done) for each in tree.arguments]
        depth = max((depth for depth, _ in parts), default=0)
        done[id(tree)] = 1 + depth, 1 + sum(count for _, count in parts)
    return done[id(tree)]


def is_moderate(tree: Expr, done: dict[int, tuple[int, int]] | None = None) -> bool:
    """Whether a kernel can carry so large an expression; ``done`` as extent() has it."""
    depth, count = extent(tree, done)
    return depth <= DEEPEST and count <= LARGEST


def cost(tree: Expr) -> int:
    """Roughly how many vector instructions an element costs."""
    if isinstance(tree, Apply):
        return math.COSTS.get(tree.name, 1) + sum(cost(each) for each in tree.arguments)
    return 0


def emit(
    f: Function,
    tree: Expr,
    operands: Sequence[Value],
    type_: str | None = None,
    functions: Functions | None = None,
) -> Value:
    """Write the tree for one vector of ``type_``, the operands' by default; equal sub-trees are written once.

    Args:
        functions: what there is for such vectors, where that is not told by their type.
    """
    type_ = type_ or operands[0].type
    return _emit(f, tree, operands, type_, functions or functions_of(type_), {})


def functions_of(type_: str) -> Functions:
    """What there is to compute with vectors of float32 or float64."""
    return typed.DOUBLES if element_of(type_) == "double" else math.FUNCTIONS


def _emit(
    f: Function,
    tree: Expr,
    operands: Sequence[Value],
    type_: str,
    functions: Functions,
    done: dict[Expr, Value],
) -> Value:
    if isinstance(tree, Operand):
        return operands[tree.index]
    if isinstance(tree, Number):
        return constant(tree.value, type_)
    if tree not in done:
        arguments = [_emit(f, each, operands, type_, functions, done) for each in tree.arguments]
        done[tree] = functions[tree.name](f, *arguments)
    return done[tree]
