"""Operators of ONNX files that have no counterpart among the core operators: written as they were read."""

from __future__ import annotations

from typing import Any

from engine.layers.onnx.products import conv, matmul
from engine.layers.onnx.vision import regions, resize
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value
from engine.onnx_writing.writer import FLOAT32, INT32, INT64, Writer


@writes(regions.NonMaxSuppression)
def non_max_suppression(
    to: Writer,
    layer: regions.NonMaxSuppression,
    boxes: Value,
    scores: Operand,
    most: Operand = 0,
    overlap: Operand = 0.0,
    least: Operand = None,
) -> Value:
    limits = [to.reshape(to.tensor(each, dtype), (1,)) if each is not None else None
              for each, dtype in ((most, INT64), (overlap, FLOAT32), (least, FLOAT32))]  # fmt: skip
    ranked = scores if isinstance(scores, Value) else to.filled(to.vector([1, 1, 1]), scores, FLOAT32)
    operands = (to.cast(boxes, FLOAT32), to.cast(ranked, FLOAT32), *limits)
    return to.op("NonMaxSuppression", *operands, dtype=INT64, center_point_box=layer.center_point_box)


@writes(conv.ConvInteger)
def conv_integer(
    to: Writer,
    layer: conv.ConvInteger,
    input: Value,
    weight: Value,
    x_zero_point: Operand = 0,
    w_zero_point: Operand = 0,
    bias: Value | None = None,
) -> Value:
    names = ("dilations", "kernel_shape", "pads", "strides")
    attributes: dict[str, Any] = {name: list(getattr(layer, name)) or None for name in names}
    zeros = [_zero(to, zero, like) for zero, like in ((x_zero_point, input), (w_zero_point, weight))]
    sums = to.op("ConvInteger", input, weight, *zeros, dtype=INT32, auto_pad=layer.auto_pad, group=layer.group,
                 **attributes)  # fmt: skip
    sums = sums if bias is None else sums + to.reshape(to.cast(bias, INT32), (-1, *(1,) * (weight.rank - 2)))
    return to.cast(sums, FLOAT32) if layer.as_float else sums


@writes(matmul.MatMulInteger)
def matmul_integer(
    to: Writer, layer: matmul.MatMulInteger, a: Value, b: Value, a_zero_point: Operand = 0, b_zero_point: Operand = 0
) -> Value:
    sums = to.op("MatMulInteger", a, b, _zero(to, a_zero_point, a), _zero(to, b_zero_point, b), dtype=INT32)
    return to.cast(sums, FLOAT32) if layer.as_float else sums


def _zero(to: Writer, zero_point: Operand, like: Value) -> Value:
    return to.tensor(0 if zero_point is None else zero_point, like.dtype)


@writes(resize.Resize)
def resized(
    to: Writer, layer: resize.Resize, input: Value, roi: Operand = None, scales: Operand = None, sizes: Operand = None
) -> Value:
    names = (
        "coordinate_transformation_mode",
        "cubic_coeff_a",
        "extrapolation_value",
        "keep_aspect_ratio_policy",
        "mode",
    )
    attributes: dict[str, Any] = {name: getattr(layer, name) for name in names}
    if not layer.annotations.are_named:
        to.refuse("the file does not tell its scales from its sizes")
    if layer.nearest_mode not in resize.ROUNDINGS:
        to.refuse("files before operator set 11 round places up only where an axis shrinks")
    given = [None if each is None else to.tensor(each) for each in (roi, scales, sizes)]
    return to.op(
        "Resize", input, *given, axes=None if layer.axes is None else list(layer.axes), antialias=int(layer.antialias),
        exclude_outside=int(layer.exclude_outside), nearest_mode=layer.nearest_mode, **attributes,
    )  # fmt: skip
