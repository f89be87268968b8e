"""Ensembles of decision trees: their tables as the kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.compiler.kernels.trees import GROUP, NODE, Comparison, Trees
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
_MISSING: Final = np.uint32(1 << 31)


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
    forest = _Forest.of(len(first), mode, feature, split, missing, true, false, roots)
    kernel = Trees(
        rows=x.shape[0],
        source=x.strides[0],
        targets=layer.targets,
        groups=len(forest.depths),
        steps=1 << (GROUP * int(forest.depths.sum())).bit_length(),  # a power of two: forests alike share code
        comparison=_COMPARISONS[kinds.pop()] if kinds else "ole",
        has_missing=bool(missing.any()),
        divisor=len(roots) if layer.aggregate == "AVERAGE" else 1,
        host=context.host,
    )
    values = _values(len(mode), first, target, weight, kernel.padded)
    bases = np.broadcast_to(base.astype(np.float32), (layer.targets,))
    store = context.lowering.stored
    given = (forest.nodes, forest.roots, forest.depths, values, np.ascontiguousarray(bases))
    result = row_major((x.shape[0], layer.targets), FLOAT32)
    return context.lowered(result, context.step(kernel, x, *map(store, given), result))


@dataclass(frozen=True, slots=True)
class _Forest:
    """Tables of trees: inner nodes, then leaves, then a leaf without entries for the trees that fill the last group.

    Args:
        nodes: (nodes, NODE) as float32, whose bits are those of int32 but for splits.
        roots: of GROUP trees each, int32.
        depths: of each group, int32.
    """

    nodes: Array
    roots: Array
    depths: Array

    @classmethod
    def of(
        cls,
        leaves: int,
        mode: Array,
        feature: Array,
        split: Array,
        missing: Array,
        true: Array,
        false: Array,
        roots: Array,
    ) -> _Forest:
        inner = len(mode)
        table = np.zeros((inner + leaves, NODE), np.uint32)
        table[:inner, 0] = split.astype(np.float32).view(np.uint32)
        table[:inner, 1] = feature.astype(np.uint32) | np.where(missing, _MISSING, np.uint32(0))
        table[:inner, 2], table[:inner, 3] = _place(false, inner), _place(true, inner)
        own = np.arange(inner, inner + leaves)
        table[inner:, 2] = table[inner:, 3] = own
        count = -(-len(roots) // GROUP) * GROUP
        starts = np.full(count, inner + leaves - 1, np.int32)
        starts[: len(roots)] = _place(roots, inner)
        depths = _depths(true, false)
        deep = np.zeros(count, np.int32)
        deep[: len(roots)] = np.where(roots >= 0, depths[np.maximum(roots, 0)] if inner else 0, 0)
        return cls(table.view(np.float32), starts, deep.reshape(-1, GROUP).max(1).astype(np.int32))


def _place(numbers: Array, inner: int) -> Array:
    """Return the rows of the table: leaves stand behind inner nodes."""
    return np.asarray(np.where(numbers >= 0, numbers, inner - 1 - numbers))


def _depths(true: Array, false: Array) -> Array:
    """Return how many steps lead from each node to its furthest leaf; children come after their parents."""
    found = [0] * (len(true) + 1)
    for node, (a, b) in reversed([*enumerate(zip(true.tolist(), false.tolist(), strict=True))]):
        found[node] = 1 + max(found[a] if a >= 0 else 0, found[b] if b >= 0 else 0)
    return np.array(found, np.int32)


def _values(inner: int, first: Array, target: Array, weight: Array, padded: int) -> Array:
    """Return what each node adds to each target."""
    leaves = len(first) - 1
    if (inner + leaves + 1) * padded > _MAX_VALUES:
        raise NotLoweredError("a table of its leaves would be too large")
    values = np.zeros((inner + leaves + 1, padded), np.float32)
    leaf = np.repeat(np.arange(leaves), np.diff(first))
    np.add.at(values, (inner + leaf, target), weight.astype(np.float32))
    return values
