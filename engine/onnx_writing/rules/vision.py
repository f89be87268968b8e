"""Resampling, grids and regions of interest."""

from __future__ import annotations

from typing import Any, Final

from engine.layers.vision import grid, interpolate, nms, roi
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, holds_value
from engine.onnx_writing.writer import FLOAT32, FLOAT64, INT64, Writer

_LINEAR: Final = ("linear", "bilinear", "trilinear")


@writes(interpolate.Interpolate, interpolate.NearestExact, dynamic=("size",))
def interpolated(to: Writer, layer: interpolate.Interpolate, input: Value, antialias: int | None = None) -> Value:
    if input.dtype.kind != "f" and not layer.mode.startswith("nearest"):
        to.refuse("PyTorch rounds the weights of bytes when it resamples them", "cast the input to float32 before")
    scales, sizes = _target(to, layer, input)
    mode = _mode(layer, is_antialiased=bool(antialias))
    return to.op("Resize", input, None, scales, sizes, antialias=antialias, exclude_outside=antialias, **mode)


@writes(interpolate.Antialiased, interpolate.AntialiasedBicubic, dynamic=("size",))
def antialiased(to: Writer, layer: interpolate.Antialiased, input: Value) -> Value:
    if layer.align_corners:
        to.refuse("ONNX has no kernel as wide as the distance of elements whose corners are aligned")
    return interpolated(to, layer, input, 1)


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
    lead = input.all_sizes()[:2]
    if holds_value(layer.size):
        size: Any = layer.size
        count = to.known(size.shape, "the number of resized axes")[0] if isinstance(size, Value) else len(size)
        items = [size] if isinstance(size, Value) else list(size) * (rank if count == 1 else 1)
        return None, to.vector(items if count == rank + 2 else [*lead, *items])
    if None not in input.shape[2:]:
        wanted = to.inferred(layer, input).shape[2:]
        shape = [size or 0 for size in input.shape]
        rows = list(zip(layer.given_scales(shape, input.dtype, wanted), wanted, shape[2:], strict=True))
        if all(factor is None or factor * size == want for factor, want, size in rows):
            return None, to.vector([*lead, *wanted])
        ratios = [(want or 0) / size if factor is None else factor for factor, want, size in rows]
        return to.constant([1, 1, *ratios], FLOAT32), None
    if layer.size:
        return None, to.vector([*lead, *to.known(to.inferred(layer, input).shape[2:], "the new size")])
    factors = layer.factors(rank)
    if layer.recompute_scale_factor:
        return None, to.vector([*lead, *(_scaled(to, input, axis, each) for axis, each in enumerate(factors, 2))])
    return to.constant([1, 1, *factors], FLOAT32), None


def _scaled(to: Writer, input: Value, axis: int, factor: float) -> Value:
    """Return the size of an axis times a factor, rounded down."""
    size = to.cast(to.tensor(to.size(input, axis)), FLOAT64)
    return to.cast(to.op("Floor", size * factor), INT64)


@writes(grid.GridSample)
def grid_sample(to: Writer, layer: grid.GridSample, input: Value, grid: Value) -> Value:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(layer.mode, layer.mode)
    aligns = int(bool(layer.align_corners))
    return to.op("GridSample", input, grid, mode=mode, padding_mode=layer.padding_mode, align_corners=aligns)


@writes(grid.AffineGrid, dynamic=("size",))
def affine_grid(to: Writer, layer: grid.AffineGrid, theta: Value) -> Value:
    size: Operand = layer.size
    return to.op("AffineGrid", theta, to.vector(size), align_corners=int(bool(layer.align_corners)))


@writes(roi.RoIAlign)
def roi_align(to: Writer, layer: roi.RoIAlign, input: Value, rois: Value) -> Value:
    height, width = layer.sizes
    batch = to.cast(to.take(rois, 0, 1, shape=rois.shape[:1]), INT64)
    return to.op(
        "RoiAlign", input, to.slice(rois, 1, 1, 5), batch,
        output_height=height, output_width=width, spatial_scale=layer.spatial_scale, mode=layer.mode,
        sampling_ratio=max(layer.sampling_ratio, 0),
        coordinate_transformation_mode="half_pixel" if layer.aligned else "output_half_pixel",
    )  # fmt: skip


@writes(roi.RoIPool)
def roi_pool(to: Writer, layer: roi.RoIPool, input: Value, rois: Value) -> Value:
    return to.op("MaxRoiPool", input, rois, pooled_shape=list(layer.sizes), spatial_scale=layer.spatial_scale)


@writes(nms.NonMaximumSuppression)
def non_maximum_suppression(to: Writer, layer: nms.NonMaximumSuppression, dets: Value, scores: Value) -> Value:
    boxes, ranked = to.cast(to.unsqueeze(dets, 0), FLOAT32), to.cast(to.unsqueeze(scores, 0, 1), FLOAT32)
    most, threshold = to.op("Reshape", to.op("Size", scores), [1]), to.constant([layer.iou_threshold], FLOAT32)
    chosen = to.op("NonMaxSuppression", boxes, ranked, most, threshold, dtype=INT64)
    return to.take(chosen, 2, 1, shape=(None,))
