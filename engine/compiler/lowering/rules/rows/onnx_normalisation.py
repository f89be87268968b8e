"""Normalisation of ONNX, and hardmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.rules.rows.extremes import extremes_of
from engine.compiler.lowering.rules.rows.normalisation import lower_batch_norm, lower_group_norm, lower_instance_norm
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.storage import constant
from engine.layers.definition.bound import Source
from engine.layers.definition.layer import Layer
from engine.layers.normalisation.norm import BatchNorm, GroupNorm, InstanceNorm
from engine.layers.onnx.elementwise.activation import Hardmax
from engine.layers.onnx.rows.norm import (
    OnnxBatchNorm,
    OnnxGroupNorm,
    OnnxInstanceNorm,
)
from engine.layers.operands.axes import checked_axis

X, Y = Operand(0), Operand(1)
_NOTHING = Source(constant=None)


@kernels_for(OnnxBatchNorm, doubles=True)
def lower_onnx_batch_norm(context: Context) -> Lowered:
    """Lower batch normalisation, whose statistics come after scale and bias."""
    found = context.layer(OnnxBatchNorm)
    if found.training_mode:
        raise NotLoweredError("there is no kernel for training mode")
    layer = BatchNorm(eps=found.epsilon)
    return lower_batch_norm(_as(context, layer, (0, 3, 4, 1, 2)))


@kernels_for(OnnxInstanceNorm, doubles=True)
def lower_onnx_instance_norm(context: Context) -> Lowered:
    """Lower instance normalisation, which has no statistics."""
    layer = InstanceNorm(eps=context.layer(OnnxInstanceNorm).epsilon)
    return lower_instance_norm(_as(context, layer, (0, None, None, 1, 2)))


@kernels_for(OnnxGroupNorm, doubles=True)
def lower_onnx_group_norm(context: Context) -> Lowered:
    """Lower group normalisation with scale and bias of channels."""
    layer, x = context.layer(OnnxGroupNorm), context.tensor(0)
    if any(context.tensor(index).shape != x.shape[1:2] for index in (1, 2)):
        raise NotLoweredError("there is no kernel for one weight a group")
    return lower_group_norm(_as(context, GroupNorm(num_groups=layer.num_groups, eps=layer.epsilon), (0, 1, 2)))


def _as(context: Context, layer: Layer, order: tuple[int | None, ...]) -> Context:
    """Return the context of another layer, whose arguments come in another order."""
    given = context.bound.positional
    positional = tuple(_NOTHING if place is None else given[place] for place in order)
    return replace(context, bound=replace(context.bound, layer=layer, positional=positional, dynamic={}))


@kernels_for(Hardmax)
def lower_hardmax(context: Context) -> Lowered:
    """Lower 1 at the first of the largest elements, else 0."""
    x = context.elements(0)
    if not x.shape:
        raise NotLoweredError("its operand is a scalar")
    axis = checked_axis(context.layer(Hardmax).axis, len(x.shape))
    sizes = [1 if each == axis else size for each, size in enumerate(x.shape)]
    places, _, composition = extremes_of(context, axis, is_largest=True, sizes=sizes)
    own = constant(np.arange(x.shape[axis], dtype=np.int64).reshape(-1, *(1,) * (len(x.shape) - 1 - axis)))
    target = context.allocate_like(x)
    wide = [derived(each, each.meta.broadcast_to(x.shape)) for each in (places, own)]
    seen = [target, *wide]
    kernel = make_elements(
        x.shape, [each.strides for each in seen], [each.dtype.name for each in seen], apply("eq", X, Y), "double",
        context.host,
    )  # fmt: skip
    return context.lowered(target, *composition.steps, context.step(kernel, *seen))
