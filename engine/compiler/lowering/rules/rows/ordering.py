"""Sorted order: sorting, top-k, medians, searches in sorted rows, histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.ordering.binary_search import BinarySearch
from engine.compiler.kernels.ordering.sorting import SORTED, Sorting
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View, constant, row_major
from engine.layers.definition.layer import Layer
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.layers.sorting.order_statistics import Median
from engine.layers.sorting.searching import Bucketize, Histogram, SearchSorted
from engine.layers.sorting.sorting import ArgSort, KthValue, Sort, TopK
from engine.tensor import dtype_name

# Largest index that fits beside an element.
_MAX_COLUMNS = 2**31 - 1
Middle = Literal["none", "all", "numbers"]
# Elements times bins from which comparing each with each is slower than sorting.
_MAX_COMPARISONS: Final = 1 << 20


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


@kernels_for(SearchSorted)
def lower_search(context: Context) -> Lowered:
    """Lower the number of elements of a sorted row before each value."""
    layer = context.layer(SearchSorted)
    if len(context.bound.positional) > 2 and context.argument(2) is not None:
        raise NotLoweredError("there is no kernel for searches with a sorter")
    return _searched(context, 0, 1, is_right=layer.right or layer.side == "right")


@kernels_for(Bucketize)
def lower_bucketize(context: Context) -> Lowered:
    """Lower the number of the interval that contains each value."""
    return _searched(context, 1, 0, is_right=context.layer(Bucketize).right)


def _searched(context: Context, of_rows: int, of_values: int, *, is_right: bool) -> Lowered:
    rows, values = _tensor(context, of_rows), _tensor(context, of_values)
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or rows.dtype != values.dtype or not rows.shape:
        raise NotLoweredError("its operands have two dtypes, or are known only at run time")
    many = math.prod(rows.shape[:-1]) if len(rows.shape) > 1 else 1
    if len(rows.shape) > 1 and (not values.shape or values.shape[:-1] != rows.shape[:-1]):
        raise NotLoweredError("the shape of its values does not match")
    target = row_major(spec.sizes, spec.dtype)
    kernel = BinarySearch(
        dtype=rows.dtype.name,
        result=spec.dtype.name,
        rows=many,
        count=values.meta.size // many,
        length=rows.shape[-1],
        step=rows.shape[-1] if many > 1 else 0,
        is_right=is_right,
        host=context.host,
    )
    return context.lowered(target, context.step(kernel, rows, values, target))


def _tensor(context: Context, index: int) -> View:
    x = context.argument(index)
    x = context.lowering.stored(x) if isinstance(x, np.ndarray) else x
    if not isinstance(x, View) or not x.meta.size or not x.is_row_major or context.lowering.quantises:
        raise NotLoweredError("an operand is not a contiguous tensor")
    if x.dtype.name not in TYPES:
        raise NotLoweredError(f"there are no {dtype_name(x.dtype)} kernels")
    return x


@kernels_for(Histogram)
def lower_histogram(context: Context) -> Lowered:
    """Lower a histogram: every element is compared with the edges of every bin; the last includes both edges."""
    layer, x, composition = context.layer(Histogram), context.tensor(0), Composition(context)
    if layer.min == layer.max:
        raise NotLoweredError("its range depends on its values")
    if x.meta.size * layer.bins > _MAX_COMPARISONS:
        raise NotLoweredError("it has too many bins for so many elements")
    edges = np.linspace(layer.min, layer.max, layer.bins + 1).astype(np.float32)
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise NotLoweredError("its bins are too narrow, or infinite")
    low, high = edges[:-1, None], edges[1:, None].copy()
    high[-1] = np.nextafter(high[-1], np.inf, dtype=np.float32)
    is_in = apply("mul", apply("ge", Operand(0), Operand(1)), apply("lt", Operand(0), Operand(2)))
    elements = composition.shaped(x, (1, x.meta.size))
    found = composition.map(is_in, elements, constant(low), constant(high))
    counts = composition.reduce(found, [1], "sum")
    return composition.finish(Operand(0), derived(counts, counts.meta.reshape(layer.bins)))
