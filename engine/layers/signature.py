"""The schema of one operator type: which operands, parameters and attributes it takes.

It is read off the layer class (fields are parameters, arguments of ``forward`` are operands) plus what the
type's registration says about its own spelling.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from engine.errors import ParameterError
from engine.layers.layer import Annotations, Layer
from engine.layers.parameter import is_tensor_kind, type_hints

LayerClass: TypeAlias = type[Layer]
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Signature:
    """How operators of one type are written.

    Args:
        type: the PNNX type name.
        layer: the class that computes it.
        presets: fields this type fixes (``nn.UpsamplingBilinear2d`` is an Upsample with align_corners).
        ignored: parameters that only describe (``nn.Conv2d`` repeats ``in_channels``).
        flags: boolean parameters that announce attributes: ``{"bias": ("bias",)}``.
        shapes: parameters that repeat the sizes of an attribute: ``{"weight": ("out_features", "in_features")}``;
            see engine/layers/attributes.py.
        positional: names of operands and parameters in the order operands come in where the file gives no
            ``$name``; by default the operands of forward, then the fields.
        renamed: the file's name of an operand or parameter -> ours.
    """

    type: str
    layer: LayerClass
    presets: Mapping[str, Any] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {*self.operands, *self.fields}
        wrong = {*self.presets, *self.positional, *self.renamed.values()} - known
        if wrong:
            raise ParameterError(
                "registration names what the layer does not have",
                where=self.type,
                found=", ".join(sorted(wrong)),
                expected=", ".join(sorted(known)),
            )

    @cached_property
    def operands(self) -> dict[str, Any]:
        """Named arguments of forward with their defaults, REQUIRED where there is none."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {name: arg.default for name, arg in self._arguments.items() if arg.kind in kinds}

    @cached_property
    def is_variadic(self) -> bool:
        """Whether forward takes any number of operands (``*tensors``)."""
        return any(arg.kind is inspect.Parameter.VAR_POSITIONAL for arg in self._arguments.values())

    @cached_property
    def takes_any_attribute(self) -> bool:
        """Whether forward takes attributes of any name (``**weights``)."""
        return any(arg.kind is inspect.Parameter.VAR_KEYWORD for arg in self._arguments.values())

    @cached_property
    def tensors(self) -> frozenset[str]:
        """Named arguments of forward that take nothing but tensors, or lists of tensors."""
        hints = self._forward_hints
        return frozenset(name for name in self.operands if name in hints and is_tensor_kind(hints[name]))

    @cached_property
    def takes_only_tensors(self) -> bool:
        """Whether all of the any number of operands are tensors, or lists of tensors."""
        names = [name for name, arg in self._arguments.items() if arg.kind is inspect.Parameter.VAR_POSITIONAL]
        return all(name in self._forward_hints and is_tensor_kind(self._forward_hints[name]) for name in names)

    @cached_property
    def _forward_hints(self) -> dict[str, Any]:
        try:
            return type_hints(self.layer.forward)
        except Exception:  # a user's layer may name what its module lacks, or annotate nothing
            return {}

    @cached_property
    def _arguments(self) -> dict[str, inspect.Parameter]:
        arguments = inspect.signature(self.layer.forward).parameters
        return {name: arg for name, arg in arguments.items() if name != "self"}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Parameters with their declared kinds."""
        hints = type_hints(self.layer)
        return {
            each.name: hints[each.name]
            for each in dataclasses.fields(self.layer)
            if hints[each.name] is not Annotations
        }

    @cached_property
    def required_fields(self) -> frozenset[str]:
        """Parameters without a default that the type does not preset."""
        return frozenset(
            each.name
            for each in dataclasses.fields(self.layer)
            if each.default is dataclasses.MISSING
            and each.default_factory is dataclasses.MISSING
            and each.name in self.fields
            and each.name not in self.presets
        )

    @cached_property
    def annotations_field(self) -> str | None:
        """The field that wants the file's annotations, if the layer has one."""
        hints = type_hints(self.layer)
        names = [each.name for each in dataclasses.fields(self.layer) if hints[each.name] is Annotations]
        return names[0] if names else None

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """What unnamed operands stand for, in order."""
        return self.positional or (*self.operands, *self.fields)

    @property
    def names_operands(self) -> bool:
        """Whether ``$name`` entries of this type can be trusted: modules carry stale ones from fused patterns."""
        return not self.type.startswith(("nn.", "pnnx.", "prim::", "torchvision.ops."))
