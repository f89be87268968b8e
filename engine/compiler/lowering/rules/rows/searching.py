"""Places of values in sorted rows."""

from __future__ import annotations

import math

import numpy as np

from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.ordering.searching import Searching
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, row_major
from engine.layers.sorting.searching import Bucketize, SearchSorted
from engine.tensor import dtype_name


@kernels_for(SearchSorted)
def lower_search(context: Context) -> Made:
    """How many elements of a row come before each value."""
    layer = context.layer(SearchSorted)
    if len(context.bound.positional) > 2 and context.argument(2) is not None:
        raise NotLoweredError("there is no kernel for rows that another tensor sorts")
    return _searched(context, 0, 1, is_right=layer.right or layer.side == "right")


@kernels_for(Bucketize)
def lower_bucketize(context: Context) -> Made:
    """The interval a value lies in."""
    return _searched(context, 1, 0, is_right=context.layer(Bucketize).right)


def _searched(context: Context, of_rows: int, of_values: int, *, is_right: bool) -> Made:
    rows, values = _tensor(context, of_rows), _tensor(context, of_values)
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or rows.dtype != values.dtype or not rows.shape:
        raise NotLoweredError("its operands are of two dtypes, or known only in a run")
    many = math.prod(rows.shape[:-1]) if len(rows.shape) > 1 else 1
    if len(rows.shape) > 1 and (not values.shape or values.shape[:-1] != rows.shape[:-1]):
        raise NotLoweredError("its values do not fit")
    target = row_major(spec.sizes, spec.dtype)
    kernel = Searching(
        dtype=rows.dtype.name,
        result=spec.dtype.name,
        rows=many,
        count=values.phantom.size // many,
        length=rows.shape[-1],
        step=rows.shape[-1] if many > 1 else 0,
        is_right=is_right,
        host=context.host,
    )
    return context.made(target, context.step(kernel, rows, values, target))


def _tensor(context: Context, index: int) -> View:
    x = context.argument(index)
    x = context.lowering.stored(x) if isinstance(x, np.ndarray) else x
    if not isinstance(x, View) or not x.phantom.size or not x.is_row_major or context.lowering.quantises:
        raise NotLoweredError("an operand is no tensor that lies in one piece")
    if x.dtype.name not in TYPES:
        raise NotLoweredError(f"there are no {dtype_name(x.dtype)} kernels")
    return x
