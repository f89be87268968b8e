"""Resampling of signals, images and volumes: integer upsampling is a copy, everything else a table of taps.

The table of symbolic sizes is filled at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.compiler.kernels.images.resize import Resize
from engine.compiler.kernels.images.resize_table import Method, ResizeTable, TableAxis
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, dense_strides, derived
from engine.compiler.storage import FLOAT32, View, channels_last, constant, row_major
from engine.errors import ShapeError
from engine.ir.dims import is_same, is_symbolic
from engine.layers.onnx.vision.resize import ROUNDINGS
from engine.layers.onnx.vision.resize import Resize as OnnxResize
from engine.layers.vision.interpolate import Antialiased, AntialiasedBicubic, Interpolate, NearestExact
from engine.layers.vision.taps import Taps
from engine.tensor import Array, DType

# Most elements of a new pixel; the code is unrolled over them.
MAX_TAPS = 64
# Up to this size float32 gives exact indices of repeated elements.
MAX_REPEATED = 2**14
# Positions of new elements, by ONNX's coordinate transformation mode.
_PLACES: Final[dict[str, dict[str, Any]]] = {
    "asymmetric": {},
    "tf_half_pixel_for_nn": {"before": 0.5},
    "half_pixel": {"before": 0.5, "after": 0.5},
    "pytorch_half_pixel": {"before": 0.5, "after": 0.5, "starts_at_zero": True},
    "align_corners": {"ratio": "corners"},
}


@kernels_for(Interpolate, Antialiased, AntialiasedBicubic, NearestExact, image=True, doubles=True)
def lower_resample(context: Context) -> Lowered:
    """Lower the resampling of a signal, image or volume with the element-wise operators after it."""
    layer, x, sizes = context.layer(Interpolate), context.tensor(0), context.result_spec.sizes[2:]
    if is_symbolic((*x.shape[2:], *sizes)):
        table_axes = _symbolic_axes(layer, x, sizes)
        if table_axes is not None:
            return _resampled_in_run(context, x, table_axes)
    taps = [each for _, each in sorted(layer.taps(x.shape, x.dtype, sizes), key=lambda each: each[0])]
    if len(taps) != len(sizes) or len(x.shape) not in (3, 4, 5):
        raise NotLoweredError("there is no kernel for it")
    return _resampled(context, x, [_equal_counts(each) for each in taps])


@kernels_for(OnnxResize, image=True, doubles=True)
def lower_onnx_resize(context: Context) -> Lowered:
    """Lower the resampling of any axes: other axes become the batch and the channels."""
    layer, x = context.layer(OnnxResize), context.tensor(0)
    try:
        if is_symbolic(x.shape) or is_symbolic(context.result_spec.sizes):
            table_axes = _symbolic_onnx_axes(layer, x, context.arguments()[1:])
            if table_axes is not None:
                return _resampled_in_run(context, x, table_axes)
        found = layer.taps(x.shape, x.dtype, *context.arguments()[1:])
    except ShapeError as error:
        raise NotLoweredError("its parameters are known only at run time, or lie outside its operand") from error
    axes, rank, kept = [*sorted(found)], len(x.shape), [axis for axis in range(len(x.shape)) if axis not in found]
    if not axes:
        return context.lowered(x)
    if len(axes) > 3:
        raise NotLoweredError("there is no kernel for this many dimensions")
    if min(axes) > 1 and 3 <= rank <= 5:
        stays = {axis: _identity_taps(x.shape[axis]) for axis in range(2, rank)}
        return _resampled(context, x, [each for _, each in sorted({**stays, **found}.items())])
    n = x.shape[kept[0]] if len(kept) > 1 else 1
    shape = (n, math.prod(x.shape[axis] for axis in kept) // n, *(x.shape[axis] for axis in axes))
    turned = x.derive(x.meta.transpose([*kept, *axes]).reshape(shape))
    steps = []
    if turned is None:
        copied = row_major([x.shape[axis] for axis in (*kept, *axes)], x.dtype)
        steps.append(context.copy(derived(x, x.meta.transpose([*kept, *axes])), copied))
        turned = derived(copied, copied.meta.reshape(shape))
    target = channels_last((*shape[:2], *(found[axis].indices.shape[1] for axis in axes)), dtype=x.dtype)
    image, copies = context.image(turned)
    whole = derived(target, as_image(target.meta))
    kernel, table = _filled(context, turned.shape[2], image, whole, [found[axis] for axis in axes], Epilogue())
    order = np.argsort([*kept, *axes])
    spread = target.meta.reshape(*(x.shape[axis] for axis in kept), *target.shape[2:])
    result = derived(target, spread.transpose(order))
    return context.lowered(result, *steps, *copies, context.step(kernel, image, table, whole))


def _resampled(context: Context, x: View, taps: list[Taps]) -> Lowered:
    """Resample (N, C, *S) along S; axis by axis if all at once have too many taps."""
    before: list[KernelStep] = []
    while math.prod(len(each.indices) for each in taps) > MAX_TAPS:
        axis = max(range(len(taps)), key=lambda axis: len(taps[axis].indices))
        x = _along(context, x, taps, axis, before)
        taps = [_identity_taps(x.shape[2 + axis]) if other == axis else each for other, each in enumerate(taps)]
    result = context.fuse(as_image, is_image=True)
    if not before and len(result.fused.operators) == 1 and all(map(_repeats, taps, x.shape[2:])):
        return result.lowered(_repeated(context, x, result.target))
    image, copies = context.image(x)
    kernel, table = _filled(context, x.shape[2], image, result.image, taps, result.epilogue)
    return result.lowered(*before, *copies, result.step(kernel, [image, table]))


def _symbolic_axes(layer: Interpolate, x: View, sizes: Sequence[int]) -> list[TableAxis] | None:
    """Return the axes of symbolic sizes, after the channels; None if their table is not made at run time."""
    names: dict[str, Method] = {"nearest": "nearest", "nearest-exact": "nearest", "bicubic": "cubic"}
    method = names.get(layer.mode, "linear")
    if isinstance(layer, Antialiased) or x.dtype != FLOAT32 or len(sizes) != len(x.shape) - 2 > 3:
        return None
    meets_corners = bool(layer.align_corners)
    half = 0.0 if meets_corners or layer.mode == "nearest" else 0.5
    axes = []
    for size, count, scale in zip(x.shape[2:], sizes, layer.given_scales(x.shape, x.dtype, tuple(sizes)), strict=True):
        ratio: Any = "corners" if meets_corners else "sizes" if scale is None else 1 / scale
        after = 0.0 if method == "nearest" else half
        axes.append(TableAxis(size=size, count=count, method=method, ratio=ratio, before=half, after=after))
    return axes


def _symbolic_onnx_axes(layer: OnnxResize, x: View, operands: Sequence[object]) -> list[TableAxis] | None:
    """Return the same for ONNX layers; None also if they resample the batch or the channels."""
    mode = layer.coordinate_transformation_mode
    is_plain = not (layer.antialias or layer.exclude_outside) and layer.keep_aspect_ratio_policy == "stretch"
    if not is_plain or mode not in _PLACES or x.dtype != FLOAT32 or not 3 <= len(x.shape) <= 5:
        return None
    changes = layer.changes(x.shape, *operands)
    if not changes or min(changes) < 2:
        return None
    methods: dict[str, Method] = {"nearest": "nearest", "linear": "onnx_linear", "cubic": "onnx_cubic"}
    method = methods[layer.mode]
    axes = []
    for axis in range(2, len(x.shape)):
        if axis not in changes:
            axes.append(TableAxis(size=x.shape[axis], count=x.shape[axis]))
            continue
        size, count, scale = changes[axis]
        rounding = layer.nearest_mode
        if rounding == "simple":
            rounding = "ceil" if (count < size if scale is None else scale < 1) else "floor"
        details: dict[str, Any] = {"ratio": "sizes" if scale is None else scale, **_PLACES[mode]}
        a = layer.cubic_coeff_a
        axes.append(
            TableAxis(size=size, count=count, method=method, is_scale=True, rounding=rounding, cubic_a=a, **details)
        )
    return axes


def _resampled_in_run(context: Context, x: View, axes: Sequence[TableAxis]) -> Lowered:
    """Resample images of symbolic sizes by a table made at run time, unless elements are repeated."""
    result = context.fuse(as_image, is_image=True)
    if len(result.fused.operators) == 1 and all(map(_repeats_in_run, axes)):
        return result.lowered(_repeated(context, x, result.target))
    axes = [TableAxis(size=1, count=1), *axes] if len(axes) == 1 else list(axes)
    filling = ResizeTable(
        host=context.host, axes=tuple(axes), is_weighted=any(axis.method not in ("stay", "nearest") for axis in axes)
    )
    image, copies = context.image(x)
    planes = (axes[0].size, axes[0].count) if len(axes) == 3 else None
    options = {"is_weighted": filling.is_weighted, "epilogue": result.epilogue}
    kernel = _kernel(context, planes, image, result.image, [axis.taps for axis in axes], **options)
    table = row_major((filling.floats,), FLOAT32)
    return result.lowered(*copies, context.step(filling, table), result.step(kernel, [image, table]))


def _repeats_in_run(axis: TableAxis) -> bool:
    """Return whether every element is repeated equally often, whatever the size, up to a limit.

    The elements that new ones are made of do not depend on the size, so the largest shows them for all.
    """
    if axis.method == "stay":
        return True
    times = axis.count // axis.size
    if is_symbolic(times) or axis.method != "nearest" or axis.ratio == "corners" or not axis.size <= MAX_REPEATED:
        return False
    if not is_same(axis.count, times * axis.size):
        return False
    number = np.arange(times * MAX_REPEATED, dtype=np.float32)
    given = axis.ratio if not isinstance(axis.ratio, str) else times if axis.is_scale else 1 / times
    ratio = np.float32(given)
    place = number + np.float32(axis.before)
    place = (place / ratio if axis.is_scale else place * ratio) - np.float32(axis.after)
    found = np.clip(ROUNDINGS[axis.rounding](place), 0, MAX_REPEATED - 1)
    return bool(np.array_equal(found, np.repeat(np.arange(MAX_REPEATED), times)))


def _along(context: Context, x: View, taps: Sequence[Taps], axis: int, steps: list[KernelStep]) -> View:
    """Resample images or volumes along one of their axes."""
    one = [each if other == axis else _identity_taps(x.shape[2 + other]) for other, each in enumerate(taps)]
    target = channels_last((*x.shape[:2], *(each.indices.shape[1] for each in one)), dtype=x.dtype)
    image, copies = context.image(x)
    whole = derived(target, as_image(target.meta))
    kernel, table = _filled(context, x.shape[2], image, whole, one, Epilogue())
    steps += [*copies, context.step(kernel, image, table, whole)]
    return target


def _identity_taps(size: int) -> Taps:
    """Return taps that keep every element."""
    return Taps(indices=np.arange(size)[None])


def _filled(
    context: Context, depth: int, image: View, target: View, taps: list[Taps], epilogue: Epilogue
) -> tuple[Resize, View]:
    """Return the kernel and its table.

    Args:
        depth: size of the operand along its first axis; that of planes where there are three.
    """
    planes = (depth, taps[0].indices.shape[1]) if len(taps) == 3 else None
    if len(taps) == 1:  # a row
        taps = [Taps(indices=np.zeros((1, 1), np.int64)), *taps]
    is_weighted = any(each.weights is not None for each in taps)
    counts = [len(each.indices) for each in taps]
    kernel = _kernel(context, planes, image, target, counts, is_weighted=is_weighted, epilogue=epilogue)
    table = kernel.pack(*((each.indices, _weights(each, context.dtype) if is_weighted else None) for each in taps))
    return kernel, constant(table)


def _kernel(
    context: Context, planes: tuple[int, int] | None, image: View, target: View, taps: Sequence[int], **options: Any
) -> Resize:
    if math.prod(taps) > MAX_TAPS:
        raise NotLoweredError("there is no kernel for this many taps")
    n, channels, rows, columns = target.shape
    return Resize(
        batch=n,
        rows=rows,
        columns=columns,
        channels=channels,
        taps=(taps[-2], taps[-1]),
        planes=planes,
        plane_taps=taps[0] if planes else 1,
        source=dense_strides(image),
        target=dense_strides(target),
        host=context.host,
        **options,
    )


def _repeats(taps: Taps, size: int) -> bool:
    """Return whether every element is repeated equally often."""
    if taps.weights is not None or taps.indices.shape[1] % size:
        return False
    return bool(np.array_equal(taps.indices[0], np.repeat(np.arange(size), taps.indices.shape[1] // size)))


def _repeated(context: Context, x: View, target: View) -> KernelStep:
    """Return the copy that repeats every pixel."""
    pairs = [(old, new // old) for old, new in zip(x.shape[2:], target.shape[2:], strict=True)]
    split = target.meta.reshape(*x.shape[:2], *(size for pair in pairs for size in pair))
    blocks = target.derive(split)
    if blocks is None:
        raise NotLoweredError("the result's rows cannot be split in place")
    spread = x.meta[(slice(None), slice(None), *((slice(None), None) * len(pairs)))]
    repeated = x.derive(spread.broadcast_to(blocks.shape))
    if repeated is None:
        raise NotLoweredError("the operand cannot be repeated in place")
    return context.copy(repeated, blocks)


def _equal_counts(taps: Taps) -> Taps:
    """Return equally many taps for every element: unused taps repeat the last one, which shares its weight."""
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
