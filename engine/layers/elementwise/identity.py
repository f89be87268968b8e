"""Operators without effect on the value: dropout at inference, copies of immutable values, layout hints."""

from __future__ import annotations

from engine.layers.definition.layer import Layer
from engine.layers.definition.parameter import check_rate
from engine.layers.definition.registry import register
from engine.tensor import Array, TensorSpec

_MODULES = ("nn.Dropout", "nn.Dropout1d", "nn.Dropout2d", "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout")
_FUNCTIONS = (
    "F.dropout", "F.dropout1d", "F.dropout2d", "F.dropout3d", "F.alpha_dropout", "F.feature_alpha_dropout",
)  # fmt: skip


class _Unchanged(Layer):
    """Base of layers that return their operand: values are never changed in place, so no copy is needed."""

    does_arithmetic = False
    takes_sizes = True

    def infer(self, input: TensorSpec, *hints: object) -> TensorSpec:
        return input


@register(
    "aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout",
    positional=("input", "p", "training"),
)  # fmt: skip
@register(*_MODULES, *_FUNCTIONS, ignored=("inplace",))
class Dropout(_Unchanged):
    """The input: dropout does nothing at inference."""

    p: float = 0.5
    training: bool = False

    def __post_init__(self) -> None:
        check_rate(self.p)

    def forward(self, input: Array) -> Array:
        return input


@register("nn.Identity", "torch.clone", "Tensor.clone")
class Identity(_Unchanged):
    """The input; a copy is not needed."""

    memory_format: str | None = None

    def forward(self, input: Array) -> Array:
        return input


@register("aten::contiguous", "aten::clone", "aten::detach", "aten::alias", "aten::alias_copy", "aten::detach_copy")
class RawIdentity(_Unchanged):
    """The input; a memory format has no effect."""

    def forward(self, input: Array, first: object = None, second: object = None) -> Array:
        return input
