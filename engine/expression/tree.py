"""The tree of an expression: literals, inputs, calls and lists.

Nodes are plain, immutable and hashable. Two trees are equal when they print alike: NaN equals NaN, but 1, 1.0 and
True are three literals, and so are 0.0 and -0.0. Nothing here recurses, so a tree may be as deep as its text allows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TypeAlias

from engine.errors import ExpressionError


class _Node:
    """What all nodes share: equality and a hash computed once, from those of the children."""

    __slots__ = ("_hash",)

    _hash: int

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes this one is made of, in order."""
        return ()

    @property
    def label(self) -> tuple[object, ...]:
        """All that tells this node from another with the same children."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.label, *map(hash, self.children))))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Node) or self._hash != other._hash:
            return False
        mine, theirs = _backwards(self), _backwards(other)
        return len(mine) == len(theirs) and all(a.label == b.label for a, b in zip(mine, theirs, strict=True))

    def __repr__(self) -> str:
        """In the order a stack machine runs it: ``<@0 1 add>``."""
        return f"<{' '.join(str(node.label[-1]) for node in reversed(_backwards(self)))}>"

    def __reduce__(self) -> tuple[type[_Node], tuple[object, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(_Node):
    """A constant: a number, True, False, None or a word."""

    value: bool | int | float | complex | str | None

    @property
    def label(self) -> tuple[object, ...]:
        return (type(self.value), repr(self.value))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Input(_Node):
    """``@k``: the k-th input operand."""

    index: int

    @property
    def label(self) -> tuple[object, ...]:
        return (f"@{self.index}",)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(_Node):
    """A function of the language applied to its arguments."""

    function: str
    args: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.args

    @property
    def label(self) -> tuple[object, ...]:
        return (len(self.args), self.function)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class List(_Node):
    """``[a,b,...]``: values side by side."""

    items: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.items

    @property
    def label(self) -> tuple[object, ...]:
        return (List, len(self.items), "[]")


Node: TypeAlias = Literal | Input | Call | List


def _backwards(root: _Node) -> list[_Node]:
    """Every node before its children, the last child first: the reverse of every node after its children."""
    order: list[_Node] = []
    pending = [root]
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(node.children)
    return order


@lru_cache(maxsize=4096)
def postorder(root: Node) -> tuple[Node, ...]:
    """Every node after its children, children in order: what a stack machine runs."""
    return tuple(reversed(_backwards(root)))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def inputs(root: Node) -> frozenset[int]:
    """The input operands an expression reads."""
    return frozenset(node.index for node in postorder(root) if isinstance(node, Input))


def check_arity(root: Node, n_inputs: int) -> None:
    """Check that an expression reads no more inputs than it is given.

    Raises:
        ExpressionError: for an input @k with k >= n_inputs.
    """
    last = max(inputs(root), default=-1)
    if last >= n_inputs:
        expected = f"@0 to @{n_inputs - 1}" if n_inputs > 1 else "only @0" if n_inputs else "no input"
        raise ExpressionError("the expression reads an input it is not given", found=f"@{last}", expected=expected)
