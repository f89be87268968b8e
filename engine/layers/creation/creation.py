"""Tensors made from a size and a value."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.errors import ParameterError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import PLACEMENT, overload
from engine.layers.definition.registry import register
from engine.layers.operands.axes import sizes
from engine.layers.operands.fitting import check_single
from engine.promotion import cast, result_type
from engine.tensor import Array, Dim, DType, Number, TensorSpec

FLOAT32: Final[DType] = np.dtype(np.float32)


def announced_dtype(annotations: Annotations) -> DType | None:
    """Return the annotated dtype of an operator's only result."""
    noted = annotations.outputs[0] if len(annotations.outputs) == 1 else None
    return None if noted is None else noted.dtype


class Creation(Layer):
    """Base of layers that make a tensor from its size."""

    does_arithmetic = False

    size: tuple[Dim, ...]
    dtype: DType | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if any(dim is not None and dim < 0 for dim in self.size):
            raise ParameterError("size must not be negative", found=list(self.size))

    @property
    def wanted(self) -> DType | None:
        """The requested dtype; for an ONNX file the converter writes none, and the annotation tells it."""
        return self.dtype or announced_dtype(self.annotations)

    def infer(self) -> TensorSpec:
        return TensorSpec(self.size, self.wanted or FLOAT32)


@register("torch.full", ignored=PLACEMENT)
class Full(Creation):
    """All fill_value, 0 for empty; without dtype in that of the value: int64, float32 or bool."""

    def infer(self, fill_value: TensorSpec | Number = 0) -> TensorSpec:
        check_single(fill_value)
        return TensorSpec(self.size, self.wanted or result_type(fill_value))

    def forward(self, fill_value: Array | Number = 0) -> Array:
        return np.full(sizes(self.size), cast(fill_value, self.wanted or result_type(fill_value)))


class LikeInput(Layer):
    """Base of layers that make a tensor of the input's shape."""

    does_arithmetic = False

    dtype: DType | None = None

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        return TensorSpec(input.shape, self.dtype or input.dtype)


@register("torch.full_like", ignored=PLACEMENT)
class FullLike(LikeInput):
    """All fill_value, in the shape of input and, without dtype, in its dtype."""

    def forward(self, input: Array, fill_value: Array | Number) -> Array:
        return np.full(input.shape, cast(fill_value, self.dtype or input.dtype))


@register("Tensor.new_full", ignored=PLACEMENT)
class NewFull(Layer):
    """All fill_value, in another size and in the dtype of input."""

    does_arithmetic = False

    size: tuple[Dim, ...]
    dtype: DType | None = None

    def infer(self, input: TensorSpec, fill_value: TensorSpec | Number) -> TensorSpec:
        check_single(fill_value)
        return TensorSpec(self.size, self.dtype or input.dtype)

    def forward(self, input: Array, fill_value: Array | Number) -> Array:
        return np.full(sizes(self.size), cast(fill_value, self.dtype or input.dtype))


overload("aten::new_full", (NewFull, "input size fill_value dtype layout device pin_memory"))


class ScalarTensor(Layer):
    """A number as a 0-dim tensor, float32 unless a dtype is given."""

    takes_sizes = True

    dtype: DType | None = None

    def infer(self, s: Number) -> TensorSpec:
        return TensorSpec((), self.dtype or FLOAT32)

    def forward(self, s: Number) -> Array:
        return cast(s, self.dtype or FLOAT32)


overload("aten::scalar_tensor", (ScalarTensor, "s dtype layout device pin_memory"))
