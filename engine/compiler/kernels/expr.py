"""Element-wise expression trees: the epilogue of a kernel, or the body of a map.

A tree consists of numbers, operands and applied functions. In an epilogue, operand 0 is the accumulator. ``emit``
writes a tree for vectors of any width; every function is in ``FUNCTIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Value, constant, element_of
from engine.compiler.kernels.functions import math, typed

# Largest nesting depth, because walkers recurse, and largest number of functions in an expression.
DEEPEST = 80
LARGEST = 400
# Instructions an element from which a function is expensive.
EXPENSIVE = 12


@dataclass(frozen=True, slots=True)
class Number:
    """A float32 constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Operand:
    """The element of an operand."""

    index: int


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of ``FUNCTIONS`` applied to arguments."""

    name: str
    arguments: tuple[Expr, ...]


Expr: TypeAlias = Number | Operand | Apply
Functions: TypeAlias = Mapping[str, Callable[..., Value]]
RESULT: Final[Expr] = Operand(0)
"""The accumulator itself."""


def apply(name: str, *arguments: Expr | float) -> Expr:
    """Return a function applied to expressions and numbers: ``apply("max", x, 0.0)``."""
    trees = (each if isinstance(each, Number | Operand | Apply) else Number(each) for each in arguments)
    return Apply(name, tuple(trees))


def substitute(tree: Expr, values: Sequence[Expr]) -> Expr:
    """Return the tree with operand k replaced by ``values[k]``."""
    if isinstance(tree, Operand):
        return values[tree.index]
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(substitute(each, values) for each in tree.arguments))
    return tree


def operands_of(tree: Expr) -> set[int]:
    """Return the indices of the operands a tree reads."""
    if isinstance(tree, Operand):
        return {tree.index}
    if isinstance(tree, Apply):
        return set().union(*(operands_of(each) for each in tree.arguments)) if tree.arguments else set()
    return set()


def extent(tree: Expr, done: dict[int, tuple[int, int]] | None = None) -> tuple[int, int]:
    """Return the nesting depth and the number of applied functions; repeated sub-trees count every time.

    Args:
        done: results for sub-trees by ``id()``; the caller keeps those trees alive.
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
    """Return whether an expression is small enough for one kernel; ``done`` as in ``extent``."""
    depth, count = extent(tree, done)
    return depth <= DEEPEST and count <= LARGEST


def cost(tree: Expr) -> int:
    """Return the approximate number of vector instructions an element."""
    if isinstance(tree, Apply):
        return math.COSTS.get(tree.name, 1) + sum(cost(each) for each in tree.arguments)
    return 0


def names_of(tree: Expr) -> set[str]:
    """Return the functions that a tree applies."""
    if not isinstance(tree, Apply):
        return set()
    return {tree.name}.union(*(names_of(each) for each in tree.arguments))


def expensive(tree: Expr) -> int:
    """Return the instructions an element of functions that take many, such as exponentials."""
    if not isinstance(tree, Apply):
        return 0
    own = math.COSTS.get(tree.name, 1)
    return own * (own >= EXPENSIVE) + sum(map(expensive, tree.arguments))


def emit(
    f: Function,
    tree: Expr,
    operands: Sequence[Value],
    type_: str | None = None,
    functions: Functions | None = None,
) -> Value:
    """Emit the tree for one vector of ``type_`` (default: the operands' type); equal sub-trees are emitted once.

    Args:
        functions: function table, where the type does not determine it.
    """
    type_ = type_ or operands[0].type
    return _emit(f, tree, operands, type_, functions or functions_of(type_), {})


def functions_of(type_: str) -> Functions:
    """Return the function table for vectors of float32 or float64."""
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
