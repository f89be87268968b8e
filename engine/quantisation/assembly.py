"""Networks with some of their layers in fewer bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Final

from engine.graph import RuntimeGraph
from engine.passes.optimiser import PASSES
from engine.pnnx import Operator
from engine.quantisation.layers import QuantisableLayer
from engine.quantisation.schemes import Scheme
from engine.tensor import Array

ROUNDED: Final = "/quantised"
"""Follows the name of an operand in the names of the operators that round it."""


def assemble(
    graph: RuntimeGraph, layers: Sequence[QuantisableLayer], scheme: Scheme, corrections: Mapping[str, Array]
) -> RuntimeGraph:
    """Return a network with some of its layers quantised; their operators are named after them.

    Args:
        layers: those to quantise.
        corrections: added to the bias of each, by the layer's name.
    """
    by_name = {layer.name: layer for layer in layers}
    operators: list[Operator] = []
    done: dict[tuple[str, bool], str] = {}
    for op in graph.source.operators:
        layer = by_name.get(op.name)
        if layer is None:
            operators.append(op)
            continue
        place = layer.input, layer.rounds_input
        if place not in done:
            done[place], reading = scheme.read(layer, layer.input + ROUNDED, layer.input)
            operators.extend(reading)
        given = layer.name, done[place], layer.output, corrections[layer.name]
        operators.extend(scheme.compute(layer, *given))
    quantised = RuntimeGraph.from_source(with_fields(graph.source, operators=operators), graph.name)
    quantised.build()
    return quantised.rebuilt(PASSES["dead_operators"](quantised))  # weights in float32
