"""Translators of tree ensembles (``ai.onnx.ml``), in all forms that the standard has had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.learning.classes import classified, labels_of_classes, step
from engine.onnx.translators.learning.forest import Forest, Places, column, sets_of
from engine.tensor import Array

_ML: Final = "ai.onnx.ml"
_MODES: Final = {
    "BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5, "LEAF": -1,
}  # fmt: skip
_MEMBER: Final = 6
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@translates("TreeEnsembleRegressor", domain=_ML)
def regressor(node: Node) -> Value:
    """Translate to onnx.TreeEnsemble and the post-transform."""
    targets = node.number("n_targets", 1)
    forest, places = _nodes(node.attributes)
    _leaves(forest, places, node.attributes, "target", targets)
    aggregate = node.text("aggregate_function", "SUM")
    base = column(node.attributes, "base_values", kind="f")
    if len(base) not in (0, 1, targets):
        raise ParameterError("base_values do not fit", found=len(base), expected=f"one for each of {targets} targets")
    return _regression(node, forest, targets, aggregate, base, node.text("post_transform", "NONE"), narrow=True)


@translates("TreeEnsemble", since=5, domain=_ML)
def ensemble(node: Node) -> Value:
    """Translate like TreeEnsembleRegressor; nodes and leaves have indices of their own."""
    targets, given = node.number("n_targets", 1), node.attributes
    aggregate = _chosen(_AGGREGATES, node.number("aggregate_function", 1), "aggregate_function")
    transform = _chosen(_TRANSFORMS, node.number("post_transform", 0), "post_transform")
    return _regression(node, _numbered(given, targets), targets, aggregate, np.zeros(1), transform, narrow=False)


@translates("TreeEnsembleClassifier", domain=_ML)
def classifier(node: Node) -> list[Value]:
    """Translate to onnx.TreeEnsemble, the label of the highest score, and the scores."""
    labels = labels_of_classes(node, "classlabels_int64s")
    forest, places = _nodes(node.attributes)
    count = len(labels)
    _leaves(forest, places, node.attributes, "class", count)
    base = column(node.attributes, "base_values", kind="f")
    if len(base) > 1 and len(base) != count:
        raise ParameterError("base_values do not fit", found=len(base), expected=f"one for each of {count} classes")
    named = set(np.unique(forest.target).tolist())
    is_single = count == 2 and len(named) == 1
    above = None
    if is_single:
        above = 0.5 if bool((forest.weight >= 0).all()) else 0.0
    if is_single and named == {0} and len(base) < 2:  # the only column is the score of the second class
        scores = _trees(node, forest, 1, "SUM", base, narrow=True)
        return classified(node, scores, labels, above, "complement" if above else "negative")
    if len(base) == 1:
        base = np.concatenate([base, np.zeros(count - 1, base.dtype)])
    if is_single and named == {0}:
        raise ParameterError("base_values do not fit", found=2, expected="one, of two classes of which one has leaves")
    return classified(node, _trees(node, forest, count, "SUM", base, narrow=True), labels, above)


def _regression(
    node: Node, forest: Forest, targets: int, aggregate: str, base: Array, transform: str, *, narrow: bool
) -> Value:
    if aggregate not in _AGGREGATES:
        raise ParameterError("no such aggregate_function", found=aggregate, expected=", ".join(_AGGREGATES))
    scores = _trees(node, forest, targets, aggregate, base, narrow=narrow)
    # onnxruntime applies only PROBIT to a single target, and models depend on it.
    is_done = transform == "NONE" or targets == 1 and transform in _TRANSFORMS and transform != "PROBIT"
    return scores if is_done else step(node, scores, transform)


def _trees(node: Node, forest: Forest, targets: int, aggregate: str, base: Array, *, narrow: bool) -> Value:
    weights = {**forest.tables(), "base": base if len(base) else np.zeros(1, np.float32)}
    x = node.input(0)
    return node.make("onnx.TreeEnsemble", x, weights=weights, targets=targets, aggregate=aggregate, narrow=narrow)


def _nodes(given: Mapping[str, Any]) -> tuple[Forest, Places]:
    """Read the nodes; leaves are nodes in these lists, and their leaf index is their node index."""
    tree = column(given, "nodes_treeids")
    count = len(tree)
    own, feature = column(given, "nodes_nodeids", count), column(given, "nodes_featureids", count)
    names = given.get("nodes_modes", ())
    if not isinstance(names, tuple) or len(names) != count or not count:
        raise ParameterError("lists of a tree are not equally long", found=f"{len(names)} nodes_modes", expected=count)
    unknown = [each for each in names if each not in _MODES]
    if unknown:
        raise ParameterError("no such mode of a node", found=str(unknown[0])[:80], expected=", ".join(_MODES))
    mode = np.array([_MODES[each] for each in names], np.int64)
    places = Places(tree, own)
    is_leaf = mode < 0
    children = {}
    for name in ("true", "false"):
        child = column(given, f"nodes_{name}nodeids", count)
        found = np.zeros(count, np.int64)
        found[~is_leaf] = places.find(tree[~is_leaf], child[~is_leaf], f"a {name} child")
        children[name] = np.where(is_leaf[found], -1 - found, found)
    _, roots = np.unique(tree, return_index=True)
    roots = np.sort(roots)
    track = column(given, "nodes_missing_value_tracks_true")
    forest = Forest(
        mode=np.maximum(mode, 0),
        feature=np.where(is_leaf, 0, feature),
        split=column(given, "nodes_values", count, "f"),
        missing=track == 1 if len(track) else np.zeros(count, np.bool_),
        roots=np.where(is_leaf[roots], -1 - roots, roots),
        leaves=count,
        leaf=np.zeros(0, np.int64),
        target=np.zeros(0, np.int64),
        weight=np.zeros(0, np.float32),
        true=children["true"],
        false=children["false"],
    )
    if len(forest.missing) != count:
        raise ParameterError("lists of a tree are not equally long", found=len(track), expected=count)
    return forest, places


def _leaves(forest: Forest, places: Places, given: Mapping[str, Any], kind: str, targets: int) -> None:
    """Store the targets and weights of the leaves, from a regressor's or a classifier's attributes."""
    tree = column(given, f"{kind}_treeids")
    own, target = column(given, f"{kind}_nodeids", len(tree)), column(given, f"{kind}_ids", len(tree))
    forest.weight = column(given, f"{kind}_weights", len(tree), "f")
    forest.leaf, forest.target = places.find(tree, own, "what a leaf says"), target
    _check_targets(target, targets)


def _numbered(given: Mapping[str, Any], targets: int) -> Forest:
    feature = column(given, "nodes_featureids")
    count = len(feature)
    mode = column(given, "nodes_modes", count)
    leaf_target = column(given, "leaf_targetids")
    leaves = len(leaf_target)
    _check_targets(leaf_target, targets)
    children = {}
    for name in ("true", "false"):
        place, is_leaf = column(given, f"nodes_{name}nodeids", count), column(given, f"nodes_{name}leafs", count) != 0
        limit = np.where(is_leaf, leaves, count)
        lost = np.flatnonzero((place < 0) | (place >= limit))
        if lost.size:
            raise ParameterError(f"no such {name} child", found=int(place[lost[0]]), expected=f"of node {lost[0]}")
        children[name] = np.where(is_leaf, -1 - place, place)
    track = column(given, "nodes_missing_value_tracks_true")
    if len(track) not in (0, count):
        raise ParameterError("lists of a tree are not equally long", found=len(track), expected=count)
    if mode.size and not 0 <= int(mode.min()) <= int(mode.max()) <= _MEMBER:
        raise ParameterError("no such mode of a node", found=int(mode.max()), expected=f"0 to {_MEMBER}")
    asking = np.flatnonzero(mode == _MEMBER).tolist()
    values = column(given, "membership_values", kind="f")
    roots = column(given, "tree_roots")
    if roots.size and not 0 <= int(roots.min()) <= int(roots.max()) < count:
        raise ParameterError("no such root", found=int(roots.max()), expected=f"one of {count:,} nodes")
    return Forest(
        mode=mode,
        feature=feature,
        split=column(given, "nodes_splits", count, "f"),
        missing=track == 1 if len(track) else np.zeros(count, np.bool_),
        roots=roots,
        leaves=leaves,
        leaf=np.arange(leaves),
        target=leaf_target,
        weight=column(given, "leaf_weights", leaves, "f"),
        members=sets_of(values, asking),
        true=children["true"],
        false=children["false"],
    )


def _check_targets(target: Array, targets: int) -> None:
    if targets < 1 or target.size and not 0 <= int(target.min()) <= int(target.max()) < targets:
        found = int(target.max()) if target.size else targets
        raise ParameterError("no such target or class", found=found, expected=f"one of {targets:,}")


def _chosen(known: tuple[str, ...], number: int, what: str) -> str:
    if not 0 <= number < len(known):
        raise ParameterError(f"no such {what}", found=number, expected=f"0 to {len(known) - 1}")
    return known[number]
