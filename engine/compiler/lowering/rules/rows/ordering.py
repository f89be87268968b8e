"""Sorted order: sorting, top-k, medians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from engine.compiler.kernels.ordering.sorting import SORTED, Sorting
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View, row_major
from engine.layers.definition.layer import Layer
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.layers.sorting.order_statistics import Median
from engine.layers.sorting.sorting import ArgSort, KthValue, Sort, TopK

# Largest index that fits beside an element.
_MAX_COLUMNS = 2**31 - 1
Middle = Literal["none", "all", "numbers"]


@kernels_for(Sort, ArgSort)
def lower_sort(context: Context) -> Lowered:
    """Lower the sorted elements along a dimension, their indices, or both."""
    layer: Any = context.layer(Layer)
    dim, is_descending = layer.dim, layer.descending
    elements, places, steps = ordered(context, dim, is_descending=is_descending)
    return given(context, [places] if isinstance(layer, ArgSort) else [elements, places], steps)


@kernels_for(TopK)
def lower_top(context: Context) -> Lowered:
    """Lower the first few sorted elements."""
    layer = context.layer(TopK)
    if len(layer.k) != 1 or layer.k[0] is None:
        raise NotLoweredError("the requested number is known only at run time")
    elements, places, steps = ordered(context, layer.dim, 0, layer.k[0], is_descending=layer.largest)
    return given(context, [elements, places], steps)


@kernels_for(KthValue)
def lower_kth(context: Context) -> Lowered:
    """Lower the k-th smallest element, and its index."""
    layer = context.layer(KthValue)
    return given(context, *_single(context, layer.dim, layer.k - 1))


@kernels_for(Median)
def lower_median(context: Context) -> Lowered:
    """Lower the median along a dimension and its index, or that of all elements."""
    layer = context.layer(Median)
    elements, places, steps = ordered(context, layer.dim, 0, 1, middle="numbers" if layer.ignores_nan else "all")
    return given(context, [elements] if layer.dim is None else [elements, places], steps)


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
    """Return sorted elements, their indices, and the steps that find them.

    Args:
        dim: None for all elements in a row.
    """
    x, composition = sortable(context), Composition(context)
    if dim is None:
        x = composition.shaped(x, [x.meta.size])
    axis = checked_axis(dim or 0, len(x.shape))
    rows = composition.rows(x, [axis])
    n, columns = rows.shape
    count = columns if count is None else count
    if not 0 < count <= columns - first or first < 0 or columns > _MAX_COLUMNS:
        raise NotLoweredError("there is no kernel for this number of elements")
    kernel = Sorting(
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
    in_place = [derived(each, each.meta.moveaxis(-1, axis)) for each in (elements, places)]
    return in_place[0], in_place[1], composition.steps


def sortable(context: Context, index: int = 0) -> View:
    """Return an operand whose elements kernels can sort."""
    x = context.argument(index)
    x = context.lowering.stored(x) if isinstance(x, np.ndarray) else x
    if not isinstance(x, View) or not x.shape or not x.meta.size or context.lowering.quantises:
        raise NotLoweredError("its operand is not a tensor, is a scalar, or has no elements")
    if x.dtype.name not in SORTED:
        raise NotLoweredError(f"there are no {x.dtype.name} kernels")
    return x


def given(context: Context, results: Sequence[View], steps: Sequence[KernelStep]) -> Lowered:
    """Return as many of the results as the operator has, in the shapes of its outputs."""
    views = {}
    for output, view in zip(context.op.outputs, results, strict=False):
        spec = context.lowering.spec(output)
        if spec is None or spec.dtype != view.dtype:
            raise NotLoweredError("its result is known only at run time")
        views[output.name] = derived(view, view.meta.reshape(spec.sizes))
    return Lowered(views=views, steps=steps)
