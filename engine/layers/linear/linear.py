"""Linear maps of the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.arithmetic import Add
from engine.layers.linear.matmul import Matmul, matmul
from engine.layers.operands.axes import may_equal
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import working_dtype
from engine.layers.shape.shape import Flatten, Squeeze, Unflatten, Unsqueeze
from engine.promotion import broadcast_shapes, cast, promote_types
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape


@register(
    "F.linear",
    ignored=("in_features", "out_features"),
    flags={"bias": ("bias",)},
    shapes={"weight": ("out_features", "in_features"), "bias": ("out_features",)},
)
class Linear(Layer):
    """x @ weight.T + bias.

    Shapes:
        input (..., I), weight (O, I) or (I,), bias (O,) or ()  ->  (..., O) or (...)
        A bias of more axes (from ONNX's Gemm) is broadcast to the result.
    Dtypes:
        any number; operands of several dtypes (half-precision weights) are converted to their common one.
    """

    def infer(self, input: TensorSpec, weight: TensorSpec, bias: TensorSpec | None = None) -> TensorSpec:
        shape = self._shape(input.shape, weight.shape, None if bias is None else bias.shape)
        return TensorSpec(shape, promote_types(input.dtype, weight.dtype))

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Array:
        dtype = promote_types(input.dtype, weight.dtype)
        working = working_dtype(dtype)
        shift = None if bias is None else cast(bias, working)
        with np.errstate(all="ignore"):
            return cast(apply_linear(cast(input, working), cast(weight, working), shift), dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        weight = operands[1] if len(operands) > 1 else None
        inner = weight.shape[-1] if isinstance(weight, TensorSpec) else None
        return 2 * (output.size or 0) * (inner or 0)

    def _shape(self, input: Shape, weight: Shape, bias: Shape | None) -> tuple[Dim, ...]:
        if not input or len(weight) not in (1, 2) or not may_equal(input[-1], weight[-1]):
            found = f"{format_shape(input)} by {format_shape(weight)}"
            raise ShapeError("input does not fit the weight", found=found, expected="[..., I] by [O, I]")
        result = (*input[:-1], *weight[:-1])
        if bias is not None and (len(bias) > 1 or bias == (1,)):
            _check_broadcast(bias, result)
        elif bias != ():  # PyTorch broadcasts it
            _check_bias(bias, weight[:-1])
        return result


def _check_bias(bias: Shape | None, outputs: Shape) -> None:
    if bias is not None:
        check_shape(bias, outputs, "bias does not fit the weight")


def _check_broadcast(bias: Shape, result: Shape) -> None:
    fits = len(bias) <= len(result) and all(
        size == 1 or may_equal(size, target) for size, target in zip(bias[::-1], result[::-1], strict=False)
    )
    if not fits:
        expected = f"one that broadcasts to {format_shape(result)}"
        raise ShapeError("bias does not fit the result", found=format_shape(bias), expected=expected)


def apply_linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Compute x @ weight.T + bias."""
    return matmul(x, weight.T) if bias is None else matmul(x, weight.T) + bias


@register("aten::bilinear")
class Bilinear(Composite):
    """input1 @ weight[o] @ input2 + bias[o] for every output o.

    Shapes:
        input1 (..., I), input2 (..., J), weight (O, I, J), bias (O,)  ->  (..., O)
    """

    def infer(
        self, input1: TensorSpec, input2: TensorSpec, weight: TensorSpec, bias: TensorSpec | None = None
    ) -> TensorSpec:
        dtype = promote_types(promote_types(input1.dtype, input2.dtype), weight.dtype)
        shape = self._shape(input1.shape, input2.shape, weight.shape, None if bias is None else bias.shape)
        return TensorSpec(shape, dtype)

    def compose(self, call: CallLayer, input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Any:
        self._shape(input1.shape, input2.shape, weight.shape, None if bias is None else bias.shape)
        outputs, i, _ = weight.shape
        half = call(Linear(), input2, call(Flatten(end_dim=1), weight))
        halves = call(Unflatten(dim=-1, sizes=(outputs, i)), half)
        result = call(Matmul(), halves, call(Unsqueeze(dim=(-1,)), input1))
        result = call(Squeeze(dim=(-1,)), result)
        return result if bias is None else call(Add(), result, bias)

    def _shape(self, input1: Shape, input2: Shape, weight: Shape, bias: Shape | None) -> tuple[Dim, ...]:
        fits = len(weight) == 3 and all(
            input and may_equal(input[-1], size) for input, size in zip((input1, input2), weight[1:], strict=True)
        )
        if not fits:
            found = f"{format_shape(input1)} and {format_shape(input2)} by {format_shape(weight)}"
            raise ShapeError("inputs do not fit the weight", found=found, expected="[..., I] and [..., J] by [O, I, J]")
        _check_bias(bias, weight[:1])
        return (*broadcast_shapes(input1[:-1], input2[:-1]), weight[0])
