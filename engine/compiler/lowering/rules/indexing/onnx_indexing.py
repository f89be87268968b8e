"""ONNX operators with index operands: one-hot, cache updates, reversed sequences, regions."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.elements import TYPES, Domain, make_elements
from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.indexing.gather import Slot, gathered, indices_of, source_tensor
from engine.compiler.lowering.rules.indexing.sampling import lower_regions
from engine.compiler.lowering.rules.indexing.scatter import copied, scattered, source_of, writable
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.layers.onnx.indexing.reverse_sequence import ReverseSequence
from engine.layers.onnx.indexing.scatter import TensorScatter
from engine.layers.onnx.indexing.search import OneHot
from engine.layers.onnx.vision.regions import OnnxRoiAlign
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.layers.vision.roi import RoIAlign
from engine.tensor import DType

X, Y = Operand(0), Operand(1)
# Integers up to this size are exact in float64.
_EXACT = 2**53


def computed(context: Context, target: View, tree: Expr, domain: Domain, *operands: View) -> KernelStep:
    """Return the map that stores an expression of broadcast operands of any dtypes."""
    seen = [target, *(derived(each, each.meta.broadcast_to(target.shape)) for each in operands)]
    dtypes = [each.dtype.name for each in seen]
    kernel = make_elements(target.shape, [each.strides for each in seen], dtypes, tree, domain, context.host)
    return context.step(kernel, *seen)


@kernels_for(OneHot)
def lower_one_hot(context: Context) -> Lowered:
    """Lower one-hot: every position of the new axis is compared with the index."""
    spec, index = context.lowering.spec(context.op.outputs[0]), context.elements(0)
    values = context.elements(2)
    if spec is None or not spec.size or not index.shape or index.dtype.name not in TYPES or index.dtype.kind == "b":
        raise NotLoweredError("its shape is known only at run time, or its index is not a tensor of numbers")
    if not _is_exact(context.argument(2), values.dtype) or values.shape != (2,):
        raise NotLoweredError("there is no kernel for its values")
    axis = checked_axis(context.layer(OneHot).axis, len(spec.sizes))
    size, behind = spec.sizes[axis], len(spec.sizes) - 1 - axis
    own = constant(np.arange(size, dtype=INT64).reshape(-1, *(1,) * behind))
    place = apply("trunc", X) if index.dtype.kind == "f" else X
    is_there = apply("eq", apply("where", apply("lt", place, 0.0), apply("add", place, float(size)), place), Y)
    target = context.allocate(is_image=False) if spec.dtype == FLOAT32 else row_major(spec.sizes, spec.dtype)
    step = computed(
        context, target, apply("where", is_there, Operand(3), Operand(2)), "double",
        derived(index, index.meta.expand_dims(axis)), own,
        *(derived(values, values.meta[k : k + 1].reshape(())) for k in (0, 1)),
    )  # fmt: skip
    return context.lowered(target, step)


def _is_exact(values: object, dtype: DType) -> bool:
    """Return whether float64 holds the values exactly."""
    if dtype.name not in TYPES:
        return False
    if dtype != INT64:
        return True
    return isinstance(values, np.ndarray) and bool((np.abs(values) <= _EXACT).all())


@kernels_for(TensorScatter)
def lower_tensor_scatter(context: Context) -> Lowered:
    """Lower a cache update: a copy of the cache, with new values from a position of each batch on."""
    layer, x = context.layer(TensorScatter), writable(context, 0)
    new, first = source_of(context, context.argument(1), x.dtype), context.argument(2)
    axis = checked_axis(layer.axis, len(x.shape))
    starts = indices_of(np.zeros(len(x.meta), INT64) if first is None else first, context)
    if starts.shape != x.shape[:1] or axis == 0:
        raise NotLoweredError("the shape of its positions does not match")
    count, behind = new.shape[axis], (1,) * (len(x.shape) - axis - 1)
    own = constant(np.arange(count, dtype=INT64).reshape(-1, *behind))
    places = row_major((len(x.meta), *(1,) * (axis - 1), count, *behind), INT64)
    tree: Expr = apply("add", X, Y)
    if layer.mode == "circular":
        tree = apply("remainder", tree, x.shape[axis])
    wide = derived(starts, starts.meta.reshape(-1, *(1,) * (len(x.shape) - 1)))
    target, steps = copied(context, x)
    kept = [0 if k == axis else step for k, step in enumerate(target.strides)]
    slot = Slot(places, axis, wraps=True)
    steps = [*steps, computed(context, places, tree, "i64", wide, own)]
    return scattered(context, target, steps, new.shape, kept, [slot], new, "set")


@kernels_for(ReverseSequence)
def lower_reverse_sequence(context: Context) -> Lowered:
    """Lower a reversal of sequences up to their lengths; a wrong length gives an index out of range."""
    layer, x, lengths = context.layer(ReverseSequence), source_tensor(context), context.argument(1)
    if not isinstance(lengths, View):
        raise NotLoweredError("its lengths are constant")
    lengths, time = indices_of(lengths, context), layer.time_axis
    steps, around = x.shape[time], [1] * len(x.shape)
    if lengths.shape != (x.shape[layer.batch_axis],):
        raise NotLoweredError("the shape of its lengths does not match")
    around[layer.batch_axis] = -1
    wide = derived(lengths, lengths.meta.reshape(around))
    around[layer.batch_axis], around[time] = 1, steps
    own = constant(np.arange(steps, dtype=INT64).reshape(around))
    around[layer.batch_axis] = lengths.shape[0]
    places = row_major(around, INT64)
    turned = apply("where", apply("lt", Y, X), apply("sub", apply("sub", X, 1), Y), Y)
    step = computed(context, places, apply("where", apply("lt", X, 0), -1, turned), "i64", wide, own)
    strides = [0 if k == time else each for k, each in enumerate(x.strides)]
    lowered = gathered(context, x, strides, [Slot(places, time)])
    return Lowered(views=lowered.views, steps=[step, *lowered.steps])


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
