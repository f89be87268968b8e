"""ONNX operators with index operands: one-hot, cache updates, reversed sequences, regions."""

from __future__ import annotations

from engine.compiler.kernels.elements import Domain, make_elements
from engine.compiler.kernels.expr import Expr, Operand
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.indexing.sampling import lower_regions
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.onnx.vision.regions import OnnxRoiAlign
from engine.layers.vision.roi import RoIAlign

X, Y = Operand(0), Operand(1)
# Integers up to this size are exact in float64.
_EXACT = 2**53


def computed(context: Context, target: View, tree: Expr, domain: Domain, *operands: View) -> KernelStep:
    """Return the map that stores an expression of broadcast operands of any dtypes."""
    seen = [target, *(derived(each, each.meta.broadcast_to(target.shape)) for each in operands)]
    dtypes = [each.dtype.name for each in seen]
    kernel = make_elements(target.shape, [each.strides for each in seen], dtypes, tree, domain, context.host)
    return context.step(kernel, *seen)


@kernels_for(OnnxRoiAlign, image=True)
def lower_roi_align(context: Context) -> Lowered:
    """Lower means of regions with separate image numbers; maximum mode is left to the reference."""
    layer, x, rois, images = context.layer(OnnxRoiAlign), context.tensor(0), context.tensor(1), context.elements(2)
    count = rois.shape[0]
    if layer.mode != "avg" or images.dtype.kind not in "iu" or images.shape not in ((count,), ()):
        raise NotLoweredError("there is no kernel for maxima of samples")
    regions = row_major((count, 5), FLOAT32)
    numbers = derived(regions, regions.meta[:, 0])
    steps = [
        computed(context, numbers, X, "double", images),
        context.copy(rois, derived(regions, regions.meta[:, 1:])),
    ]
    aligned = layer.coordinate_transformation_mode == "half_pixel"
    pool = RoIAlign(
        output_size=(layer.output_height, layer.output_width),
        spatial_scale=layer.spatial_scale,
        sampling_ratio=layer.sampling_ratio,
        aligned=aligned,
    )
    lowered = lower_regions(context, pool, x, regions)
    return Lowered(views=lowered.views, steps=[*steps, *lowered.steps])
