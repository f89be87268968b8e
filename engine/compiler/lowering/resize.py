"""Resampling of images."""

from __future__ import annotations

import numpy as np

from engine.compiler.lowering.builder import Lowering, NotLoweredError, lowers
from engine.compiler.storage import View
from engine.graph.operator import RuntimeOperator
from engine.layers.resample import Resample
from engine.tensor import Array


@lowers(Resample, image=True)
def lower_resample(lowering: Lowering, op: RuntimeOperator) -> None:
    """Nearest neighbours by whole factors: every element copied into a block of the result."""
    layer = None if op.layer is None else op.layer.layer
    x, spec = lowering.tensor(op, 0), lowering.float_spec(op.outputs[0])
    if not isinstance(layer, Resample) or not layer.mode.startswith("nearest") or len(x.shape) != 4:
        raise NotLoweredError("there is no kernel for this mode")
    sizes = [dim or 0 for dim in spec.shape[2:]]
    factors = [count // size for count, size in zip(sizes, x.shape[2:], strict=True)]
    for axis, (factor, count) in enumerate(zip(factors, sizes, strict=True), 2):
        if factor * x.shape[axis] != count or not _repeats(layer, x, axis, factor):
            raise NotLoweredError("there is no kernel for this factor")
    target = lowering.place(op.outputs[0], is_image=True)
    n, c, h, w = x.shape
    blocks = target.derive(target.phantom.reshape(n, c, h, factors[0], w, factors[1]))
    if blocks is None:
        raise NotLoweredError("the result's rows cannot be split in place")
    spread = x.derive(np.broadcast_to(x.phantom[:, :, :, None, :, None], blocks.shape))
    if spread is None:
        raise NotLoweredError("the operand cannot be repeated in place")
    lowering.copy(spread, blocks, [op.name])
    lowering.define(op.outputs[0], target)


def _repeats(layer: Resample, x: View, axis: int, factor: int) -> bool:
    """Whether the layer repeats every element along an axis so many times; it is asked with their indices."""
    shape = [1, 1, x.shape[2], x.shape[3]]
    index: Array = np.arange(x.shape[axis], dtype=np.float32)
    result: Array = layer.forward(np.broadcast_to(index[:, None] if axis == 2 else index, shape))
    line = result[0, 0, :, 0] if axis == 2 else result[0, 0, 0, :]
    return bool(np.array_equal(line, np.repeat(index, factor)))
