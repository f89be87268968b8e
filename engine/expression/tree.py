"""The tree of an expression: literals, inputs, calls and lists.

Nodes are plain, immutable and hashable. Two trees are equal if they print the same: NaN equals NaN, but 1, 1.0 and
True are three literals, and so are 0.0 and -0.0. Nothing here recurses, so a tree may be as deep as its text allows.
A node has a digest of its subtree, so that comparing large trees is as fast as comparing small ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

from engine.errors import ExpressionError

_DIGEST_BYTES: Final = 16


class _Node:
    """Base of all nodes: a digest, computed once from those of the children, identifies the subtree."""

    __slots__ = ("_digest",)

    _digest: bytes

    @property
    def children(self) -> tuple[Node, ...]:
        """Children of the node, in order."""
        return ()

    @property
    def label(self) -> tuple[object, ...]:
        """Everything that distinguishes this node from another with the same children."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        below = b"".join(child._digest for child in self.children)
        state = blake2b(len(below).to_bytes(8, "big") + below, digest_size=_DIGEST_BYTES)
        state.update(repr(self.label).encode("utf-8", "surrogatepass"))
        object.__setattr__(self, "_digest", state.digest())

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Node) and self._digest == other._digest)

    def __repr__(self) -> str:
        """Return the expression in postfix order, as a stack machine runs it: ``<@0 1 add>``."""
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
    """``[a,b,...]``: a list of values."""

    items: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.items

    @property
    def label(self) -> tuple[object, ...]:
        return (List, len(self.items), "[]")


Node: TypeAlias = Literal | Input | Call | List


def _backwards(root: _Node) -> list[_Node]:
    """Return every node before its children, the last child first: the reverse of postorder."""
    order: list[_Node] = []
    pending = [root]
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(node.children)
    return order


def postorder(root: Node) -> tuple[Node, ...]:
    """Return every node after its children, children in order, as a stack machine runs them."""
    return tuple(reversed(_backwards(root)))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def inputs(root: Node) -> frozenset[int]:
    """Return the input operands that an expression reads."""
    return frozenset(node.index for node in postorder(root) if isinstance(node, Input))


def check_arity(root: Node, n_inputs: int) -> None:
    """Refuse an expression that reads more inputs than it is given.

    Raises:
        ExpressionError: for an input @k with k >= n_inputs.
    """
    last = max(inputs(root), default=-1)
    if last >= n_inputs:
        expected = f"@0 to @{n_inputs - 1}" if n_inputs > 1 else "only @0" if n_inputs else "no input"
        raise ExpressionError("the expression reads a missing input", found=f"@{last}", expected=expected)
