"""Layer normalisation: the last dimensions as rows, with the element-wise operators after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.kernels.rows.layer_norm import LayerNorm as Kernel
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.result import lines_as_image
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, constant, row_major
from engine.layers.normalisation.layer_norm import LayerNorm, RMSNorm
from engine.tensor import Array


@kernels_for(LayerNorm, rows=True, doubles=True)
def lower_layer_norm(context: Context) -> Made:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions."""
    layer = context.layer(LayerNorm)
    if any(isinstance(context.argument(index), View) for index in (1, 2)):
        return _with_computed(context, layer.normalized_shape, (1, 2), eps=layer.eps, is_centred=True)
    scales = [context.optional_weight(index) for index in (1, 2)]
    return _normalised(context, layer.normalized_shape, scales, eps=layer.eps, is_centred=True)


@kernels_for(RMSNorm, rows=True, doubles=True)
def lower_rms_norm(context: Context) -> Made:
    """x / sqrt(mean(x²) + eps) * weight over the last dimensions."""
    layer = context.layer(RMSNorm)
    eps = float(np.finfo(context.dtype).eps) if layer.eps is None else layer.eps
    if isinstance(context.argument(1), View):
        return _with_computed(context, layer.normalized_shape, (1,), eps=eps, is_centred=False)
    scales = [context.optional_weight(1), None]
    return _normalised(context, layer.normalized_shape, scales, eps=eps, is_centred=False)


def _normalised(
    context: Context, normalized_shape: tuple[int, ...], scales: list[Array | None], *, eps: float, is_centred: bool
) -> Made:
    x, columns = context.tensor(0), math.prod(normalized_shape)
    if any(scale is not None and scale.size != columns for scale in scales):
        raise NotLoweredError("its weight or bias has an unusual shape")
    rows, copies = context.rows(x, len(normalized_shape))
    result = context.fuse(partial(lines_as_image, columns=columns), is_image=False)
    kernel = Kernel(
        rows=rows.shape[0],
        columns=columns,
        source=rows.strides[0],
        target=result.image.strides[2],
        eps=eps,
        is_centred=is_centred,
        has_weight=scales[0] is not None,
        has_bias=scales[1] is not None,
        host=context.host,
        epilogue=result.epilogue,
    )
    stored = [constant(scale.reshape(-1)) for scale in scales if scale is not None]
    return result.made(*copies, result.step(kernel, [rows], after=stored))


def _with_computed(
    context: Context, normalized_shape: tuple[int, ...], places: Sequence[int], *, eps: float, is_centred: bool
) -> Made:
    """The same with weights that the run computes: a map after the norm."""
    x, columns, composition = context.tensor(0), math.prod(normalized_shape), Composition(context)
    rows, copies = context.rows(x, len(normalized_shape))
    target = row_major(x.shape, x.dtype)
    lines = derived(target, target.phantom.reshape(-1, columns))
    kernel = Kernel(
        rows=rows.shape[0],
        columns=columns,
        source=rows.strides[0],
        target=columns,
        eps=eps,
        is_centred=is_centred,
        host=context.host,
    )
    composition.steps.extend([*copies, context.step(kernel, rows, lines)])
    tree: Expr = Operand(0)
    views = [target]
    for name, place in zip(("mul", "add"), places, strict=False):
        view = composition.operand(place, normalized_shape)
        if view is not None:
            tree = apply(name, tree, Operand(len(views)))
            views.append(view)
    return composition.finish(tree, *views)
