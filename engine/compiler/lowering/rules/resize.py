"""Resampling of images: whole repetitions are copies, all else a table of taps."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.resize import Resize
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.result import as_image
from engine.compiler.lowering.rules.registry import NotLoweredError, kernels_for
from engine.compiler.lowering.steps import KernelStep, Made, dense_strides
from engine.compiler.storage import View, constant
from engine.layers.vision.interpolate import Antialiased, Interpolate
from engine.layers.vision.taps import Taps
from engine.tensor import Array

# Elements that a new pixel is made of; all are written out.
MOST_TAPS = 64


@kernels_for(Interpolate, Antialiased, image=True)
def lower_resample(context: Context) -> Made:
    """An image resampled along both axes with the element-wise operators after it."""
    layer, x, sizes = context.layer(Interpolate), context.tensor(0), context.result_spec.shape[2:]
    if len(x.shape) != 4:
        raise NotLoweredError("there is no kernel for signals and volumes")
    (_, down), (_, across) = sorted(layer.taps(x.phantom, sizes), key=lambda each: each[0])
    if down.used is not None or across.used is not None:
        raise NotLoweredError("there is no kernel for taps of varying number")
    if len(down.indices) * len(across.indices) > MOST_TAPS:
        raise NotLoweredError("there is no kernel for so many taps")
    result = context.fuse(as_image, is_image=True)
    if len(result.fused.operators) == 1 and _repeats(down, x.shape[2]) and _repeats(across, x.shape[3]):
        return result.made(_repeated(context, x, result.target))
    image, copies = context.image(x)
    is_weighted = down.weights is not None or across.weights is not None
    kernel = Resize(
        batch=x.shape[0],
        rows=result.image.shape[2],
        columns=result.image.shape[3],
        channels=x.shape[1],
        taps=(len(down.indices), len(across.indices)),
        is_weighted=is_weighted,
        source=dense_strides(image),
        target=dense_strides(result.image),
        host=context.host,
        epilogue=result.epilogue,
    )
    table = kernel.pack(*((each.indices, _weights(each) if is_weighted else None) for each in (down, across)))
    return result.made(*copies, result.step(kernel, [image, constant(table)]))


def _repeats(taps: Taps, size: int) -> bool:
    """Whether every element is repeated equally often."""
    if taps.weights is not None or taps.indices.shape[1] % size:
        return False
    return bool(np.array_equal(taps.indices[0], np.repeat(np.arange(size), taps.indices.shape[1] // size)))


def _repeated(context: Context, x: View, target: View) -> KernelStep:
    """The copy that repeats every pixel."""
    n, c, h, w = x.shape
    blocks = target.derive(target.phantom.reshape(n, c, h, target.shape[2] // h, w, target.shape[3] // w))
    if blocks is None:
        raise NotLoweredError("the result's rows cannot be split in place")
    spread = x.derive(np.broadcast_to(x.phantom[:, :, :, None, :, None], blocks.shape))
    if spread is None:
        raise NotLoweredError("the operand cannot be repeated in place")
    return context.copy(spread, blocks)


def _weights(taps: Taps) -> Array:
    weights = np.ones(taps.indices.shape) if taps.weights is None else taps.weights
    return weights.astype(np.float32)
