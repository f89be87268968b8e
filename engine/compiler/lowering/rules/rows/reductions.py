"""Operators along one dimension: softmax, and sums, means and extremes of rows."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from engine.compiler.kernels.elements import TYPES, Domain
from engine.compiler.kernels.pooling.global_average import Of
from engine.compiler.kernels.rows.reduction import Mode, RowReduction, TypedMode, TypedReduction
from engine.compiler.kernels.rows.softmax import Softmax
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import fuse_following, lines_as_image, unfused
from engine.compiler.lowering.rules.composition import fold_channels, folded_rows
from engine.compiler.lowering.rules.pooling.pool import mean_of_pixels
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, ordered, row_major
from engine.ir.dims import hint
from engine.layers.definition.layer import Layer
from engine.layers.normalisation import softmax
from engine.layers.reduction.extremum import Extreme
from engine.layers.reduction.reduction import Mean, NonZeroTest, Prod, Reduction, Sum
from engine.tensor import dtype_name

MODES: dict[type[Reduction], Mode] = {Mean: "mean", Sum: "sum", Prod: "product"}


@kernels_for(softmax.Softmax, softmax.LogSoftmax, doubles=True)
def lower_softmax(context: Context) -> Lowered:
    """Lower softmax or its logarithm along one dimension, which is copied to lie last if it does not."""
    layer: Any = context.layer(Layer)
    x = context.tensor(0)
    if not context.result_spec.shape:
        raise NotLoweredError("its operand is a scalar")
    axis = layer.axis(len(x.shape))
    if axis == len(x.shape) - 1 and (lowered := _softmax_and_next(context, x)) is not None:
        return lowered
    steps: list[KernelStep] = []
    source = _rows(x, axis)
    if source is None:
        turned = _like(x, axis)
        steps.append(context.copy(x, turned))
        x, source = turned, _rows(turned, axis)
    is_image = x.is_image and axis == 1 and len(x.shape) == 4
    target = context.lowering.allocate(context.op.outputs[0], is_image, x.order)
    is_direct = source is not None and _same_order(x, target, axis)
    out = target if is_direct else _like(x, axis)
    result = _rows(out, axis)
    if source is None or result is None:
        raise NotLoweredError("the rows of its operand are not contiguous")
    strides, is_logarithm = (source.strides[0], result.strides[0]), isinstance(layer, softmax.LogSoftmax)
    kernel = Softmax.of(source.shape, strides, context.host, is_logarithm=is_logarithm)
    steps.append(context.step(kernel, source, result))
    return context.lowered(target, *steps, *(() if is_direct else [context.copy(out, target)]))


def _softmax_and_next(context: Context, x: View) -> Lowered | None:
    """Lower softmax along the last dimension with the operators after it; None if there are none."""
    seen_as = partial(lines_as_image, columns=x.shape[-1])
    fused = fuse_following(context.lowering, unfused(context.op), seen_as)
    if len(fused.operators) == 1:
        return None
    rows, copies = context.rows(x, 1)
    result = context.result_of(fused, seen_as, is_image=False)
    strides, is_logarithm = (rows.strides[0], result.image.strides[2]), type(context.layer(Layer)) is softmax.LogSoftmax
    kernel = Softmax.of(rows.shape, strides, context.host, is_logarithm=is_logarithm, epilogue=result.epilogue)
    return result.lowered(*copies, result.step(kernel, [rows]))


def _like(x: View, axis: int) -> View:
    """Return new memory with contiguous elements along ``axis``, and rows in the order of ``x``."""
    return ordered(x.shape, [*(k for k in x.order if k != axis), axis], x.dtype)


def _same_order(a: View, b: View, axis: int) -> bool:
    """Return whether rows have the same order in both."""

    def order(view: View) -> list[int]:
        return [k for k in view.order if k != axis and view.shape[k] > 1]

    return order(a) == order(b) and _rows(a, axis) is not None and _rows(b, axis) is not None


def _rows(x: View, axis: int) -> View | None:
    """Return the view as (rows, contiguous elements along ``axis``), or None."""
    moved = x.meta.moveaxis(axis, -1)
    if moved.shape[-1] > 1 and moved.strides[-1] != moved.itemsize:
        return None
    kept = [k for k in range(moved.ndim - 1) if moved.shape[k] > 1]
    ordered = sorted(kept, key=lambda k: -hint(moved.strides[k]))
    lines = moved.transpose([*(k for k in range(moved.ndim - 1) if k not in kept), *ordered, moved.ndim - 1])
    return x.derive(lines.reshape(-1, moved.shape[-1]))


def _mode(layer: Reduction) -> Mode:
    if isinstance(layer, Extreme):
        return "max" if layer.is_largest else "min"
    return MODES[type(layer)]


@kernels_for(*MODES, Extreme, doubles=True)
def lower_reduction(context: Context) -> Lowered:
    """Lower a reduction of any dimensions, copied to lie last if needed, or the mean over pixels."""
    if (typed := context.argument(0)) is not None and isinstance(typed, View) and typed.dtype != context.dtype:
        return lower_typed_reduction(context)
    layer, x, rank = context.layer(Reduction), context.tensor(0), context.result_spec.rank
    axes = sorted(layer.axes(len(x.shape)))
    mode = _mode(layer)
    are_pixels = len(x.shape) in (3, 4, 5) and axes == [*range(2, len(x.shape))]
    if mode != "product" and are_pixels and x.strides[1] == 1:
        return mean_of_pixels(context, x, is_image=rank > 2, of=mode)
    is_run = bool(axes) and axes == list(range(axes[0], axes[-1] + 1))
    if mode != "product" and is_run and axes[-1] < len(x.shape) - 1:
        with suppress(NotLoweredError):  # its slice of a concatenation has gaps
            return _reduced_between(context, x, axes, mode)
    if not axes or not x.shape:
        raise NotLoweredError("there is no kernel for a reduction over no dimensions")
    rows, copies = folded_rows(context, x, axes)
    target, flat = _in_rows(context.allocate(is_image=False))
    kernel = RowReduction.of(rows.shape, (rows.strides[0], flat.strides[0]), context.host, mode=mode)
    return context.lowered(target, *copies, context.step(kernel, rows, flat))


def _in_rows(target: View) -> tuple[View, View]:
    """Return memory for a result, of its own if its slice of a concatenation has gaps; and the same as a vector."""
    flat = target.derive(target.meta.reshape(-1))
    if flat is None:
        target = row_major(target.shape, target.dtype)
        flat = derived(target, target.meta.reshape(-1))
    return target, flat


@kernels_for(NonZeroTest)
def lower_typed_reduction(context: Context) -> Lowered:
    """Lower a reduction of another dtype than float32, or to another dtype."""
    layer, x, spec = context.layer(Reduction), context.elements(0), context.lowering.spec(context.op.outputs[0])
    axes = sorted(layer.axes(len(x.shape)))
    if spec is None or spec.dtype.name not in TYPES or x.dtype.name not in TYPES or not axes or not x.shape:
        raise NotLoweredError(f"there are no {dtype_name(x.dtype)} kernels")
    mode: TypedMode = layer.mode if isinstance(layer, NonZeroTest) else _mode(layer)
    is_question = mode in ("any", "all", "count")
    kinds = (x.dtype.kind, spec.dtype.kind)
    if not is_question and ((kinds[0] == "f") != (kinds[1] == "f") or (mode == "mean" and kinds[0] != "f")):
        raise NotLoweredError("there is no kernel for a reduction to another dtype")
    if not is_question and kinds == ("f", "f") and x.dtype != spec.dtype:
        raise NotLoweredError("there is no kernel for a reduction to another dtype")
    domain: Domain = "i64" if kinds[0] != "f" else "double" if x.dtype == np.float64 else "float"
    rows, copies = folded_rows(context, x, axes)
    is_placed = spec.dtype == FLOAT32
    target, flat = _in_rows(context.allocate(is_image=False) if is_placed else row_major(spec.sizes, spec.dtype))
    kernel = TypedReduction(
        mode=mode,
        rows=rows.shape[0],
        columns=rows.shape[1],
        source=rows.strides[0],
        target=flat.strides[0],
        dtypes=(x.dtype.name, spec.dtype.name),
        domain=domain,
        host=context.host,
    )
    return context.lowered(target, *copies, context.step(kernel, rows, flat))


def _reduced_between(context: Context, x: View, axes: list[int], of: Of) -> Lowered:
    """Lower a reduction of dimensions before the last ones: these are channels, the reduced ones pixels."""
    outer, pixels = math.prod(x.shape[: axes[0]]), math.prod(x.shape[axes[0] : axes[-1] + 1])
    channels = math.prod(x.shape[axes[-1] + 1 :])
    steps: list[KernelStep] = []
    image = x.derive(x.meta.reshape(outer, pixels, channels).transpose(0, 2, 1)[:, :, None, :])
    if image is None or image.strides[1] != 1:
        copied = context.copied(x, steps)
        image = copied.derive(copied.meta.reshape(outer, pixels, channels).transpose(0, 2, 1)[:, :, None, :])
    if image is None:
        raise NotLoweredError("the rows of its operand are not contiguous")
    result = context.fuse(lambda array: array.reshape(outer, channels)[:, :, None, None], is_image=False)
    kernel = fold_channels(image, result.image, of, context.host, result.epilogue)
    return result.lowered(*steps, result.step(kernel, [image]))
