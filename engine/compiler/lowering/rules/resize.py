"""Resampling of images: whole repetitions are copies, all else a table of taps."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.resize import Resize
from engine.compiler.lowering.fusion import Fused, absorb, epilogue
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.registry import NotLoweredError, lowers
from engine.compiler.lowering.steps import dense_strides, pointer
from engine.compiler.storage import View, constant
from engine.graph.operator import RuntimeOperator
from engine.layers.vision.interpolate import Antialiased, Interpolate
from engine.layers.vision.taps import Taps

# Elements that a new pixel is made of; all are written out.
MOST_TAPS = 64


@lowers(Interpolate, Antialiased, image=True)
def lower_resample(lowering: Lowering, op: RuntimeOperator) -> None:
    """An image resampled along both axes with the element-wise operators after it."""
    layer = lowering.layer(op, Interpolate)
    x, spec = lowering.tensor(op, 0), lowering.float_spec(op.outputs[0])
    if len(x.shape) != 4:
        raise NotLoweredError("there is no kernel for signals and volumes")
    (_, down), (_, across) = sorted(layer.taps(x.phantom, spec.shape[2:]), key=lambda each: each[0])
    if down.used is not None or across.used is not None:
        raise NotLoweredError("there is no kernel for taps of varying number")
    if len(down.indices) * len(across.indices) > MOST_TAPS:
        raise NotLoweredError("there is no kernel for so many taps")
    fused = absorb(lowering, op)
    if len(fused.operators) == 1 and _repeats(down, x.shape[2]) and _repeats(across, x.shape[3]):
        _emit_copy(lowering, op, x)
    else:
        _emit_resize(lowering, op, x, down, across, fused)


def _repeats(taps: Taps, size: int) -> bool:
    """Whether every element is repeated equally often."""
    if taps.weights is not None or taps.indices.shape[1] % size:
        return False
    return bool(np.array_equal(taps.indices[0], np.repeat(np.arange(size), taps.indices.shape[1] // size)))


def _emit_copy(lowering: Lowering, op: RuntimeOperator, x: View) -> None:
    target = lowering.place(op.outputs[0], is_image=True)
    n, c, h, w = x.shape
    blocks = target.derive(target.phantom.reshape(n, c, h, target.shape[2] // h, w, target.shape[3] // w))
    if blocks is None:
        raise NotLoweredError("the result's rows cannot be split in place")
    spread = x.derive(np.broadcast_to(x.phantom[:, :, :, None, :, None], blocks.shape))
    if spread is None:
        raise NotLoweredError("the operand cannot be repeated in place")
    lowering.copy(spread, blocks, [op.name])
    lowering.define(op.outputs[0], target)


def _emit_resize(lowering: Lowering, op: RuntimeOperator, x: View, down: Taps, across: Taps, fused: Fused) -> None:
    x = lowering.image(op, x)
    target = lowering.place(fused.operand, is_image=True)
    tail, operands = epilogue(lowering, fused, lambda array: array)
    is_weighted = down.weights is not None or across.weights is not None
    kernel = Resize(
        batch=x.shape[0],
        rows=target.shape[2],
        columns=target.shape[3],
        channels=x.shape[1],
        taps=(len(down.indices), len(across.indices)),
        is_weighted=is_weighted,
        source=dense_strides(x),
        target=dense_strides(target),
        host=lowering.host,
        epilogue=tail,
    )
    table = constant(kernel.pack(*((each.indices, _weights(each) if is_weighted else None) for each in (down, across))))
    traffic = x.phantom.nbytes + target.phantom.nbytes
    lowering.emit(kernel, [pointer(x), pointer(table), pointer(target), *operands], fused.operators, traffic)
    lowering.define(fused.operand, target)


def _weights(taps: Taps) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    weights = np.ones(taps.indices.shape) if taps.weights is None else taps.weights
    return weights.astype(np.float32)
