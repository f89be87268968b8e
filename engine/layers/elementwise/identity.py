"""Operators without effect on the value: dropout at inference, copies of immutable values, layout hints."""

from __future__ import annotations

from engine.layers.definition.layer import Layer
from engine.layers.definition.parameter import check_rate
from engine.layers.definition.registry import register
from engine.tensor import Array, TensorSpec


class _Unchanged(Layer):
    """Base of layers that return their operand: values are never changed in place, so no copy is needed."""

    does_arithmetic = False
    takes_sizes = True

    def infer(self, input: TensorSpec, *hints: object) -> TensorSpec:
        return input


@register("F.dropout", ignored=("inplace",))
class Dropout(_Unchanged):
    """The input: dropout does nothing at inference."""

    p: float = 0.5
    training: bool = False

    def __post_init__(self) -> None:
        check_rate(self.p)

    def forward(self, input: Array) -> Array:
        return input


@register("torch.clone")
class Identity(_Unchanged):
    """The input; a copy is not needed."""

    memory_format: str | None = None

    def forward(self, input: Array) -> Array:
        return input


@register("aten::contiguous")
class RawIdentity(_Unchanged):
    """The input; a memory format has no effect."""

    def forward(self, input: Array, first: object = None, second: object = None) -> Array:
        return input
