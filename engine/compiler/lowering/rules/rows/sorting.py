"""Sorted order: all of it, the first few, a place in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from engine.compiler.kernels.ordering.sorting import SORTED, Sorting
from engine.compiler.kernels.ordering.wide_sorting import WIDE, WideSorting
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, row_major
from engine.layers.definition.layer import Layer
from engine.layers.onnx.indexing.search import OnnxTopK
from engine.layers.onnx.operands.adapter import present
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.layers.sorting.order_statistics import Median, MedianOfAll, NanMedian, NanMedianOfAll
from engine.layers.sorting.sorting import ArgSort, KthValue, Sort, SortRows, TopK
from engine.tensor import TensorSpec

# Columns whose places fit beside an element.
_MOST = 2**31 - 1


@kernels_for(Sort, ArgSort, SortRows)
def lower_sort(context: Context) -> Made:
    """All elements along a dimension in order, their places, or both."""
    layer: Any = context.layer(Layer)
    dim, is_descending = (0, False) if isinstance(layer, SortRows) else (layer.dim, layer.descending)
    elements, places, steps = ordered(context, dim, is_descending=is_descending)
    return given(context, [places] if isinstance(layer, ArgSort) else [elements, places], steps)


@kernels_for(TopK)
def lower_top(context: Context) -> Made:
    """The first few of them."""
    layer = context.layer(TopK)
    if len(layer.k) != 1 or layer.k[0] is None:
        raise NotLoweredError("how many are asked for is known only in a run")
    elements, places, steps = ordered(context, layer.dim, 0, layer.k[0], is_descending=layer.largest)
    return given(context, [elements, places], steps)


@kernels_for(OnnxTopK)
def lower_onnx_top(context: Context) -> Made:
    """The same as ONNX has it: either result may be left out."""
    layer, k = context.layer(OnnxTopK), context.argument(1)
    if not isinstance(k, np.ndarray | int) or np.size(k) != 1:
        raise NotLoweredError("how many are asked for is known only in a run")
    elements, places, steps = ordered(context, layer.axis, 0, int(np.reshape(k, ())), is_descending=layer.largest)
    results = elements, places
    chosen = present([TensorSpec(each.shape, each.dtype) for each in results], layer.annotations)
    return given(context, [results[index] for index in chosen], steps)


@kernels_for(KthValue)
def lower_kth(context: Context) -> Made:
    """The element at one place of the sorted order, and where it was."""
    layer = context.layer(KthValue)
    return given(context, *_single(context, layer.dim, layer.k - 1))


@kernels_for(Median, NanMedian)
def lower_median(context: Context) -> Made:
    """The place in the middle."""
    layer: Any = context.layer(Layer)
    return given(context, *_single(context, layer.dim, 0, "numbers" if isinstance(layer, NanMedian) else "all"))


@kernels_for(MedianOfAll, NanMedianOfAll)
def lower_median_of_all(context: Context) -> Made:
    """The place in the middle of all elements."""
    middle: Middle = "numbers" if isinstance(context.layer(Layer), NanMedianOfAll) else "all"
    elements, _, steps = ordered(context, None, 0, 1, middle=middle)
    return given(context, [elements], steps)


Middle = Literal["none", "all", "numbers"]


def _single(
    context: Context, dim: int, place: int, middle: Middle = "none"
) -> tuple[Sequence[View], Sequence[KernelStep]]:
    elements, places, steps = ordered(context, dim, place, 1, middle=middle)
    return [elements, places], steps


def ordered(
    context: Context,
    dim: int | None,
    first: int = 0,
    count: int | None = None,
    *,
    is_descending: bool = False,
    middle: Middle = "none",
) -> tuple[View, View, Sequence[KernelStep]]:
    """Elements at some places of the order along a dimension, where they came from, and the steps that find them.

    Args:
        dim: None for all elements in a row.
    """
    x, composition = sortable(context), Composition(context)
    if dim is None:
        x = composition.shaped(x, [x.phantom.size])
    axis = checked_axis(dim or 0, len(x.shape))
    rows = composition.rows(x, [axis])
    n, columns = rows.shape
    count = columns if count is None else count
    if not 0 < count <= columns - first or first < 0 or columns > _MOST:
        raise NotLoweredError("there is no kernel for none of them, or so many")
    if middle != "none" and x.dtype == np.float64:
        raise NotLoweredError("there are no float64 kernels")
    kind = WideSorting if x.dtype.name in WIDE else Sorting
    kernel = kind(
        dtype=x.dtype.name,
        rows=n,
        columns=columns,
        source=rows.strides[0],
        first=first,
        count=count,
        is_descending=is_descending,
        middle=middle,
        host=context.host,
    )
    sizes = [*(size for k, size in enumerate(x.shape) if k != axis), count]
    elements, places = row_major(sizes, x.dtype), row_major(sizes, INT64)
    composition.steps.append(context.step(kernel, rows, places, elements, row_major([kernel.scratch], INT64)))
    in_place = [derived(each, each.phantom.moveaxis(-1, axis)) for each in (elements, places)]
    return in_place[0], in_place[1], composition.steps


def sortable(context: Context, index: int = 0) -> View:
    """An operand whose elements kernels can put in order."""
    x = context.argument(index)
    x = context.lowering.stored(x) if isinstance(x, np.ndarray) else x
    if not isinstance(x, View) or not x.shape or not x.phantom.size or context.lowering.quantises:
        raise NotLoweredError("its operand is no tensor, a single number, or empty")
    if x.dtype.name not in (*SORTED, *WIDE):
        raise NotLoweredError(f"there are no {x.dtype.name} kernels")
    return x


def given(context: Context, results: Sequence[View], steps: Sequence[KernelStep]) -> Made:
    """As many of the results as the operator has, each in the shape that its result has."""
    views = {}
    for output, view in zip(context.op.outputs, results, strict=False):
        spec = context.lowering.spec(output)
        if spec is None or spec.dtype != view.dtype:
            raise NotLoweredError("its result is known only in a run")
        views[output.name] = derived(view, view.phantom.reshape(spec.sizes))
    return Made(views=views, steps=steps)
