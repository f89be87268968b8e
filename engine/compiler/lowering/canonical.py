"""Canonical layers: raw ``aten`` types by their schema, ONNX types by the layer that they are an alias of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.compiler.lowering.terms.term import with_known_parameters
from engine.errors import EngineError
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import Overloaded, unfolded
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
            bound = unfolded(bound)
        elif isinstance(layer, Adapter):
            found = _canonical(bound, inputs)
            if found is None:
                break
            bound = replace(bound, layer=found, dynamic={})
        else:
            break
    return bound


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
