"""Tree ensembles of a file as tables, in traversal order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.cancellation import check_cancelled
from engine.errors import ParameterError
from engine.tensor import Array

_SAME_LENGTH: Final = "lists of a tree are not equally long"


@dataclass(slots=True, kw_only=True)
class Forest:
    """Nodes and leaves in any order.

    Args:
        true, false: child node indices; leaf k is -1 - k.
        leaf: leaf index of each entry.
        members: values of each node that tests for membership in a set.
    """

    mode: Array
    feature: Array
    split: Array
    missing: Array
    true: Array
    false: Array
    roots: Array
    leaves: int
    leaf: Array
    target: Array
    weight: Array
    members: Mapping[int, Array] | None = None

    def tables(self) -> dict[str, Array]:
        """Return the tables of the tree layer: children after their parents, entries sorted by leaf.

        A node may have several parents: LightGBM's converter writes a set of categories as a chain of comparisons
        with one common child.

        Raises:
            ParameterError: a node is among its own children.
        """
        order = self._order()
        number = np.full(len(self.mode), -1, np.int64)
        number[order] = np.arange(len(order))
        entries = np.argsort(self.leaf, kind="stable")
        first = np.searchsorted(self.leaf[entries], np.arange(self.leaves + 1))
        tables = {
            "mode": self.mode[order].astype(np.uint8),
            "feature": self.feature[order],
            "split": self.split[order],
            "missing": self.missing[order].astype(np.bool_),
            "true": _renumbered(self.true[order], number),
            "false": _renumbered(self.false[order], number),
            "roots": _renumbered(self.roots, number),
            "first": first.astype(np.int64),
            "target": self.target[entries],
            "weight": self.weight[entries],
        }
        return {**tables, **self._sets(order)}

    def _order(self) -> Array:
        """Return the reachable nodes, each after all of its parents."""
        for name, place in (("true", self.true), ("false", self.false), ("roots", self.roots)):
            if place.size and not (-self.leaves <= int(place.min()) and int(place.max()) < len(self.mode)):
                found = int(place.max()) if int(place.max()) >= len(self.mode) else int(place.min())
                raise ParameterError(f"no such {name} node", found=found, expected=f"one of {len(self.mode):,}")
        used = self._reached()
        waits = np.bincount(self._children(np.flatnonzero(used)), minlength=len(used))
        levels, level = [], np.flatnonzero(used & (waits == 0))
        while level.size:
            check_cancelled()
            levels.append(level)
            below = self._children(level)
            np.subtract.at(waits, below, 1)
            level = np.unique(below[waits[below] == 0])
        order = np.concatenate([np.zeros(0, np.int64), *levels])
        if len(order) < int(used.sum()):
            raise ParameterError("a node of a tree is among its own children", expected="ways that end at a leaf")
        return order

    def _reached(self) -> Array:
        """Return a mask of the nodes reachable from a root."""
        used = np.zeros(len(self.mode), np.bool_)
        level = self.roots[self.roots >= 0]
        while level.size:
            check_cancelled()
            used[level] = True
            below = np.unique(self._children(level))
            level = below[~used[below]]
        return used

    def _children(self, nodes: Array) -> Array:
        """Return the child nodes (no leaves) of some nodes, repeated once per parent."""
        below = np.concatenate([self.true[nodes], self.false[nodes]])
        return below[below >= 0]

    def _sets(self, order: Array) -> dict[str, Array]:
        if not self.members:
            return {}
        found = [np.sort(self.members.get(int(node), _NONE)) for node in order]
        ends = np.cumsum([0, *map(len, found)])
        return {"sets": ends.astype(np.int64), "members": np.concatenate(found)}


_NONE: Final = np.zeros(0, np.float32)


def _renumbered(places: Array, number: Array) -> Array:
    return np.where(places >= 0, number[np.maximum(places, 0)] if len(number) else places, places).astype(np.int64)


def column(given: Mapping[str, Any], name: str, length: int | None = None, kind: str = "i") -> Array:
    """Return an attribute as an array of numbers.

    Args:
        length: required length, if any.
        kind: "i" for integers, "f" for numbers stored as a tensor or a list.

    Raises:
        ParameterError: it is no list of numbers, or of another length.
    """
    value = given.get(f"{name}_as_tensor") if kind == "f" else None
    value = given.get(name, ()) if value is None else value
    if not isinstance(value, np.ndarray):
        plain = isinstance(value, (tuple, list)) and all(isinstance(each, (int, float)) for each in value)
        if not plain:
            raise ParameterError(f"attribute '{name}' is no list of numbers", found=type(value).__name__)
        value = np.array(value, np.int64 if kind == "i" else np.float32)
    if value.ndim != 1 or value.dtype.kind not in ("iu" if kind == "i" else "iuf"):
        raise ParameterError(f"attribute '{name}' is no list of numbers", found=f"{value.dtype} {list(value.shape)}")
    if length is not None and len(value) != length:
        raise ParameterError(_SAME_LENGTH, found=f"{len(value):,} {name}", expected=f"{length:,}")
    return value


class Places:
    """Index of nodes by tree id and node id."""

    def __init__(self, trees: Array, nodes: Array) -> None:
        self._trees, tree = np.unique(trees, return_inverse=True)
        self._nodes, node = np.unique(nodes, return_inverse=True)
        keys = tree.astype(np.int64) * len(self._nodes) + node
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        repeated = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if repeated.size:
            place = int(self._order[repeated[0]])
            raise ParameterError("a node of a tree is there twice", found=_named(int(trees[place]), int(nodes[place])))

    def find(self, trees: Array, nodes: Array, what: str) -> Array:
        """Return the indices of nodes in the lists.

        Raises:
            ParameterError: there is no node with these ids.
        """
        tree, has_tree = _rank(self._trees, trees)
        node, has_node = _rank(self._nodes, nodes)
        place, has = _rank(self._keys, tree * len(self._nodes) + node)
        lost = np.flatnonzero(~(has & has_tree & has_node))
        if lost.size:
            raise ParameterError(f"no such node ({what})", found=_named(int(trees[lost[0]]), int(nodes[lost[0]])))
        return np.asarray(self._order[place])


def _named(tree: int, node: int) -> str:
    return f"node {node} of tree {tree}"


def _rank(known: Array, wanted: Array) -> tuple[Array, Array]:
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return place, np.asarray(known[place] == wanted)


def sets_of(values: Array, nodes: Sequence[int]) -> dict[int, Array]:
    """Split values at their NaN terminators into one set per node that tests for membership.

    Raises:
        ParameterError: the number of sets differs from that of the nodes.
    """
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(nodes) or (values.size and not np.isnan(values[-1])):
        raise ParameterError("membership_values do not fit", found=f"{len(ends)} sets", expected=f"{len(nodes)}")
    begins = [0, *(ends + 1).tolist()][: len(ends)]
    return {node: values[begin:end] for node, begin, end in zip(nodes, begins, ends.tolist(), strict=True)}
