"""Largest elements of windows and where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from engine.compiler.kernels.axis import WindowAxis
from engine.compiler.kernels.elements import make_elements
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.pooling.places import PoolPlaces
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.result import as_image
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.rules.pooling.pool_axes import three
from engine.compiler.lowering.steps import KernelStep, Made, dense_strides
from engine.compiler.storage import View, channels_last, constant, row_major
from engine.layers.operands.precision import INT64

# Places that an int32 counts.
_MOST_PLACES = 2**31 - 1


def with_places(
    context: Context,
    spatial_rank: int,
    windows: Callable[[View, Sequence[int]], list[WindowAxis]],
    *,
    in_whole: bool = False,
) -> Made:
    """Both in memory of their own, channels-last; or one of them, if only one is returned.

    Args:
        in_whole: places are counted in the whole tensor, not in the image.
    """
    x, outputs = context.tensor(0), context.op.outputs
    if len(x.shape) == spatial_rank + 1:
        x = derived(x, x.phantom[None])
    spec = context.lowering.spec(outputs[0])
    if spec is None or math.prod(x.shape[2:]) > _MOST_PLACES:
        raise NotLoweredError("there is no kernel for so many places")
    counts = spec.sizes[-spatial_rank:]
    image, copies = context.image(x)
    values = channels_last((*x.shape[:2], *counts), dtype=x.dtype)
    places = row_major((x.shape[0], *counts, x.shape[1]), INT64)
    places = derived(places, places.phantom.moveaxis(-1, 1))
    target, numbers = (derived(each, as_image(each.phantom)) for each in (values, places))
    depth, down, across = three(windows(x, counts))
    kernel = PoolPlaces(
        batch=target.shape[0],
        channels=x.shape[1],
        depth=depth,
        down=down,
        across=across,
        source=dense_strides(image),
        target=dense_strides(target),
        places=dense_strides(numbers),
        host=context.host,
    )
    steps = [*copies, context.step(kernel, image, target, numbers)]
    if in_whole:
        steps.append(_moved(context, places, x.shape[2:]))
    views = [values, places]
    if len(spec.sizes) == spatial_rank + 1:
        views = [derived(each, each.phantom[0]) for each in views]
    if len(outputs) == 1:
        views = [views[0 if spec.dtype == x.dtype else 1]]
    made = {each.name: view for each, view in zip(outputs, views, strict=True)}
    return Made(views=made, steps=steps)


def _moved(context: Context, places: View, sizes: Sequence[int]) -> KernelStep:
    """Places of images where these lie in the whole tensor."""
    n, channels = places.shape[:2]
    first = np.arange(n * channels).reshape(n, channels, *(1,) * len(sizes)) * math.prod(sizes)
    start = constant(first.astype(INT64))
    seen = [places, places, derived(start, start.phantom.broadcast_to(places.shape))]
    strides, dtypes = [each.strides for each in seen], [each.dtype.name for each in seen]
    tree = apply("add", Operand(0), Operand(1))
    return context.step(make_elements(places.shape, strides, dtypes, tree, "i64", context.lowering.host), *seen)
