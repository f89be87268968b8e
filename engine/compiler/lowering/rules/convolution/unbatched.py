"""Images without a batch dimension, for kernels of images: a batch of one, where it lies."""

from __future__ import annotations

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.fusion import absorb, alone
from engine.compiler.lowering.result import Result, as_image
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.storage import View, channels_last
from engine.ir.strided import Strided


def batched(context: Context, spatial_rank: int) -> tuple[View, tuple[int, ...]]:
    """The first operand (N, C, *S), with N = 1 where it has none, and the sizes of the result along S.

    Raises:
        NotLoweredError: it is of another rank.
    """
    x, sizes = context.tensor(0), context.result_spec.sizes
    if len(x.shape) == spatial_rank + 1:
        return derived(x, x.phantom[None]), sizes[1:]
    if len(x.shape) != spatial_rank + 2:
        raise NotLoweredError("its operand is no batch of images")
    return x, sizes[2:]


def fused(context: Context, spatial_rank: int) -> Result:
    """The result of a kernel of images with the operators that join it, of such an operand."""
    if len(context.result_spec.sizes) == spatial_rank + 2:
        return context.fuse(as_image, is_image=True)
    found = absorb(context.lowering, alone(context.op), _as_batch_of_one)
    whole = channels_last((1, *context.result_spec.sizes), dtype=context.dtype)
    return Result.seen(found, derived(whole, whole.phantom[0]), _as_batch_of_one, context.lowering.alarm)


def _as_batch_of_one(array: Strided) -> Strided:
    return as_image(array[None])
