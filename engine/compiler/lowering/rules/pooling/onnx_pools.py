"""Pooling of ONNX: padding that differs before and after, indices in the whole tensor, Lp norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Expr, Number, Operand, apply
from engine.compiler.kernels.windows import WindowAxis
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.indexing.gather import indices_of
from engine.compiler.lowering.rules.indexing.scatter import unpool
from engine.compiler.lowering.rules.pooling.pool import averaged, axes_of, pooled, with_places
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View, channels_last
from engine.layers.onnx.operands.adapter import present
from engine.layers.onnx.pooling.global_pool import GlobalLpPool
from engine.layers.onnx.pooling.pool import OnnxAveragePool, OnnxLpPool, OnnxMaxPool, Windows
from engine.layers.onnx.pooling.unpool import OnnxMaxUnpool
from engine.layers.pooling.max_pool import INDEX
from engine.tensor import TensorSpec


@kernels_for(OnnxMaxPool, image=True, doubles=True)
def lower_max_pool(context: Context) -> Lowered:
    """Lower the largest element of every window, and its index."""
    layer, x = context.layer(OnnxMaxPool), _images(context)
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None:
        raise NotLoweredError("its shape is known only at run time")
    kinds = (TensorSpec(spec.shape, x.dtype), TensorSpec(spec.shape, INDEX))
    if present(kinds, layer.annotations) == (0,):
        return pooled(context, x, "max", _axes(layer, x, spec.sizes[2:]))
    if layer.storage_order:
        raise NotLoweredError("there is no kernel for column-major indices")
    return with_places(context, len(layer.kernel_shape), lambda x, counts: _axes(layer, x, counts), in_whole=True)


@kernels_for(OnnxAveragePool, image=True, doubles=True)
def lower_average_pool(context: Context) -> Lowered:
    """Lower the mean of every window."""
    layer, x = context.layer(OnnxAveragePool), _images(context)
    axes = _axes(layer, x, context.result_spec.sizes[2:])
    return pooled(context, x, "average", axes, counts_padding=layer.count_include_pad)


@kernels_for(OnnxLpPool, image=True, doubles=True)
def lower_lp_pool(context: Context) -> Lowered:
    """Lower sum(abs(x)^p)^(1/p) of every window."""
    layer, x, composition = context.layer(OnnxLpPool), _images(context), Composition(context)
    powers = composition.map(_powers(layer.p), x, target=channels_last(x.shape, dtype=x.dtype))
    totals = channels_last(context.result_spec.sizes, dtype=x.dtype)
    composition.steps.append(averaged(context, powers, totals, _axes(layer, x, totals.shape[2:]), divisor=1))
    return composition.finish(power(Operand(0), Number(1 / layer.p)), totals)


@kernels_for(GlobalLpPool, doubles=True)
def lower_global_lp_pool(context: Context) -> Lowered:
    """Lower sum(abs(x)^p)^(1/p) of whole channels."""
    layer, x, composition = context.layer(GlobalLpPool), context.tensor(0), Composition(context)
    total = composition.reduce(composition.map(_powers(layer.p), x), range(2, len(x.shape)), "sum")
    return composition.finish(power(Operand(0), Number(1 / layer.p)), total)


@kernels_for(OnnxMaxUnpool, doubles=True)
def lower_max_unpool(context: Context) -> Lowered:
    """Lower zeros with each value at its index in the whole tensor."""
    layer, x = context.layer(OnnxMaxUnpool), context.tensor(0)
    index, sizes = indices_of(context.argument(1), context), context.result_spec.sizes
    if index.shape != x.shape or layer.natural(x.shape) != sizes:
        raise NotLoweredError("there is no kernel for indices into a tensor of another size")
    return unpool(context, x, index, sizes, ())


def _powers(p: float) -> Expr:
    if not np.isfinite(p) or p == 0:
        raise NotLoweredError("there is no kernel for this power")
    return power(apply("abs", Operand(0)), Number(p))


def _images(context: Context) -> View:
    x = context.tensor(0)
    if not 3 <= len(x.shape) <= 5:
        raise NotLoweredError("there is no kernel for images of so many dimensions")
    return x


def _axes(layer: Windows, x: View, counts: Sequence[int]) -> list[WindowAxis]:
    return axes_of(layer.windows_on(x.shape[2:]), x.shape[2:], counts)
