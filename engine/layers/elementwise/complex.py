"""Complex numbers and their parts. A real tensor is its own real part and conjugate."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ShapeError
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import sizes
from engine.layers.shape.shape import Rearrangement
from engine.promotion import broadcast_shapes, real_dtype
from engine.tensor import Array, DType, TensorSpec, dtype_name, format_shape

_COMPLEX: Final[dict[DType, DType]] = {
    np.dtype(np.float32): np.dtype(np.complex64),
    np.dtype(np.float64): np.dtype(np.complex128),
}


def complex_dtype(dtype: DType) -> DType:
    """Return the complex dtype with parts of this one; a complex dtype itself.

    Raises:
        ShapeError: where numpy has none, as for float16.
    """
    if real_dtype(dtype) not in _COMPLEX:
        raise ShapeError(
            "there is no complex dtype with such parts", found=dtype_name(dtype), expected="float32 or float64"
        )
    return _COMPLEX[real_dtype(dtype)]


@register("torch.complex")
class Complex(Layer):
    """real + i imag."""

    def infer(self, real: TensorSpec, imag: TensorSpec) -> TensorSpec:
        if real.dtype != imag.dtype:
            raise ShapeError("both parts must have one dtype", found=f"{real.dtype} and {imag.dtype}")
        return TensorSpec(broadcast_shapes(real.shape, imag.shape), complex_dtype(real.dtype))

    def forward(self, real: Array, imag: Array) -> Array:
        spec = self.infer(TensorSpec(real.shape, real.dtype), TensorSpec(imag.shape, imag.dtype))
        result = np.empty(sizes(spec.shape), spec.dtype)
        result.real, result.imag = real, imag
        return result


@register("torch.polar")
class Polar(Composite):
    """abs * (cos(angle) + i sin(angle))."""

    def compose(self, call: CallLayer, abs: Array, angle: Array) -> Any:
        return call(Complex(), *(formula(call, f"mul(@0,{name}(@1))", abs, angle) for name in ("cos", "sin")))


@register("torch.real", presets={"is_imaginary": False}, formula="the real part")
@register("torch.imag", presets={"is_imaginary": True}, formula="the imaginary part, of complex tensors only")
class Part(Layer):
    """The real, or the imaginary, part."""

    is_imaginary: bool

    def infer(self, input: TensorSpec) -> TensorSpec:
        if self.is_imaginary:
            _check_complex(input.dtype)
        return TensorSpec(input.shape, real_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        return input.imag if self.is_imaginary else input.real


def _check_complex(dtype: DType) -> None:
    if dtype.kind != "c":
        raise ShapeError("a complex tensor is needed", found=dtype_name(dtype))


@register("torch.view_as_real")
class ViewAsReal(Rearrangement):
    """The real and the imaginary parts along a new last axis."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        _check_complex(input.dtype)
        return TensorSpec((*input.shape, 2), real_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        return np.ascontiguousarray(input).reshape(*input.shape, 1).view(input.real.dtype)


@register("torch.view_as_complex")
class ViewAsComplex(Rearrangement):
    """The pairs along the last axis as complex numbers."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        if not input.shape or input.shape[-1] not in (2, None):
            raise ShapeError("the last dimension must hold pairs", found=format_shape(input.shape), expected="2")
        return TensorSpec(input.shape[:-1], complex_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        dtype = self.infer(TensorSpec(input.shape, input.dtype)).dtype
        return np.ascontiguousarray(input).view(dtype)[..., 0]


@register("torch.conj")
class Conjugate(Layer):
    """real - i imag."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return input

    def forward(self, input: Array) -> Array:
        return np.asarray(input.conj()) if input.dtype.kind == "c" else input


@register("aten::resolve_conj")
class Resolved(Rearrangement):
    """The input: conjugation is never lazy here."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return input

    def forward(self, input: Array) -> Array:
        return input
