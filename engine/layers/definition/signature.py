"""Schema of an operator type: its operands, parameters and attributes.

It is derived from the layer class (fields are parameters, arguments of ``forward`` are operands), and from the
registration of the type.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from engine.errors import ParameterError
from engine.layers.definition.hints import describe, is_readable
from engine.layers.definition.layer import Annotations, Layer
from engine.layers.definition.parameter import field_hints, is_single_hint, is_tensor_hint, type_hints

LayerClass: TypeAlias = type[Layer]
REQUIRED = inspect.Parameter.empty
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OURS: Final = __name__.removesuffix("definition.signature")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Spelling of the operators of one type.

    Args:
        type: the PNNX type name.
        layer: the class that computes it.
        presets: fields and operands this type fixes (``nn.UpsamplingBilinear2d`` is an Upsample with align_corners).
        ignored: parameters that only describe (``nn.Conv2d`` repeats ``in_channels``).
        flags: boolean parameters that announce attributes: ``{"bias": ("bias",)}``.
        shapes: parameters that repeat the sizes of an attribute: ``{"weight": ("out_features", "in_features")}``;
            see engine/layers/definition/binding.py.
        positional: names of operands and parameters in the order of unlabelled operands; by default the operands of
            forward, then the fields.
        renamed: the file's name of an operand or parameter -> ours.
        formula: what this type computes, where the layer's docstring describes several.
    """

    type: str
    layer: LayerClass
    presets: Mapping[str, Any] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    formula: str = ""

    def __post_init__(self) -> None:
        # Signatures of this package are checked by a test instead of at every import.
        if not self.layer.__module__.startswith(_OURS):
            self.check()

    def check(self) -> None:
        """Check that the class declares types that a file can provide, and that the registration uses its names.

        Raises:
            ParameterError: a fault, with its description.
        """
        self._check_layer()
        known = {*self.operands, *self.fields}
        wrong = {*self.presets, *self.positional, *self.renamed.values()} - known
        if wrong:
            raise ParameterError(
                "the registration uses names that the layer does not have",
                where=self.type,
                found=", ".join(sorted(wrong)),
                expected=", ".join(sorted(known)),
            )

    def _check_layer(self) -> None:
        name = self.layer.__qualname__
        if not callable(getattr(self.layer, "forward", None)):
            raise ParameterError("a layer needs a method 'forward'", where=self.type, found=f"{name} without one")
        try:
            declared = {**self.fields, "forward": self._arguments}
        except Exception as exc:  # an annotation with an undefined name, a forward without a signature
            found = f"{type(exc).__name__}: {exc}"
            raise ParameterError(f"the declarations of {name} cannot be read", where=self.type, found=found) from exc
        wrong = [field for field in self.fields if not is_readable(declared[field])]
        if wrong:
            expected = "bool, int, float, complex, str, a dtype, lists of those, a Literal, None, or Any"
            found = f"{wrong[0]}: {describe(declared[wrong[0]])}"
            raise ParameterError(f"{name} declares parameters that no file can hold", where=self.type, found=found,
                                 expected=expected)  # fmt: skip

    @property
    def summary(self) -> str:
        """Formula or description of operators of this type, as one line."""
        return " ".join((self.formula or self.layer.__doc__ or "").strip().split("\n\n")[0].split())

    @cached_property
    def operands(self) -> dict[str, Any]:
        """Named arguments of forward with their defaults; REQUIRED if there is none."""
        return {name: arg.default for name, arg in self._arguments.items() if arg.kind in (*_PLACED, _KEYWORD)}

    @cached_property
    def leading(self) -> frozenset[str]:
        """The positional ones of them; the rest come after a ``*`` and are passed by name."""
        return frozenset(name for name, arg in self._arguments.items() if arg.kind in _PLACED)

    @cached_property
    def is_variadic(self) -> bool:
        """Return whether forward takes any number of operands (``*tensors``)."""
        return any(arg.kind is inspect.Parameter.VAR_POSITIONAL for arg in self._arguments.values())

    @cached_property
    def takes_any_attribute(self) -> bool:
        """Return whether forward takes attributes of any name (``**weights``)."""
        return any(arg.kind is inspect.Parameter.VAR_KEYWORD for arg in self._arguments.values())

    @cached_property
    def tensors(self) -> frozenset[str]:
        """Named arguments of forward that accept only tensors, or lists of tensors."""
        hints = self._forward_hints
        return frozenset(name for name in self.operands if name in hints and is_tensor_hint(hints[name]))

    def takes_number(self, name: str) -> bool:
        """Return whether a literal for an argument of forward must be a number."""
        return name in self._forward_hints and is_single_hint(self._forward_hints[name])

    def is_optional(self, name: str) -> bool:
        """Return whether an argument of forward may be None."""
        return type(None) in typing.get_args(self._forward_hints.get(name))

    @cached_property
    def takes_only_tensors(self) -> bool:
        """Return whether all variadic operands are tensors, or lists of tensors."""
        names = [name for name, arg in self._arguments.items() if arg.kind is inspect.Parameter.VAR_POSITIONAL]
        return all(name in self._forward_hints and is_tensor_hint(self._forward_hints[name]) for name in names)

    @cached_property
    def _forward_hints(self) -> dict[str, Any]:
        try:
            return type_hints(self.layer.forward)
        except Exception:  # a user's layer may use undefined names, or have no annotations
            return {}

    @cached_property
    def _arguments(self) -> dict[str, inspect.Parameter]:
        arguments = inspect.signature(self.layer.forward).parameters
        is_method = inspect.isfunction(inspect.getattr_static(self.layer, "forward"))
        return {name: arg for place, (name, arg) in enumerate(arguments.items()) if place or not is_method}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Parameters with their declared types."""
        return {name: hint for name, hint in field_hints(self.layer).items() if hint is not Annotations}

    @cached_property
    def required_fields(self) -> frozenset[str]:
        """Parameters without a default that the type does not preset."""
        return self._without_default - self.presets.keys()

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Parameters without a default that the type presets: a file cannot change them."""
        return self._without_default & self.presets.keys()

    @cached_property
    def _without_default(self) -> frozenset[str]:
        return frozenset(
            each.name
            for each in dataclasses.fields(self.layer)
            if each.default is dataclasses.MISSING
            and each.default_factory is dataclasses.MISSING
            and each.name in self.fields
        )

    @cached_property
    def annotations_field(self) -> str | None:
        """The field for the file's annotations; None if the layer has none."""
        names = [name for name, hint in field_hints(self.layer).items() if hint is Annotations]
        return names[0] if names else None

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Names of unlabelled operands, in order."""
        return self.positional or (*self.operands, *(each for each in self.fields if each not in self.fixed))

    @property
    def takes_none(self) -> bool:
        """Return whether None may be an operand: in ONNX it is a constant that the converter lost."""
        return not self.layer.__module__.startswith("engine.layers.onnx.")

    @property
    def names_operands(self) -> bool:
        """Return whether ``$name`` entries of this type are reliable: modules carry stale ones from fused patterns."""
        return not self.type.startswith(("nn.", "pnnx.", "prim::", "torchvision.ops."))
