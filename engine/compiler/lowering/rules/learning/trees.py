"""Ensembles of decision trees: their tables as the kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from engine.compiler.kernels.trees import EXITS, WALKS, Comparison, Trees
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.storage import FLOAT32, row_major
from engine.layers.onnx.learning.trees import EQ, GT, GTE, LEQ, LT, NEQ, TreeEnsemble, check_forest
from engine.tensor import Array

_COMPARISONS: Final[Mapping[int, Comparison]] = {LEQ: "ole", LT: "olt", GTE: "oge", GT: "ogt", EQ: "oeq", NEQ: "une"}
# A dense table of values: of more targets, or larger, it would not stay in caches.
_MAX_TARGETS: Final = 64
_MAX_VALUES: Final = 1 << 24
_MISSING: Final = 1 << 31
# Features of a vector of rows are in stack memory.
_MAX_COLUMNS: Final = 8192


@kernels_for(TreeEnsemble)
def lower_trees(context: Context) -> Lowered:
    """Sums and means of one comparison; sets of values and extremes are for the reference."""
    layer, x = context.layer(TreeEnsemble), context.tensor(0)
    tables: list[Array] = [each for k in range(1, 12) if isinstance(each := context.argument(k), np.ndarray)]
    if len(tables) < 11:
        raise NotLoweredError("its trees are computed")
    mode, feature, split, missing, true, false, roots, first, target, weight, base = tables
    check_forest(mode, feature, split, missing, true, false, roots, first, target, weight, layer.targets)
    kinds = set(np.unique(mode).tolist())
    if len(kinds) > 1 or not kinds <= _COMPARISONS.keys() or layer.aggregate not in ("SUM", "AVERAGE"):
        raise NotLoweredError("there is no kernel for several comparisons, or extremes")
    if layer.targets > _MAX_TARGETS or len(x.shape) != 2 or x.strides[1] != 1 or not len(roots):
        raise NotLoweredError("it has too many targets, or its features do not lie in rows")
    if feature.size and int(feature.max()) >= x.shape[1]:
        raise NotLoweredError("it has too few features")
    comparison = _COMPARISONS[kinds.pop()] if kinds else "ole"
    steps = int(_depths(true, false)[np.maximum(roots, -1)].sum())
    group = min(WALKS, 1 << (len(roots) - 1).bit_length())
    starts = -(-len(roots) // group) * group
    most = EXITS - 1 if x.shape[1] <= _MAX_COLUMNS else 0
    tops = [_Top(root, k, starts, false, true, most) for k, root in enumerate(roots.tolist())]
    branches = np.array([each for top in tops for each in top.branches], np.int64).reshape(-1, 2)
    used, columns = np.unique(feature[branches[:, 0]], return_inverse=True)
    kernel = Trees(
        rows=x.shape[0],
        columns=max(1, len(used)),
        source=x.strides[0],
        targets=layer.targets,
        group=group,
        groups=starts // group,
        steps=1 << steps.bit_length(),  # a power of two: forests alike share code
        comparison=comparison,
        has_missing=bool(missing.any()),
        is_deep=any(each.is_deep for each in tops),
        divisor=len(roots) if layer.aggregate == "AVERAGE" else 1,
        host=context.host,
    )
    # A group's last trees are a leaf without values.
    refers = np.concatenate([roots, np.full(-len(roots) % group, -len(first)), np.stack([false, true], 1).reshape(-1)])
    is_inner = refers >= 0
    inner, places = refers[is_inner], np.arange(len(refers))
    flags = np.where(missing, _MISSING, 0)
    # At a leaf, the comparison with NaN leads back to it.
    children = places - (comparison == "une")
    features, splits = np.zeros(len(refers), np.int64), np.full(len(refers), np.nan, np.float32)
    children[is_inner] = starts + 2 * inner
    features[is_inner], splits[is_inner] = feature[inner] | flags[inner], split[inner]
    values = _values(first, target, weight, kernel.padded)[np.where(is_inner, len(first) - 1, -1 - refers)]
    bases = np.broadcast_to(base.astype(np.float32), (layer.targets,))
    ends = np.cumsum([0, *(len(each.branches) for each in tops), *[0] * (starts - len(tops))], dtype=np.int32)
    exits = np.repeat(places[:starts, None].astype(np.int32), EXITS, 1)
    for k, each in enumerate(tops):
        exits[k, : len(each.exits)] = each.exits
    nodes, words = children << 32 | features, branches[:, 1] << 32 | columns.reshape(-1) | flags[branches[:, 0]]
    splits_of_branches = split[branches[:, 0]].astype(np.float32)
    given = (
        *(splits, nodes, ends, splits_of_branches, words, used.astype(np.int32)),
        *(exits, values, np.ascontiguousarray(bases)),
    )
    store = context.lowering.stored
    result = row_major((x.shape[0], layer.targets), FLOAT32)
    return context.lowered(result, context.step(kernel, x, *map(store, given), result))


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

    def __init__(self, root: int, place: int, first: int, false: Array, true: Array, most: int) -> None:
        self.branches: list[tuple[int, int]] = []
        self.exits: list[int] = []
        self._first, self._false, self._true = first, false, true
        chosen: set[tuple[int, ...]] = set()
        level: list[tuple[tuple[int, ...], int]] = [((), root)]  # the way from the root, and the node
        while level and len(chosen) < most:
            inner = [each for each in level if each[1] >= 0][: most - len(chosen)]
            chosen |= {way for way, _ in inner}
            level = [((*way, side), int((false, true)[side][node])) for way, node in inner for side in (0, 1)]
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


def _depths(true: Array, false: Array) -> Array:
    """Return how many steps lead from each node, and last from a leaf, to its furthest leaf."""
    found = [0] * (len(true) + 1)
    for node, (a, b) in reversed([*enumerate(zip(true.tolist(), false.tolist(), strict=True))]):  # parents first
        found[node] = 1 + max(found[a] if a >= 0 else 0, found[b] if b >= 0 else 0)
    return np.array(found, np.int32)


def _values(first: Array, target: Array, weight: Array, padded: int) -> Array:
    """Return what each leaf adds to each target; zeros for the last, which is none."""
    leaves = len(first) - 1
    if 2 * (leaves + 1) * padded > _MAX_VALUES:
        raise NotLoweredError("a table of its leaves would be too large")
    values = np.zeros((leaves + 1, padded), np.float32)
    np.add.at(values, (np.repeat(np.arange(leaves), np.diff(first)), target), weight.astype(np.float32))
    return values
