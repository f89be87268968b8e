"""Element-wise mathematics that expressions do not have."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import Elementwise
from engine.layers.operands.precision import check_ordered, working_dtype
from engine.promotion import Category, broadcast_shapes, cast, dtype_category, result_type
from engine.tensor import Array, DType, Number, TensorSpec


@register("aten::float_power")
class FloatPower(Layer):
    """x ** y in float64, complex128 for complex numbers."""

    def infer(self, input: TensorSpec | Number, exponent: TensorSpec | Number) -> TensorSpec:
        shapes = [each.shape for each in (input, exponent) if isinstance(each, TensorSpec)]
        return TensorSpec(broadcast_shapes(*shapes), _double(input, exponent))

    def forward(self, input: Array | Number, exponent: Array | Number) -> Array:
        dtype = _double(input, exponent)
        with np.errstate(all="ignore"):
            return np.asarray(np.power(cast(input, dtype), cast(exponent, dtype)))


def _double(*operands: object) -> DType:
    is_complex = dtype_category(result_type(*operands)) is Category.COMPLEX
    return np.dtype(np.complex128 if is_complex else np.float64)


@register("torch.logit")
class Logit(Composite):
    """log(x / (1 - x)), with x first clipped to eps to 1 - eps if eps is given."""

    eps: float | None = None

    def compose(self, call: CallLayer, input: Array) -> Any:
        check_ordered(input.dtype)
        clipped = "@0" if self.eps is None else f"min(max(@0,{self.eps}),{1 - self.eps})"
        return formula(call, f"log(div({clipped},sub(1,{clipped})))", input)


@register("torch.nan_to_num")
class NanToNum(Elementwise):
    """x with NaN and the infinities replaced: by 0 and the largest and smallest finite numbers unless given."""

    nan: float | None = None
    posinf: float | None = None
    neginf: float | None = None

    def forward(self, input: Array) -> Array:
        if dtype_category(input.dtype) is not Category.FLOATING:
            return input
        largest = float(np.finfo(input.dtype).max) if input.dtype.kind == "f" else _LARGEST_BFLOAT16
        replacements = (
            (np.isnan(input), 0.0 if self.nan is None else self.nan),
            (np.isposinf(cast(input, np.dtype(np.float64))), largest if self.posinf is None else self.posinf),
            (np.isneginf(cast(input, np.dtype(np.float64))), -largest if self.neginf is None else self.neginf),
        )
        result = input.copy()
        for places, value in replacements:
            result[places] = cast(value, input.dtype)
        return result


_LARGEST_BFLOAT16: Final = 3.3895313892515355e38


@register("torch.frexp")
class FrExp(Layer):
    """The m in 0.5 to 1 and the integer e with x = m * 2 ** e."""

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        check_ordered(input.dtype)
        return input, TensorSpec(input.shape, np.dtype(np.int32))

    def forward(self, input: Array) -> tuple[Array, Array]:
        mantissa, exponent = np.frexp(cast(input, working_dtype(input.dtype)))
        return cast(np.asarray(mantissa), input.dtype), np.asarray(exponent, np.int32)
