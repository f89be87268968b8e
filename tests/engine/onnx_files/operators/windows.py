"""Convolutions, pools, images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt, stored


def _paddings(version: int) -> list[dict[str, Any]]:
    return [{}, {"pads": [1, 1, 1, 1]}, {"pads": [0, 1, 1, 0]}, {"strides": [2, 2]}, {"auto_pad": "SAME_UPPER"},
            {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, {"auto_pad": "VALID"}]  # fmt: skip


@of("Conv")
def conv(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for given in (*_paddings(version), {"dilations": [2, 2]}, {"kernel_shape": [3, 3]}):
            yield ex(r.f(1, 2, 7, 7), make(r.f(4, 2, 3, 3)), opt(make(r.f(4))), **given)
        yield ex(r.f(1, 4, 7), make(r.f(4, 2, 3)), opt(make(r.f(4))), group=2)


@of("ConvTranspose")
def conv_transpose(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    some: list[dict[str, Any]] = [{}, {"pads": [1, 1, 1, 1]}, {"pads": [0, 1, 1, 0]}, {"strides": [2, 2]}]
    some += [{"strides": [2, 2], "output_padding": [1, 1]}, {"strides": [2, 2], "output_shape": [8, 8]}]
    some += [{"strides": [2, 2], "auto_pad": each} for each in ("SAME_UPPER", "SAME_LOWER", "VALID")]
    for make in (stored, np.asarray):
        for given in some:
            yield ex(r.f(1, 2, 4, 4), make(r.f(2, 3, 3, 3)), opt(make(r.f(3))), **given)
    yield ex(r.f(1, 4, 4, 4), stored(r.f(4, 3, 3, 3)), opt(stored(r.f(6))), group=2)


@of("DeformConv")
def deform_conv(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    operands = [r.f(1, 2, 4, 4), r.f(3, 2, 2, 2), r.f(1, 8, 3, 3), opt(r.f(3)), opt(r.f(1, 4, 3, 3))]
    yield ex(*operands, kernel_shape=[2, 2], pads=[0, 0, 0, 0])
    yield ex(operands[0], stored(r.f(3, 2, 2, 2)), r.f(1, 8, 5, 5), opt(stored(r.f(3))), opt(r.f(1, 4, 5, 5)),
             kernel_shape=[2, 2], pads=[1, 1, 1, 1])  # fmt: skip


@of("MaxPool")
def max_pool(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 2, 7, 7)
    results = {"outputs": 2, "maybe": 1} if version >= 8 else {}
    more: list[dict[str, Any]] = [{"storage_order": 1}] if version >= 8 else []
    more += [{"ceil_mode": 1, "strides": [2, 2]}, {"dilations": [2, 2]}] if version >= 10 else []
    more += [{"ceil_mode": 1, "strides": [3, 3], "pads": [1, 1, 1, 1]}] if version >= 10 else []
    for given in (*_paddings(version), *more):
        yield ex(x, kernel_shape=[2, 2], **results, **given)
    if version >= 12:
        yield ex(Draws().u8(1, 2, 5, 5), kernel_shape=[2, 2], **results)
        yield ex(Draws().i8(1, 2, 5, 5), kernel_shape=[2, 2])


@of("AveragePool")
def average_pool(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 2, 7, 7)
    more: list[dict[str, Any]] = []
    if version >= 7:
        more += [{"count_include_pad": each, "pads": [1, 1, 1, 1]} for each in (0, 1)]
        more += [{"count_include_pad": 1, "auto_pad": "SAME_UPPER", "strides": [2, 2]}]
    if version >= 10:
        more += [{"ceil_mode": 1, "strides": [2, 2]}, {"ceil_mode": 1, "strides": [3, 3], "pads": [1, 1, 1, 1]}]
        more += [{"ceil_mode": 1, "strides": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}]
    more += [{"dilations": [2, 2]}, {"dilations": [2, 2], "ceil_mode": 1, "strides": [2, 2]}] if version >= 19 else []
    for given in (*_paddings(version), *more):
        yield ex(x, kernel_shape=[2, 2], **given)
        yield ex(x, kernel_shape=[3, 3], **given)


@of("LpPool")
def lp_pool(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 2, 7, 7)
    p: list[Any] = [None, 1, 3] if version >= 2 else [None, 1.0]
    for given in _paddings(version):
        for each in p:
            yield ex(x, kernel_shape=[2, 2], p=each, **given)
    if version >= 18:
        yield ex(x, kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2])
        yield ex(x, kernel_shape=[2, 2], dilations=[2, 2])


@of("GlobalAveragePool", "GlobalMaxPool")
def global_pools(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 3, 4, 5))
    yield ex(Draws().f(2, 3, 4))


@of("GlobalLpPool")
def global_lp_pool(type: str, version: int) -> Iterator[Example]:
    for p in (None, 1, 3) if version >= 2 else (None, 1.0):
        yield ex(Draws().f(2, 3, 4, 5), p=p)


@of("MaxUnpool")
def max_unpool(type: str, version: int) -> Iterator[Example]:
    index = np.array([[[[5, 7], [13, 15]]]])
    yield ex(Draws().f(1, 1, 2, 2), index, kernel_shape=[2, 2], strides=[2, 2])
    yield ex(Draws().f(1, 1, 2, 2), index, opt(stored([1, 1, 5, 5])), kernel_shape=[2, 2], strides=[2, 2])


@of("MaxRoiPool")
def max_roi_pool(type: str, version: int) -> Iterator[Example]:
    rois = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 4, 4]], np.float32)
    for scale in (None, 0.5):
        yield ex(Draws().f(1, 2, 6, 6), rois, pooled_shape=[2, 2], spatial_scale=scale)


@of("RoiAlign")
def roi_align(type: str, version: int) -> Iterator[Example]:
    rois, batch = np.array([[0, 0, 3, 3], [0.5, 1, 4, 3.7]], np.float32), np.array([0, 0])
    x = Draws().f(1, 2, 6, 6)
    some: list[dict[str, Any]] = [{}, {"sampling_ratio": 2}, {"spatial_scale": 0.5}, {"mode": "avg"}]
    modes = ("half_pixel", "output_half_pixel") if version >= 16 else ()
    some += [{"coordinate_transformation_mode": each} for each in modes]
    for given in some:
        yield ex(x, rois, batch, output_height=2, output_width=3, **given)
        yield ex(x, stored(rois), stored(batch), **given)


@of("GridSample")
def grid_sample(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    modes = ["bilinear", "nearest", "bicubic"] if version < 20 else ["linear", "nearest", "cubic"]
    for mode in (None, *modes):
        for padding in (None, "border", "reflection"):
            for corners in (None, 1):
                yield ex(r.f(1, 2, 4, 4), r.f(1, 3, 3, 2), mode=mode, padding_mode=padding, align_corners=corners)


@of("AffineGrid")
def affine_grid(type: str, version: int) -> Iterator[Example]:
    for corners in (None, 1):
        yield ex(Draws().f(2, 2, 3), stored([2, 3, 4, 5]), align_corners=corners)
        yield ex(Draws().f(2, 3, 4), np.array([2, 3, 2, 3, 4]), align_corners=corners)


@of("Col2Im")
def col2im(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(1, 8, 9), stored([4, 4]), stored([2, 2]))
    yield ex(Draws().f(1, 8, 25), stored([4, 4]), stored([2, 2]), pads=[1, 1, 1, 1])
    yield ex(Draws().f(1, 8, 4), stored([4, 4]), stored([2, 2]), strides=[2, 2])


@of("NonMaxSuppression")
def suppression(type: str, version: int) -> Iterator[Example]:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.75]]], np.float32)
    for centre in (None, 0, 1):
        yield ex(boxes, scores, opt(np.array([2])), opt(np.array([0.5], np.float32)), opt(np.array([0.1], np.float32)),
                 center_point_box=centre)  # fmt: skip
        yield ex(boxes, scores, opt(stored([2])), opt(stored(np.array([0.5], np.float32))),
                 opt(stored(np.array([0.72], np.float32))), center_point_box=centre)  # fmt: skip


@of("Upsample")
def upsample(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 2, 3, 4)
    if version < 7:
        for mode in (None, "nearest", "bilinear"):
            yield ex(x, height_scale=2.0, width_scale=1.5, mode=mode)
        return
    for mode in (None, "nearest", "linear"):
        for scales in ([1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 1.5, 2.0]):
            if version < 9:
                yield ex(x, scales=scales, mode=mode)
            else:
                yield ex(x, stored(np.array(scales, np.float32)), mode=mode)
                yield ex(x, np.array(scales, np.float32), mode=mode)


_PLACES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@of("Resize")
def resize(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 1, 4, 5)
    scales = [np.array(each, np.float32) for each in ([1, 1, 2, 2], [1, 1, 0.5, 0.6], [1, 1, 1.6, 0.8])]
    if version < 11:
        for each in scales:
            for mode in (None, "nearest", "linear"):
                yield ex(x, stored(each), mode=mode)
                yield ex(x, each, mode=mode)
        return
    x = Draws().f(1, 1, 6, 7)
    none = opt(stored(np.zeros(0, np.float32)))
    sizes = [[1, 1, 12, 14], [1, 1, 2, 3], [1, 1, 10, 5]]
    ways: list[dict[str, Any]] = [{}]
    ways += [{"coordinate_transformation_mode": each} for each in _PLACES]
    ways += [{"nearest_mode": each} for each in _ROUNDINGS]
    ways += [{"nearest_mode": each, "coordinate_transformation_mode": "asymmetric"} for each in _ROUNDINGS]
    ways += [{"mode": "linear", "coordinate_transformation_mode": each} for each in _PLACES]
    ways += [{"mode": "cubic"}, {"mode": "cubic", "cubic_coeff_a": -0.5}, {"mode": "cubic", "exclude_outside": 1}]
    if version >= 18:
        ways += [{"mode": mode, "antialias": 1} for mode in ("linear", "cubic")]
    if version >= 19:
        ways += [{"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}]
    for given in ways:
        for each, size in zip(scales, sizes, strict=True):
            yield ex(x, none, stored(each), **given)
            yield ex(x, none, opt(stored(np.zeros(0, np.float32))), stored(size), **given)
    for mode in (None, "linear"):
        yield ex(x, none, scales[0], mode=mode)
        yield ex(x, none, None if version >= 13 else stored(np.zeros(0, np.float32)), np.array(sizes[2]), mode=mode)
        region = np.array([0, 0, 0.2, 0.3, 1, 1, 0.8, 0.9], np.float32)
        for make in (stored, np.asarray):
            yield ex(x, make(region), stored(scales[2]), mode=mode or "nearest", extrapolation_value=5.0,
                     coordinate_transformation_mode="tf_crop_and_resize")  # fmt: skip
    if version >= 18:
        for policy in ("stretch", "not_larger", "not_smaller"):
            yield ex(x, none, None, stored([7, 4]), axes=[2, 3], keep_aspect_ratio_policy=policy, mode="linear")
        yield ex(x, none, stored(np.array([2.0], np.float32)), axes=[3], mode="linear")
