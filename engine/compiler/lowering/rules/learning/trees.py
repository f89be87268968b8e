"""Ensembles of decision trees: their tables as the kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from engine.compiler.kernels.trees import EXITS, WALKS, Comparison, Trees
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.onnx.learning.trees import EQ, GT, GTE, LEQ, LT, NEQ, TreeEnsemble, check_forest
from engine.tensor import Array

_COMPARISONS: Final[Mapping[int, Comparison]] = {LEQ: "ole", LT: "olt", GTE: "oge", GT: "ogt", EQ: "oeq", NEQ: "une"}
# A dense table of values: of more targets, or larger, it would not stay in caches.
_MAX_TARGETS: Final = 64
_MAX_VALUES: Final = 1 << 24
_MISSING: Final = 1 << 31
# Features of a vector of rows are in stack memory.
_MAX_COLUMNS: Final = 8192


class _Forest(NamedTuple):
    """Tables of an ensemble, as inputs of ``TreeEnsemble``: numbers below 0 are leaves."""

    mode: Array
    feature: Array
    split: Array
    missing: Array
    true: Array
    false: Array
    roots: Array
    first: Array
    target: Array
    weight: Array
    base: Array


@kernels_for(TreeEnsemble)
def lower_trees(context: Context) -> Lowered:
    """Sums and means of one comparison; sets of values and extremes are for the reference."""
    layer, x = context.layer(TreeEnsemble), context.tensor(0)
    tables = [each for k in range(1, 12) if isinstance(each := context.argument(k), np.ndarray)]
    if len(tables) < len(_Forest._fields):
        raise NotLoweredError("its trees are computed")
    forest = _Forest(*tables)
    check_forest(*forest[:-1], layer.targets)
    comparison = _comparison(forest, layer.aggregate)
    _check_features(forest, x, layer.targets)
    trees = len(forest.roots)
    group = min(WALKS, 1 << (trees - 1).bit_length())
    starts = -(-trees // group) * group
    most = EXITS - 1 if x.shape[1] <= _MAX_COLUMNS else 0
    tops = [_Top(root, k, starts, forest, most) for k, root in enumerate(forest.roots.tolist())]
    used, branches = _branches(forest, tops, starts)
    kernel = Trees(
        rows=x.shape[0],
        columns=max(1, len(used)),
        source=x.strides[0],
        targets=layer.targets,
        group=group,
        groups=starts // group,
        steps=1 << _steps(forest).bit_length(),  # a power of two: forests alike share code
        comparison=comparison,
        has_missing=bool(forest.missing.any()),
        is_deep=any(each.is_deep for each in tops),
        divisor=trees if layer.aggregate == "AVERAGE" else 1,
        host=context.host,
    )
    splits, nodes, leaves = _nodes(forest, starts, comparison)
    values = _values(forest, kernel.padded)[leaves]
    base = np.ascontiguousarray(np.broadcast_to(forest.base.astype(np.float32), (layer.targets,)))
    given = (splits, nodes, *branches, used.astype(np.int32), _exits(tops, starts), values, base)
    result = row_major((x.shape[0], layer.targets), FLOAT32)
    return context.lowered(result, context.step(kernel, x, *map(context.lowering.stored, given), result))


def _comparison(forest: _Forest, aggregate: str) -> Comparison:
    kinds = set(np.unique(forest.mode).tolist())
    if len(kinds) > 1 or not kinds <= _COMPARISONS.keys() or aggregate not in ("SUM", "AVERAGE"):
        raise NotLoweredError("there is no kernel for several comparisons, or extremes")
    return _COMPARISONS[kinds.pop()] if kinds else "ole"


def _check_features(forest: _Forest, x: View, targets: int) -> None:
    if targets > _MAX_TARGETS or len(x.shape) != 2 or x.strides[1] != 1 or not len(forest.roots):
        raise NotLoweredError("it has too many targets, or its features do not lie in rows")
    if forest.feature.size and int(forest.feature.max()) >= x.shape[1]:
        raise NotLoweredError("it has too few features")


def _nodes(forest: _Forest, starts: int, comparison: Comparison) -> tuple[Array, Array, Array]:
    """Return splits and words of the kernel's nodes, and the number of each one's leaf.

    The roots come first, up to whole groups, then the children of node 0, of node 1, ... What is not a leaf, and the
    last trees of a group, have the number of a leaf without values.
    """
    absent = -len(forest.first)
    children_of = np.stack([forest.false, forest.true], 1).reshape(-1)
    refers = np.concatenate([forest.roots, np.full(starts - len(forest.roots), absent), children_of])
    is_inner = refers >= 0
    inner = refers[is_inner]
    # At a leaf, the comparison with NaN leads back to it.
    children = np.arange(len(refers)) - (comparison == "une")
    children[is_inner] = starts + 2 * inner
    features, splits = np.zeros(len(refers), np.int64), np.full(len(refers), np.nan, np.float32)
    features[is_inner] = forest.feature[inner] | _missing_flags(forest)[inner]
    splits[is_inner] = forest.split[inner]
    return splits, children << 32 | features, -1 - np.where(is_inner, absent, refers)


def _branches(forest: _Forest, tops: Sequence[_Top], starts: int) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return the features that first branches compare; where each tree's branches end, their splits and words."""
    branches = np.array([each for top in tops for each in top.branches], np.int64).reshape(-1, 2)
    numbers, remaining_exits = branches[:, 0], branches[:, 1]
    used, columns = np.unique(forest.feature[numbers], return_inverse=True)
    ends = np.cumsum([0, *(len(each.branches) for each in tops), *[0] * (starts - len(tops))], dtype=np.int32)
    words = remaining_exits << 32 | columns.reshape(-1) | _missing_flags(forest)[numbers]
    return used, (ends, forest.split[numbers].astype(np.float32), words)


def _exits(tops: Sequence[_Top], starts: int) -> Array:
    """Return the nodes at the exits of each tree; a tree without branches has itself."""
    exits = np.repeat(np.arange(starts, dtype=np.int32)[:, None], EXITS, 1)
    for k, each in enumerate(tops):
        exits[k, : len(each.exits)] = each.exits
    return exits


def _missing_flags(forest: _Forest) -> Array:
    return np.where(forest.missing, _MISSING, 0)


class _Top:
    """First branches of a tree, level by level, and its exits from them, those where comparisons are true first.

    Args:
        root: number of the first node; leaves are below 0.
        place: of the root in the kernel's table.
        first: place of the children of node 0 in the table.
        most: largest number of first branches.

    Attributes:
        branches: the number of each branch, and the exits that remain if its comparison is false, as bits.
        exits: their places in the table.
    """

    def __init__(self, root: int, place: int, first: int, forest: _Forest, most: int) -> None:
        self.branches: list[tuple[int, int]] = []
        self.exits: list[int] = []
        self._first, self._false, self._true = first, forest.false, forest.true
        children, chosen = (forest.false, forest.true), set[tuple[int, ...]]()
        level: list[tuple[tuple[int, ...], int]] = [((), root)]  # the way from the root, and the node
        while level and len(chosen) < most:
            inner = [each for each in level if each[1] >= 0][: most - len(chosen)]
            chosen |= {way for way, _ in inner}
            level = [((*way, side), int(children[side][node])) for way, node in inner for side in (0, 1)]
        self.is_deep = False
        self._number((), root, place, chosen)

    def _number(self, way: tuple[int, ...], node: int, place: int, chosen: set[tuple[int, ...]]) -> None:
        if way not in chosen:
            self.exits.append(place)
            self.is_deep |= node >= 0
            return
        before, children = len(self.exits), self._first + 2 * node
        self._number((*way, 1), int(self._true[node]), children + 1, chosen)
        cleared = (1 << len(self.exits)) - (1 << before)
        self.branches.append((node, (1 << EXITS) - 1 - cleared))
        self._number((*way, 0), int(self._false[node]), children, chosen)


def _steps(forest: _Forest) -> int:
    """Return the number of steps from all roots to their furthest leaves."""
    depths = [0] * (len(forest.true) + 1)  # the last is that of all leaves
    children = zip(forest.true.tolist(), forest.false.tolist(), strict=True)
    for node, pair in reversed([*enumerate(children)]):  # parents come before their children
        depths[node] = 1 + max(depths[max(child, -1)] for child in pair)
    return sum(depths[max(root, -1)] for root in forest.roots.tolist())


def _values(forest: _Forest, padded: int) -> Array:
    """Return what each leaf adds to each target; zeros for the last, which is none."""
    leaves = len(forest.first) - 1
    if 2 * (leaves + 1) * padded > _MAX_VALUES:
        raise NotLoweredError("a table of its leaves would be too large")
    values = np.zeros((leaves + 1, padded), np.float32)
    leaf_of_weight = np.repeat(np.arange(leaves), np.diff(forest.first))
    np.add.at(values, (leaf_of_weight, forest.target), forest.weight.astype(np.float32))
    return values
