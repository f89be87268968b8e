"""Raw ``aten::`` types whose schema depends on the number of operands.

TorchScript gives every operand by position, constants and None included, and one name stands for several schemas:
``aten::prod`` takes (input, dtype) or (input, dim, keepdim, dtype).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final, cast

from engine.errors import ParameterError
from engine.layers.definition.binding import bind
from engine.layers.definition.bound import BoundLayer, Source
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register, registry
from engine.layers.definition.signature import Signature

PLACEMENT: Final = ("device", "layout", "pin_memory", "requires_grad", "memory_format", "generator")
"""Parameters for the location of a tensor and the random generator; they change no value."""


def overload(type_: str, *schemas: tuple[type[Layer] | partial[Any] | str, str]) -> None:
    """Register a type with several schemas, selected by the number of operands.

    Args:
        schemas: a layer, a layer with some parameters fixed, or a registered type each, and PyTorch's names of the
            operands in order; those in PLACEMENT are dropped.
    """
    name = type_.removeprefix("aten::")
    chosen = [_signature(each) for each, _ in schemas]
    calls: dict[str, list[str]] = {}
    for signature, (_, names) in zip(chosen, schemas, strict=True):
        calls.setdefault(signature.summary.removesuffix(".") + ".", []).append(f"{name}({', '.join(names.split())})")
    summaries = [f"{' or '.join(written)}: {summary}" for summary, written in calls.items()]
    body = {
        "schemas": {
            len(names.split()): (signature.layer, signature.presets, names.split())
            for signature, (_, names) in zip(chosen, schemas, strict=True)
        },
        "__doc__": " ".join(summaries),
        "__module__": chosen[0].layer.__module__,
        "canonical_layers": tuple(dict.fromkeys(each.layer for each in chosen)),
    }
    register(type_)(type(f"Raw{name.title().replace('_', '')}", (Overloaded,), body))


def _signature(schema: type[Layer] | partial[Any] | str) -> Signature:
    if isinstance(schema, str):
        return registry[schema]
    if isinstance(schema, partial):
        return Signature(type="", layer=cast(type[Layer], schema.func), presets=schema.keywords)
    return Signature(type="", layer=schema)


class Overloaded(Layer):
    """Base of types with several schemas: number of operands -> layer, names of its operands in order."""

    takes_unknown = True
    schemas: ClassVar[Mapping[int, tuple[type[Layer], Mapping[str, Any], Sequence[str]]]] = {}

    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if len(self.annotations.inputs) not in self.schemas:
            raise ParameterError(
                "no schema has this number of operands",
                found=len(self.annotations.inputs),
                expected=" or ".join(str(count) for count in self.schemas),
            )
        _ = self._bound

    def chosen(self, operands: Sequence[Any]) -> tuple[BoundLayer, list[Any]]:
        """Return the layer that does the work, and its operands."""
        return self._bound, self._kept(operands)

    @property
    def takes_sizes(self) -> bool:  # type: ignore[override]
        """Return whether the chosen layer accepts symbolic sizes."""
        return self._bound.layer.takes_sizes

    def infer(self, *operands: object) -> Any:
        return self._bound.infer(self._kept(operands))

    def forward(self, *operands: object) -> Any:
        return self._bound.forward(self._kept(operands))

    def flops(self, output: Any, *operands: object) -> int:
        return self._bound.flops(output, self._kept(operands))

    def scratch_bytes(self, output: Any, *operands: object) -> int:
        return self._bound.scratch_bytes(output, self._kept(operands))

    @cached_property
    def _bound(self) -> BoundLayer:
        layer, presets, names = self.schemas[len(self.annotations.inputs)]
        inputs = tuple(self._kept(self.annotations.inputs))
        return bind(
            Signature(
                type="aten::" + layer.__name__, layer=layer, presets=presets, positional=tuple(self._kept(names))
            ),
            n_inputs=len(inputs),
            params={},
            attributes={},
            annotations=replace(self.annotations, inputs=inputs, labels=()),
        )

    def _kept(self, operands: Sequence[Any]) -> list[Any]:
        names = self.schemas[len(operands)][2]
        return [operand for name, operand in zip(names, operands, strict=True) if name not in PLACEMENT]


def unfolded(bound: BoundLayer) -> BoundLayer:
    """Return the layer of a schema; its operand numbers are translated to those of the operator."""
    layer = bound.layer
    if not isinstance(layer, Overloaded):
        return bound
    inner, given = layer.chosen(bound.positional)
    sources = [given[each.index] if each.index is not None else each for each in inner.positional]
    return replace(
        inner,
        positional=tuple(_as(each, mine) for each, mine in zip(sources, inner.positional, strict=True)),
        keywords={name: given[each.index] if each.index is not None else each for name, each in inner.keywords.items()},
        dynamic={name: _place(given[index]) for name, index in inner.dynamic.items()},
    )


def _as(source: Source, mine: Source) -> Source:
    return replace(source, is_tensor=mine.is_tensor)


def _place(source: Source) -> int:
    assert source.index is not None  # a raw type has only operands
    return source.index
