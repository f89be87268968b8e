"""Translators of Fourier transforms, whose last axis holds real and imaginary parts, and of mel weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError, UnsupportedOperatorError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.onnx.translators.shape import in_dtype
from engine.tensor import TensorSpec


@translates("DFT", since=17)
def transform(node: Node) -> Value:
    """Translate to a transform of complex numbers, or of real ones, along one axis."""
    x, length, axis = node.input(0), node.optional(1), node.optional(2)
    if axis is None and length is not None and not node.names_results and _is_axis(node, x.tensor, length):
        length, axis = None, length
    is_inverse, is_half = bool(node.number("inverse", 0)), bool(node.number("onesided", 0))
    z = _complex(node, x)
    is_real = z.dtype is not None and z.dtype.kind == "f"
    if is_half and not is_inverse and not is_real:
        raise UnsupportedOperatorError("half of the transform of complex numbers")
    kind = f"torch.fft.{'i' if is_inverse else ''}{'r' if is_half else ''}fft"
    operands, labels = [z], ["input"]
    params: dict[str, Any] = {}
    if length is not None:
        operands.append(node.make("Tensor.reshape", length, shape=()) if length.rank else length)
        labels.append("n")
    place = None if axis is None else axis.constant
    if axis is None or place is not None:
        given = node.number("axis", 1 if node.version < 20 else -2) if place is None else int(place.reshape(()))
        if x.rank is not None and given in (-1, x.rank - 1):
            raise ShapeError("the last axis holds the parts of numbers", found=given, expected=f"0 to {x.rank - 2}")
        params["dim"] = given if given >= 0 else given + 1
    else:
        operands.append(node.expression(f"sub(@0,floor_divide(@0,{1 << 31}))", axis))  # 1 more if it is negative
        labels.append("dim")
    y = node.make(kind, *operands, labels=labels, **params)
    if is_inverse and is_half:
        return in_dtype_of(node, node.make("torch.unsqueeze", y, dim=-1), x)
    return in_dtype_of(node, node.make("torch.view_as_real", y), x)


def _is_axis(node: Node, spec: TensorSpec | None, number: Value) -> bool:
    """Return whether a lone number of a pair is the axis: pnnx's converter drops an omitted length."""
    note = node.declared[0] if node.declared else None
    if spec is None or note is None or note.rank != spec.rank:
        return False
    if number.constant is None:  # a length of the run would hardly keep the size
        return note.shape[:-1] == spec.shape[:-1]
    value = int(number.constant.reshape(()))
    is_half = node.number("onesided", 0) and not node.number("inverse", 0)
    as_length = (*spec.shape[:-2], value // 2 + 1 if is_half else value)
    return value < 0 or note.shape[:-1] != as_length


def _complex(node: Node, x: Value) -> Value:
    """Convert a last axis of real, or real and imaginary, parts to numbers."""
    parts = None if x.tensor is None or x.tensor.rank < 2 else x.tensor.shape[-1]
    if parts is None:
        raise UnsupportedOperatorError("whether numbers have imaginary parts is not known before a run")
    if parts not in (1, 2):
        raise ShapeError("input does not fit", found=str(x.tensor), expected="a last axis of 1 or 2")
    wide = widened(node, x)
    return node.make("torch.view_as_complex", wide) if parts == 2 else node.make("Tensor.select", wide, dim=-1, index=0)


@translates("STFT", since=17)
def frames(node: Node) -> Value:
    """Translate to torch.stft."""
    x, step, window, length = node.input(0), node.input(1), node.optional(2), node.optional(3)
    if window is not None and not node.names_results and (window.dtype is None or window.dtype.kind != "f"):
        window, length = None, window
    if window is not None:
        window, length = widened(node, window), node.expression("size(@0,0)", window)
    if length is None:
        raise ShapeError("neither window nor frame_length is given")
    z, is_half = _complex(node, x), bool(node.number("onesided", 1))
    if z.dtype is not None and z.dtype.kind == "c" and not is_half:  # torch.stft of complex numbers has no kernel
        y = node.make("aten::unfold", z, length, step, labels=("input", "size", "step"), dim=1)
        y = y if window is None else node.make("torch.mul", y, window)
        y = node.make("torch.fft.fft", y, dim=-1)
    else:
        given = {"input": z, "n_fft": length, "hop_length": step}
        given |= {} if window is None else {"window": window}
        params: dict[str, Any] = {"center": False, "normalized": False, "onesided": is_half, "return_complex": True}
        y = node.make("torch.stft", *given.values(), labels=tuple(given), **params)
        y = node.make("torch.permute", y, dims=(0, 2, 1))
    return in_dtype_of(node, node.make("torch.view_as_real", y), x)


@translates("MelWeightMatrix", since=17)
def mel_weights(node: Node) -> Value:
    """Compute triangles of equal width on the mel scale, each a column over the bins of a spectrum."""
    numbers = [node.make("Tensor.to", node.input(k), dtype="torch.double") for k in range(5)]
    bins, length, rate = numbers[:3]
    low, high = (node.expression("mul(log10(add(div(@0,700.0),1.0)),2595.0)", edge) for edge in numbers[3:])
    count = node.make("torch.arange", node.expression("add(@0,2)", bins), labels=("end",), dtype="torch.double")
    mel = node.expression("add(@0,mul(@1,div(sub(@2,@0),add(@3,2.0))))", low, count, high, bins)
    hertz = node.expression("mul(sub(pow(10.0,div(@0,2595.0)),1.0),700.0)", mel)
    places = node.expression("minimum(maximum(floor(div(mul(add(@0,1.0),@1),@2)),0.0),@0)", length, hertz, rate)
    bounds = ((0, -2), (1, -1), (2, 2**31 - 1))
    start, centre, end = (node.make("Tensor.slice", places, dim=0, start=a, end=b) for a, b in bounds)
    rows = node.expression("add(floor_divide(@0,2.0),1.0)", length)
    row = node.make("torch.unsqueeze", node.make("torch.arange", rows, labels=("end",), dtype="torch.double"), dim=1)
    width = node.expression("sub(@0,@1)", centre, start)
    rising = node.expression("div(sub(@0,@1),maximum(@2,1.0))", row, start, width)
    is_edge = node.make("torch.eq", width, other=0.0)
    at_centre = node.make("Tensor.to", node.make("torch.eq", row, centre), dtype="torch.double")
    rising = node.make("torch.where", is_edge, at_centre, rising)
    falling = node.expression("div(sub(@0,@1),maximum(sub(@0,@2),1.0))", end, row, centre)
    zero = node.constant(np.zeros((), np.float64))
    is_before = node.make("torch.logical_and", node.make("torch.ge", row, start), node.make("torch.le", row, centre))
    is_after = node.make("torch.logical_and", node.make("torch.ge", row, centre), node.make("torch.lt", row, end))
    weights = node.make("torch.where", is_before, rising, zero)
    weights = node.make("torch.where", is_after, falling, weights)
    return in_dtype(node, weights, "output_datatype", 1)
