"""A tree as steps of a stack machine, in an order that needs few values at once.

Of the arguments of a call the one that needs most on the way is computed first, as Sethi and Ullman assign registers:
a tree of n calls of two arguments holds no more than about log2(n) values, whichever way it leans.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from engine.errors import ExpressionError
from engine.expression.functions import FUNCTIONS, Function
from engine.expression.tree import Call, Node, postorder


class Step(NamedTuple):
    """A node; of a call its function; where among the last values of the stack its arguments are, in their order."""

    node: Node
    function: Function | None
    places: tuple[int, ...]


@lru_cache(maxsize=1024)
def program_of(root: Node) -> tuple[Step, ...]:
    """Every node after those it is made of; the root is the last.

    Raises:
        ExpressionError: for a function there is not.
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
    """Node -> the order in which its children are computed; values of one size are assumed."""
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
        raise ExpressionError("no such function", found=f"{call.function} of {len(call.args)}",
                              expected="a function of the language with all its arguments")  # fmt: skip
    return function
