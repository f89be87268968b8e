"""Tensors of one number, and those that follow from shapes and dtypes: constants, which are stored once."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.indexing.arange import COUNTED, ArithmeticSequence
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.indexing.gather import Slot, indices_of
from engine.compiler.lowering.rules.indexing.scatter import scattered
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View, constant, row_major
from engine.layers.creation import creation
from engine.layers.creation.matrices import OneHot
from engine.layers.creation.sequences import ARange
from engine.layers.definition.layer import Layer
from engine.layers.indexing.masking import Copy, Fill
from engine.layers.operands.precision import INT64
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec

# Most elements of a constant with different numbers.
_MAX_ELEMENTS = 2**16


def _spec(context: Context) -> TensorSpec:
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or not spec.size or context.lowering.quantises:
        raise NotLoweredError("its shape is known only at run time, or it has no elements")
    return spec


def _broadcast_constant(context: Context, number: Array) -> Lowered:
    """Return a tensor of one number: memory for a single element, with strides of 0."""
    view, spec = constant(number.reshape(())), _spec(context)
    return context.lowered(derived(view, view.meta.broadcast_to(spec.sizes)))


@kernels_for(creation.Full)
def lower_full(context: Context) -> Lowered:
    """Lower a tensor of one number, known or not, of a given size."""
    return _filled(context, context.argument(0) if context.bound.positional else 0)


@kernels_for(creation.FullLike, creation.NewFull, Fill, Copy)
def lower_fill(context: Context) -> Lowered:
    """Lower one number, known or not, or a tensor that is broadcast in place of another."""
    return _filled(context, context.argument(1))


def _filled(context: Context, value: View | object) -> Lowered:
    spec = _spec(context)
    if isinstance(value, int | float):
        return _broadcast_constant(context, np.asarray(cast(value, spec.dtype)))
    value = context.lowering.stored(value) if isinstance(value, np.ndarray) else value
    if not isinstance(value, View) or value.dtype != spec.dtype:
        raise NotLoweredError("there is no kernel for a number of another dtype")
    meta = value.meta if isinstance(context.layer(Layer), Copy) else value.meta.reshape(())
    return context.lowered(derived(value, meta.broadcast_to(spec.sizes)))


@kernels_for(ARange)
def lower_range(context: Context) -> Lowered:
    """Lower a range of integers with a symbolic length; other ranges are known."""
    spec = _spec(context)
    first, step = _integer(context, 1, 0), _integer(context, 2, 1)
    if spec.dtype.name not in COUNTED:
        raise NotLoweredError(f"there is no kernel that counts in {spec.dtype.name}")
    view, counting = integer_range(context, spec.sizes[0], first, step, spec.dtype)
    return context.lowered(view, counting)


def integer_range(
    context: Context, count: int, first: int = 0, step: int = 1, dtype: DType = INT64
) -> tuple[View, KernelStep]:
    """Return integers in order, in new memory, and the step that writes them."""
    target = row_major((count,), dtype)
    kernel = ArithmeticSequence(count=count, first=first, step=step, dtype=dtype.name, host=context.lowering.host)
    return target, context.step(kernel, target)


def _integer(context: Context, index: int, default: int) -> int:
    value = context.argument(index) if index < len(context.bound.positional) else default
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise NotLoweredError("its start or step is known only at run time, or is not an integer")
    return value


@kernels_for(OneHot)
def lower_one_hot(context: Context) -> Lowered:
    """Lower zeros with a 1 at each index."""
    spec, index = _spec(context), indices_of(context.argument(0), context)
    target, sizes = row_major(spec.sizes, INT64), index.shape or (1,)
    zeros, one = (constant(np.asarray(number, INT64)) for number in (0, 1))
    clear = context.copy(derived(zeros, zeros.meta.broadcast_to(spec.sizes)), target)
    slot = Slot(derived(index, index.meta.reshape(sizes)), len(spec.sizes) - 1)
    return scattered(context, target, [clear], sizes, target.strides[:-1] or (0,), [slot], one, "set")
