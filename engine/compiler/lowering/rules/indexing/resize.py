"""Resampling of signals, images and volumes: whole repetitions are copies, all else a table of taps."""

from __future__ import annotations

import math

import numpy as np

from engine.compiler.kernels.images.resize import Resize
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.result import as_image
from engine.compiler.lowering.rules.registry import NotLoweredError, kernels_for
from engine.compiler.lowering.steps import KernelStep, Made, dense_strides
from engine.compiler.storage import View, constant
from engine.layers.vision.interpolate import Antialiased, AntialiasedBicubic, Interpolate
from engine.layers.vision.taps import Taps
from engine.tensor import Array, DType

# Elements that a new pixel is made of; all are written out.
MOST_TAPS = 64


@kernels_for(Interpolate, Antialiased, AntialiasedBicubic, image=True, doubles=True)
def lower_resample(context: Context) -> Made:
    """A signal, an image or a volume resampled along its axes with the element-wise operators after it."""
    layer, x, sizes = context.layer(Interpolate), context.tensor(0), context.result_spec.sizes[2:]
    taps = [each for _, each in sorted(layer.taps(x.phantom, sizes), key=lambda each: each[0])]
    if len(taps) != len(sizes) or len(x.shape) not in (3, 4, 5):
        raise NotLoweredError("there is no kernel for it")
    taps = [_evened(each) for each in taps]
    if math.prod(len(each.indices) for each in taps) > MOST_TAPS:
        raise NotLoweredError("there is no kernel for so many taps")
    result = context.fuse(as_image, is_image=True)
    if len(result.fused.operators) == 1 and all(map(_repeats, taps, x.shape[2:])):
        return result.made(_repeated(context, x, result.target))
    image, copies = context.image(x)
    if len(taps) == 1:
        taps = [Taps(indices=np.zeros((1, 1), np.int64)), *taps]
    is_weighted = any(each.weights is not None for each in taps)
    kernel = Resize(
        batch=result.image.shape[0],
        rows=result.image.shape[2],
        columns=result.image.shape[3],
        channels=x.shape[1],
        taps=(len(taps[-2].indices), len(taps[-1].indices)),
        planes=(x.shape[2], sizes[0]) if len(taps) == 3 else None,
        plane_taps=len(taps[0].indices) if len(taps) == 3 else 1,
        is_weighted=is_weighted,
        source=dense_strides(image),
        target=dense_strides(result.image),
        host=context.host,
        epilogue=result.epilogue,
    )
    table = kernel.pack(*((each.indices, _weights(each, context.dtype) if is_weighted else None) for each in taps))
    return result.made(*copies, result.step(kernel, [image, constant(table)]))


def _repeats(taps: Taps, size: int) -> bool:
    """Whether every element is repeated equally often."""
    if taps.weights is not None or taps.indices.shape[1] % size:
        return False
    return bool(np.array_equal(taps.indices[0], np.repeat(np.arange(size), taps.indices.shape[1] // size)))


def _repeated(context: Context, x: View, target: View) -> KernelStep:
    """The copy that repeats every pixel."""
    pairs = [(old, new // old) for old, new in zip(x.shape[2:], target.shape[2:], strict=True)]
    split = target.phantom.reshape(*x.shape[:2], *(size for pair in pairs for size in pair))
    blocks = target.derive(split)
    if blocks is None:
        raise NotLoweredError("the result's rows cannot be split in place")
    spread = x.phantom[(slice(None), slice(None), *((slice(None), None) * len(pairs)))]
    repeated = x.derive(np.broadcast_to(spread, blocks.shape))
    if repeated is None:
        raise NotLoweredError("the operand cannot be repeated in place")
    return context.copy(repeated, blocks)


def _evened(taps: Taps) -> Taps:
    """As many taps for every element: the last one that counts stands for those that do not, its weight shared."""
    if taps.used is None or taps.weights is None:
        return taps
    last = np.maximum(taps.used.sum(axis=0) - 1, 0)
    missing = len(taps.used) - 1 - last
    places = np.minimum(np.arange(len(taps.used))[:, None], last)
    weights = np.take_along_axis(taps.weights, places, 0)
    weights = np.where(places == last, weights / (1 + missing).astype(weights.dtype), weights)
    return Taps(indices=np.take_along_axis(taps.indices, places, 0), weights=weights)


def _weights(taps: Taps, dtype: DType) -> Array:
    weights = np.ones(taps.indices.shape) if taps.weights is None else taps.weights
    return weights.astype(dtype)
