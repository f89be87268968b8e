"""Resampling, grids and regions of interest."""

from __future__ import annotations

from typing import Any, Final

from engine.layers.vision import grid, interpolate, nms, roi
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import FLOAT32, FLOAT64, INT64, Writer

_LINEAR: Final = ("linear", "bilinear", "trilinear")


@writes(interpolate.Interpolate, interpolate.NearestExact, dynamic=("size",))
def interpolated(to: Writer, layer: interpolate.Interpolate, input: Value) -> Value:
    return _resized(to, layer, input, None)


@writes(interpolate.Antialiased, interpolate.AntialiasedBicubic, dynamic=("size",))
def antialiased(to: Writer, layer: interpolate.Antialiased, input: Value) -> Value:
    if layer.align_corners:
        to.refuse("ONNX has no kernel as wide as the distance of elements whose corners are aligned")
    return _resized(to, layer, input, 1)


def _resized(to: Writer, layer: interpolate.Interpolate, input: Value, antialias: int | None) -> Value:
    if input.dtype.kind != "f" and not layer.mode.startswith("nearest"):
        to.refuse("PyTorch rounds the weights of bytes when it resamples them", "cast the input to float32 before")
    attributes: dict[str, Any] = {"antialias": antialias, **_mode(layer, is_antialiased=bool(antialias))}
    scales, sizes = _target(to, layer, input)
    return to.op("Resize", input, None, scales, sizes, exclude_outside=antialias, **attributes)


def _mode(layer: interpolate.Interpolate, *, is_antialiased: bool) -> dict[str, Any]:
    if layer.mode == "nearest":
        return {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if layer.mode == "nearest-exact":
        return {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}
    place = "align_corners" if layer.align_corners else "half_pixel"
    if layer.mode in _LINEAR:
        return {"mode": "linear", "coordinate_transformation_mode": place}
    cubic = -0.5 if is_antialiased else -0.75
    return {"mode": "cubic", "coordinate_transformation_mode": place, "cubic_coeff_a": cubic}


def _target(to: Writer, layer: interpolate.Interpolate, input: Value) -> tuple[Value | None, Value | None]:
    """Return the scales or the sizes of all axes; the other is None."""
    rank = input.rank - 2
    lead = [to.size(input, 0), to.size(input, 1)]
    if holds_value(layer.size):
        if isinstance(layer.size, Value):
            (count,) = to.known(layer.size.shape, "the number of resized axes")
            whole = to.vector(layer.size)
            return None, whole if count == rank + 2 else to.op("Concat", to.vector(lead), whole, axis=0)
        sizes = list(layer.size) * rank if len(layer.size) == 1 else list(layer.size)
        return None, to.vector(sizes if len(sizes) == rank + 2 else [*lead, *sizes])
    if None not in input.shape[2:]:
        wanted = layer._output_sizes(input.shape)
        shape = [size or 0 for size in input.shape]
        factors = layer.given_scales(shape, input.dtype, wanted)
        given = zip(factors, wanted, shape[2:], strict=True)
        if all(factor is None or factor * size == want for factor, want, size in given):
            return None, to.vector([*lead, *wanted])
        rows = zip(factors, wanted, shape[2:], strict=True)
        ratios = [(want or 0) / size if factor is None else factor for factor, want, size in rows]
        return to.constant([1, 1, *ratios], FLOAT32), None
    if layer.size:
        wanted = layer._output_sizes(input.shape)
        return None, to.vector([*lead, *to.known(wanted, "the new size")])
    if layer.recompute_scale_factor:
        return None, to.vector(
            [*lead, *(_scaled(to, input, axis, f) for axis, f in enumerate(layer._factors(rank), 2))]
        )
    return to.constant([1, 1, *layer._factors(rank)], FLOAT32), None


def _scaled(to: Writer, input: Value, axis: int, factor: float) -> Value:
    """Return the size of an axis times a factor, rounded down."""
    size = to.cast(to.tensor(to.size(input, axis)), FLOAT64)
    return to.cast(to.op("Floor", to.op("Mul", size, to.constant(factor, FLOAT64))), INT64)


@writes(grid.GridSample)
def grid_sample(to: Writer, layer: grid.GridSample, input: Value, grid: Value) -> Value:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(layer.mode, layer.mode)
    return to.op(
        "GridSample", input, grid,
        mode=mode, padding_mode=layer.padding_mode, align_corners=int(bool(layer.align_corners)),
    )  # fmt: skip


@writes(grid.AffineGrid, dynamic=("size",))
def affine_grid(to: Writer, layer: grid.AffineGrid, theta: Value) -> Value:
    size: Operand = layer.size
    vector = to.vector(size if isinstance(size, Value) else list(size))
    return to.op("AffineGrid", theta, vector, align_corners=int(bool(layer.align_corners)))


@writes(roi.RoIAlign)
def roi_align(to: Writer, layer: roi.RoIAlign, input: Value, rois: Value) -> Value:
    height, width = layer.sizes
    batch = to.cast(_column(to, rois, 0), INT64)
    boxes = to.slice(rois, 1, 1, 5)
    return to.op(
        "RoiAlign", input, boxes, batch,
        output_height=height, output_width=width, spatial_scale=layer.spatial_scale, mode=layer.mode,
        sampling_ratio=max(layer.sampling_ratio, 0),
        coordinate_transformation_mode="half_pixel" if layer.aligned else "output_half_pixel",
    )  # fmt: skip


def _column(to: Writer, rois: Value, place: int) -> Value:
    return to.op("Gather", rois, to.constant(place, INT64), axis=1, shape=rois.shape[:1])


@writes(roi.RoIPool)
def roi_pool(to: Writer, layer: roi.RoIPool, input: Value, rois: Value) -> Value:
    return to.op("MaxRoiPool", input, rois, pooled_shape=list(layer.sizes), spatial_scale=layer.spatial_scale)


@writes(nms.NonMaximumSuppression)
def non_maximum_suppression(to: Writer, layer: nms.NonMaximumSuppression, dets: Value, scores: Value) -> Value:
    count = to.op("Size", scores, dtype=INT64, shape=())
    boxes = to.cast(to.unsqueeze(dets, 0), FLOAT32)
    ranked = to.cast(to.unsqueeze(scores, 0, 1), FLOAT32)
    most, threshold = to.op("Reshape", count, to.constant([1], INT64)), to.constant([layer.iou_threshold], FLOAT32)
    chosen = to.op("NonMaxSuppression", boxes, ranked, most, threshold, dtype=INT64)
    return to.op("Gather", chosen, to.constant(2, INT64), axis=1, shape=(None,))
