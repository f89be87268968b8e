"""Nodes and stored tensors of an ONNX model while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from engine.onnx_writing.value import Value
from engine.tensor import Array, DType

OPSET: Final = 20
"""Operator set of a file, unless an operator needs a newer one."""
_SHARED_BYTES: Final = 1024
"""Constants up to this size are stored once, whatever uses them."""


@dataclass(slots=True, eq=False)
class Node:
    """Node of an ONNX graph; attributes are plain values, or ``Graph`` for subgraphs."""

    type: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes in order and by the names of their outputs, and the inputs and outputs of a graph or subgraph."""

    nodes: list[Node] = field(default_factory=list)
    producers: dict[str, Node] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)


class Builder:
    """Names and stored tensors of a model, and the nodes of the graph that is being written.

    Attributes:
        graph: the graph or subgraph that nodes are added to.
        stored: initialisers of the model by name; subgraphs use them too.
        opset: version of the operator set.
        scope: name of the operator that is being written, the prefix of new names.
        vectors: the vector of one element that a size was made from, by the size's name.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.stored: dict[str, Array] = {}
        self.opset = OPSET
        self.scope = ""
        self.vectors: dict[str, Value] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._names: set[str] = set()
        self._renamed: dict[str, str] = {}

    def fresh(self, name: str) -> str:
        """Return a name that is not used yet: the given one, or the same with a number."""
        found, count = name, 1
        while not found or found in self._names:
            found, count = f"{name}/{count}", count + 1
        self._names.add(found)
        return found

    def node(
        self, type: str, inputs: Sequence[Value | None], dtypes: Sequence[DType], **attributes: Any
    ) -> list[Value]:
        """Add a node and return its outputs, of unknown shape; attributes that are None are left out."""
        names = ["" if each is None else each.name for each in inputs]
        while names and not names[-1]:
            names.pop()
        name = self.fresh(f"{self.scope}/{type}")
        count = len(dtypes)
        outputs = [self.fresh(f"{name}/out" if count == 1 else f"{name}/out{k}") for k in range(count)]
        node = Node(type, name, names, outputs, {key: each for key, each in attributes.items() if each is not None})
        self.graph.nodes.append(node)
        self.graph.producers.update(dict.fromkeys(outputs, node))
        return [self._value(output, dtype) for output, dtype in zip(outputs, dtypes, strict=True)]

    def _value(self, *facts: Any) -> Value:
        return Value(self, *facts)  # type: ignore[arg-type]  # every builder is a Writer

    def store(self, array: Array, name: str = "") -> Value:
        """Store an array; small ones without a name are stored once."""
        array = np.asarray(array)
        if name or array.nbytes > _SHARED_BYTES or array.dtype.hasobject:
            return self._stored(array, name or f"{self.scope}/constant")
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self._stored(array, "constant")
        return self._shared[key]

    def _stored(self, array: Array, name: str) -> Value:
        name = self.fresh(name)
        self.stored[name] = array
        return self._value(name, array.dtype, array.shape, array)

    def rename(self, value: Value, name: str | None, wish: str = "") -> None:
        """Give the output of a node another name; nothing happens if it is no such output or was renamed before.

        Args:
            name: the name, which is reserved; None for a fresh one that resembles ``wish``.
        """
        if value.name not in self._renamed and self.producer(value) is not None:
            self._renamed[value.name] = self.fresh(wish) if name is None else name

    def public(self, name: str) -> str:
        """Return the name of a tensor in the file."""
        return self._renamed.get(name, name)

    def producer(self, value: Value) -> Node | None:
        """Return the node of the current graph that makes a value."""
        return self.graph.producers.get(value.name)

    def prune(self) -> None:
        """Drop nodes whose outputs are not used, and tensors that no node uses."""
        used = _prune(self.graph)
        self.stored = {name: array for name, array in self.stored.items() if name in used}


def _prune(graph: Graph) -> set[str]:
    """Remove unused nodes; return the names of all tensors that are used."""
    used = {each.name for each in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not used.isdisjoint(node.outputs):
            kept.append(node)
            used.update(node.inputs)
            for each in node.attributes.values():
                if isinstance(each, Graph):
                    used |= _prune(each)
    graph.nodes[:] = reversed(kept)
    return used
