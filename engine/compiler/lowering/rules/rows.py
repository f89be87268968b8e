"""Operators that work along one dimension: softmax, and sums, means and extrema of rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from engine.compiler.kernels.pooling.global_average import GlobalAverage
from engine.compiler.kernels.rows.rows import RowReduction
from engine.compiler.kernels.rows.softmax import Softmax
from engine.compiler.lowering.fusion import Fused, absorb, epilogue
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.geometry import as_image
from engine.compiler.lowering.rules.registry import NotLoweredError, lowers
from engine.compiler.lowering.steps import dense_strides, pointer
from engine.compiler.storage import View, row_major
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.layer import Layer
from engine.layers.normalisation import softmax
from engine.layers.reduction.extremum import AMax, AMin
from engine.layers.reduction.reduction import Mean, Reduction, Sum
from engine.tensor import Array

Mode = Literal["sum", "mean", "max", "min"]
MODES: dict[type[Reduction], Mode] = {Mean: "mean", Sum: "sum", AMax: "max", AMin: "min"}


@lowers(softmax.Softmax, softmax.LogSoftmax)
def lower_softmax(lowering: Lowering, op: RuntimeOperator) -> None:
    """Softmax or its logarithm along one dimension, which is copied to lie last where it does not."""
    layer: Any = lowering.layer(op, Layer)
    x = lowering.tensor(op, 0)
    lowering.float_spec(op.outputs[0])
    if not x.shape:
        raise NotLoweredError("its operand is a single number")
    axis = layer.axis(len(x.shape))
    source = _rows(x, axis)
    if source is None:
        turned = _like(x, axis)
        lowering.copy(x, turned, [op.name])
        x, source = turned, _rows(turned, axis)
    target = lowering.place(op.outputs[0], is_image=x.is_channels_last and axis == 1 and len(x.shape) == 4)
    result = _rows(target, axis)
    is_direct = result is not None and source is not None and _same_order(x, target, axis)
    out = target if is_direct else _like(x, axis)
    result = _rows(out, axis)
    if source is None or result is None:
        raise NotLoweredError("its operand does not lie in rows")
    kernel = Softmax(
        rows=source.shape[0],
        columns=source.shape[1],
        source=source.strides[0],
        target=result.strides[0],
        is_logarithm=isinstance(layer, softmax.LogSoftmax),
        host=lowering.host,
    )
    lowering.emit(kernel, [pointer(source), pointer(result)], [op.name], 2 * x.phantom.nbytes)
    if not is_direct:
        lowering.copy(out, target, [op.name])
    lowering.define(op.outputs[0], target)


def _like(x: View, axis: int) -> View:
    """New memory in which the elements along ``axis`` lie side by side, and rows follow each other as in ``x``."""
    order = sorted((k for k in range(len(x.shape)) if k != axis), key=lambda k: -x.strides[k])
    order.append(axis)
    copy = row_major([x.shape[k] for k in order], x.dtype)
    view = copy.derive(copy.phantom.transpose(np.argsort(order)))
    if view is None:
        raise NotLoweredError("its operand does not lie in rows")
    return view


def _same_order(a: View, b: View, axis: int) -> bool:
    """Whether rows follow each other in one order in both."""

    def order(view: View) -> list[int]:
        strides = view.strides
        kept = [k for k in range(len(strides)) if k != axis and view.shape[k] > 1]
        return sorted(kept, key=lambda k: -strides[k])

    return order(a) == order(b) and _rows(a, axis) is not None and _rows(b, axis) is not None


def _rows(x: View, axis: int) -> View | None:
    """The view as (rows, elements along ``axis``) with elements side by side, if it lies so."""
    moved: Array = np.moveaxis(x.phantom, axis, -1)
    if moved.shape[-1] > 1 and moved.strides[-1] != moved.itemsize:
        return None
    kept = [k for k in range(moved.ndim - 1) if moved.shape[k] > 1]
    ordered = sorted(kept, key=lambda k: -moved.strides[k])
    lines = moved.transpose([*(k for k in range(moved.ndim - 1) if k not in kept), *ordered, moved.ndim - 1])
    return x.derive(lines.reshape(-1, moved.shape[-1]))


@lowers(*MODES)
def lower_reduction(lowering: Lowering, op: RuntimeOperator) -> None:
    """A reduction of the last dimensions, or the mean over the pixels of images."""
    layer = lowering.layer(op, Reduction)
    x, spec = lowering.tensor(op, 0), lowering.float_spec(op.outputs[0])
    axes = sorted(layer.axes(len(x.shape)))
    if axes == [2, 3] and len(x.shape) == 4 and isinstance(layer, Mean) and x.strides[1] == 1:
        emit_global_average(lowering, op, x)
        return
    if not axes or axes != list(range(len(x.shape) - len(axes), len(x.shape))):
        raise NotLoweredError("there is no kernel for a reduction of these dimensions")
    rows = in_rows(lowering, op, x, len(axes))
    target = lowering.place(op.outputs[0], is_image=False)
    flat = target.derive(target.phantom.reshape(-1))
    if flat is None:
        raise NotLoweredError("its result does not lie in rows")
    kernel = RowReduction(
        mode=MODES[type(layer)],
        rows=rows.shape[0],
        columns=rows.shape[1],
        source=rows.strides[0],
        target=flat.strides[0],
        host=lowering.host,
    )
    lowering.emit(kernel, [pointer(rows), pointer(flat)], [op.name], x.phantom.nbytes + 4 * (spec.size or 0))
    lowering.define(op.outputs[0], target)


def in_rows(lowering: Lowering, op: RuntimeOperator, x: View, count: int = 1) -> View:
    """An operand as ``as_rows`` has it; a copy where it does not lie so."""
    rows = as_rows(x, count)
    if rows is None:
        copy = row_major(x.shape, x.dtype)
        lowering.copy(x, copy, [op.name])
        rows = as_rows(copy, count)
    assert rows is not None
    return rows


def as_rows(x: View, count: int = 1) -> View | None:
    """A view as (rows, elements of the last ``count`` dimensions), elements side by side; None if it lies otherwise."""
    size = int(np.prod(x.shape[len(x.shape) - count :]))
    result = x.derive(x.phantom.reshape(-1, size))
    if result is None or (size > 1 and result.strides[1] != 1):
        return None
    return result


def emit_global_average(lowering: Lowering, op: RuntimeOperator, x: View) -> None:
    """The mean over all pixels, to (N, C), (N, C, 1) or (N, C, 1, 1), with the element-wise operators after it."""
    x = lowering.image(op, x)
    fused = absorb(lowering, op)
    target, result = _means(lowering, fused)
    tail, operands = epilogue(lowering, fused, _with_pixels)
    image = x.derive(as_image(x.phantom))
    if image is None:
        raise NotLoweredError("its operand is no image")
    n, channels, rows, columns = image.shape
    kernel = GlobalAverage(
        batch=n,
        rows=rows,
        columns=columns,
        channels=channels,
        source=dense_strides(image),
        target=dense_strides(result),
        host=lowering.host,
        epilogue=tail,
    )
    traffic = x.phantom.nbytes + target.phantom.nbytes
    lowering.emit(kernel, [pointer(image), pointer(result), *operands], fused.operators, traffic)
    lowering.define(fused.operand, target)


def _means(lowering: Lowering, fused: Fused) -> tuple[View, View]:
    """Where the means lie, and the same seen as (n, c, 1, 1)."""
    spec = lowering.float_spec(fused.operand)
    target = lowering.place(fused.operand, is_image=spec.rank > 2)
    seen = target.derive(_with_pixels(target.phantom))
    if seen is None:
        raise NotLoweredError("its result does not lie channels-last")
    return target, seen


def _with_pixels(array: Array) -> Array:
    """(N, C), means that dropped their dimensions, and (N, C, 1) as (N, C, 1, 1)."""
    return array[:, :, None, None] if array.ndim == 2 else as_image(array)
