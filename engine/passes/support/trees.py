"""Expression trees taken apart and put together. Like the trees themselves, nothing here recurses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_fields

from engine.expression import Call, Input, List, Node, format, inputs, postorder
from engine.pnnx import Operator


def rebuilt(node: Node, children: Sequence[Node]) -> Node:
    """A node with other children; itself where they are the same."""
    if all(new is old for new, old in zip(children, node.children, strict=True)):
        return node
    return Call(node.function, tuple(children)) if isinstance(node, Call) else List(tuple(children))


def replaced(root: Node, others: Mapping[Node, Node]) -> Node:
    """A tree with other nodes in the place of some; what is put in is not looked into."""
    done: dict[Node, Node] = {}
    for node in postorder(root):
        done[node] = others[node] if node in others else rebuilt(node, [done[child] for child in node.children])
    return done[root]


def renumbered(root: Node, numbers: Mapping[int, int]) -> Node:
    """A tree that reads other inputs: ``@k`` becomes ``@numbers[k]``."""
    return replaced(root, {Input(old): Input(new) for old, new in numbers.items()})


def uses(root: Node) -> Iterator[int]:
    """The index of every input where it stands in the tree, repeated as often as it does."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Input):
            yield node.index
        pending.extend(node.children)


def reading(op: Operator, root: Node, operands: Sequence[str]) -> Operator:
    """An operator as an expression.

    Args:
        root: reads ``operands`` by their index; those it does not read are left out.
    """
    used = sorted(inputs(root))
    text = format(renumbered(root, {old: new for new, old in enumerate(used)}))
    return with_fields(
        op,
        type="pnnx.Expression",
        inputs=tuple(operands[index] for index in used),
        labels=(),
        params={"expr": text},
        attributes={},
    )
