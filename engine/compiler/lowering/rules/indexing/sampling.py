"""Samples of images at run-time positions: grids, regions of interest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.kernels.images.grid_sample import Sampling
from engine.compiler.kernels.images.roi_align import RegionAlign
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View, channels_last, constant
from engine.layers.vision.grid import AffineGrid, GridSample
from engine.layers.vision.roi import MOST_SAMPLES, RoIAlign

# Channels from which a copy to channels-last pays.
_MANY = 4


def with_contiguous_channels(context: Context, x: View) -> tuple[View, Sequence[KernelStep]]:
    """Return images with contiguous channels, if there are many, and the copy this may take."""
    if x.strides[1] == 1 or x.shape[1] < _MANY:
        return x, ()
    turned = channels_last(x.shape)
    return turned, [context.copy(x, turned)]


@kernels_for(GridSample, image=True)
def lower_grid_sample(context: Context) -> Lowered:
    """Lower samples of images and volumes at the positions of a grid."""
    layer, x, grid = context.layer(GridSample), context.tensor(0), context.tensor(1)
    places = context.result_spec.sizes[2:]
    if len(x.shape) != len(grid.shape) or len(grid.shape) != len(places) + 2:
        raise NotLoweredError("the shape of its grid does not match")
    image, copies = with_contiguous_channels(context, x)
    target = context.allocate()
    kernel = Sampling(
        batch=x.shape[0],
        channels=x.shape[1],
        sizes=x.shape[2:],
        source=image.strides,
        positions=places,
        grid=grid.strides,
        target=target.strides,
        mode=layer.mode,  # type: ignore[arg-type]
        outside=layer.padding_mode,  # type: ignore[arg-type]
        aligns_corners=bool(layer.align_corners),
        host=context.host,
    )
    return context.lowered(target, *copies, context.step(kernel, image, grid, target))


@kernels_for(AffineGrid)
def lower_affine_grid(context: Context) -> Lowered:
    """Lower theta times the coordinates of every element, one component after the other."""
    layer, theta, composition = context.layer(AffineGrid), context.tensor(0), Composition(context)
    n, *sizes, rank = context.result_spec.sizes
    if theta.shape != (n, rank, rank + 1):
        raise NotLoweredError("the shape of its operand does not match")
    ends = [layer.coordinates(size, theta.dtype) for size in sizes]
    axes = [
        constant(end.reshape(1, *(-1 if other == axis else 1 for other in range(rank))))
        for axis, end in enumerate(ends)
    ]
    target = context.allocate(is_image=False)
    for k in range(rank):
        line = derived(theta, theta.meta[:, k].reshape(n, *(1,) * rank, rank + 1))
        numbers = [derived(line, line.meta[..., j]) for j in range(rank + 1)]
        tree: Expr = Operand(2 * rank)
        for j in reversed(range(rank)):
            tree = apply("add", apply("mul", Operand(j), Operand(rank + j)), tree)
        # The first number belongs to the last axis.
        composition.map(tree, *axes[::-1], *numbers, target=derived(target, target.meta[..., k]))
    return context.lowered(target, *composition.steps)


@kernels_for(RoIAlign, image=True)
def lower_roi_align(context: Context) -> Lowered:
    """Lower regions of images, by means of samples."""
    layer, x, regions = context.layer(RoIAlign), context.tensor(0), context.tensor(1)
    if layer.mode != "avg":
        raise NotLoweredError("there is no kernel for maxima of samples")
    if len(x.shape) != 4 or len(regions.shape) != 2 or regions.shape[1] != 5:
        raise NotLoweredError("the shapes of its operands do not match")
    image, copies = with_contiguous_channels(context, x)
    target = context.allocate()
    strides = target.strides
    kernel = RegionAlign(
        count=regions.shape[0],
        batch=x.shape[0],
        channels=x.shape[1],
        sizes=(x.shape[2], x.shape[3]),
        source=(image.strides[0], image.strides[1], image.strides[2], image.strides[3]),
        bins=layer.sizes,
        regions=(regions.strides[0], regions.strides[1]),
        target=(strides[0], strides[1], strides[2], strides[3]),
        scale=float(np.float32(layer.spatial_scale)),
        shift=0.5 if layer.aligned else 0.0,
        least=None if layer.aligned else 1.0,
        samples=max(layer.sampling_ratio, 0),
        most=MOST_SAMPLES**2,
        host=context.host,
    )
    return context.lowered(target, *copies, context.step(kernel, image, regions, target))
