"""Canonical layers: raw ``aten`` types by their schema, ONNX types by the layer that they are an alias of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.compiler.lowering.terms.term import with_known_parameters
from engine.errors import EngineError
from engine.layers.definition.bound import BoundLayer, Source
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import Overloaded
from engine.layers.onnx.operands.adapter import Adapter
from engine.tensor import UNKNOWN

# An alias may stand for another alias; no chain is longer.
MAX_STEPS = 4


def canonical_layer(bound: BoundLayer, inputs: Sequence[object]) -> BoundLayer:
    """Return the layer that computes an operator, with the sources of its arguments.

    Args:
        inputs: what is known of each operand of the operator: an array, a spec, a value.
    """
    for _ in range(MAX_STEPS):
        layer = bound.layer
        if isinstance(layer, Overloaded):
            bound = _unfolded(bound, layer)
        elif isinstance(layer, Adapter):
            found = _canonical(bound, inputs)
            if found is None:
                break
            bound = replace(bound, layer=found, dynamic={})
        else:
            break
    return bound


def _unfolded(bound: BoundLayer, layer: Overloaded) -> BoundLayer:
    """Return the layer of a schema; its operand numbers are translated to those of the operator."""
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


def _canonical(bound: BoundLayer, inputs: Sequence[object]) -> Layer | None:
    """Return the layer that an adapter is an alias of; None if it is known only at run time."""
    try:
        layer = with_known_parameters(bound, inputs)
        specs = [each.spec(inputs) for each in bound.positional]
        if any(each is UNKNOWN for each in specs) and not bound.layer.takes_unknown:
            return None
        return layer.canonical(*specs) if isinstance(layer, Adapter) else None
    except (EngineError, NotImplementedError):
        return None
