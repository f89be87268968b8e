"""Rules of operators that work along some axes, equally for every position on the others."""

from __future__ import annotations

from typing import Any

from engine.graph.batch.independence.rules.table import kept, rule
from engine.graph.batch.independence.use import Use
from engine.graph.batch.independence.values import Items, MixesError, Value
from engine.layers.linear.linalg_norm import SingularNorm
from engine.layers.normalisation import layer_norm, softmax
from engine.layers.onnx.elementwise.arithmetic import Det
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.reduction import extremum, reduction, scan
from engine.layers.signal.fourier import OneAxis
from engine.layers.sorting import order_statistics, sorting


def reduced(items: Items, axes: tuple[int, ...], keepdim: bool) -> Items:
    """Return the abstract value of a result that reduces some axes.

    Raises:
        MixesError: the batch lies along one of them.
    """
    kept(items, axes, "reduces")
    return items if keepdim else items.at(items.axis - sum(axis < items.axis for axis in axes))


@rule(reduction.Reduction)
def reduction_rule(use: Use) -> Value:
    """Follow sums, means and the like over axes."""
    layer: Any = use.layer
    return reduced(use.batch(), layer.axes(use.first.rank), layer.keepdim)


@rule(
    extremum._ArgExtreme, extremum._Pair, order_statistics._Chosen, order_statistics.Quantile,
    sorting.KthValue, SingularNorm,
)  # fmt: skip
def reduction_along(use: Use) -> Value:
    """Follow one element of each row, and its position; without a dim, of all elements."""
    layer: Any = use.layer
    for name in use.named:
        if name not in ("input",) and not use[name].is_shared:
            raise MixesError("has parameters that depend on the items")
    rank = use.first.rank
    dims = layer.dim if isinstance(layer.dim, (tuple, list)) else () if layer.dim is None else (layer.dim,)
    axes = checked_axes(dims, rank) if dims else tuple(range(rank))
    items = reduced(use.batch(), axes, layer.keepdim or len(use.result_shapes()[1]) == rank)
    if isinstance(layer, order_statistics.Quantile):  # the quantiles are a new first axis, unless there is one alone
        return items.at(items.axis + use["q"].rank)
    return items


@rule(softmax._AlongAxis)
def softmax_rule(use: Use) -> Value:
    """Follow a normalisation along an axis."""
    return kept(use.batch(), (use.layer.axis(use.first.rank),), "normalises along")  # type: ignore[attr-defined]


@rule(
    scan._Scan, scan._RunningExtreme, sorting.Sort, sorting.ArgSort, sorting.TopK, OneAxis,
)  # fmt: skip
def along(use: Use) -> Value:
    """Follow rows of an axis that are scanned, sorted or transformed by themselves."""
    layer: Any = use.layer
    use.only("input")
    dim = layer.dim if hasattr(layer, "dim") else layer.axis
    return kept(use.batch("input"), (checked_axis(dim, use["input"].rank),), "works along")


@rule(scan.Diff)
def differences(use: Use) -> Value:
    """Follow differences along an axis, including prepended and appended elements."""
    axis = checked_axis(use.layer.dim, use["input"].rank)  # type: ignore[attr-defined]
    use.only("input")
    return kept(use.batch("input"), (axis,), "takes differences along")


@rule(layer_norm._TrailingNorm, layer_norm.LayerNormStatistics)
def trailing_norm(use: Use) -> Value:
    """Follow a normalisation over the last axes, those of the weight."""
    use.only("input")
    rank = use["input"].rank
    count = len(use.layer.normalized_shape)  # type: ignore[attr-defined]
    return kept(use.batch("input"), tuple(range(rank - count, rank)), "normalises over")


@rule(Det)
def determinant(use: Use) -> Value:
    """Follow the determinant of the last two axes."""
    rank = use.first.rank
    return reduced(use.batch(), (rank - 2, rank - 1), False)
