"""Networks with some of their layers in fewer bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as with_fields
from typing import Final, NamedTuple

from engine.graph import RuntimeGraph, RuntimeOperand
from engine.layers.pooling.max_pool import MaxPool
from engine.passes.optimiser import PASSES
from engine.passes.support.facts import only_consumer
from engine.pnnx import Operator
from engine.quantisation.calibration import Calibration
from engine.quantisation.histogram import Affine
from engine.quantisation.layers import QuantisableLayer, quantise_operators
from engine.quantisation.schemes import Scheme
from engine.tensor import Array

ROUNDED: Final = "/quantised"
"""Follows the name of an operand in the names of the operators that round it."""


class Choice(NamedTuple):
    """A layer and the scheme it is computed by; the correction is added to its bias."""

    layer: QuantisableLayer
    scheme: Scheme
    correction: Array


def assemble(graph: RuntimeGraph, choices: Iterable[Choice]) -> RuntimeGraph:
    """Return a network with some of its layers in fewer bits; their operators are named after them."""
    by_name = {each.layer.name: each for each in choices}
    replaced = {op.name for each in by_name.values() for op in each.layer.operators}
    operators: list[Operator] = []
    done: dict[tuple[str, str, bool], str] = {}
    for op in graph.source.operators:
        if op.name not in by_name:
            operators.extend(() if op.name in replaced else [op])
            continue
        layer, scheme, correction = by_name[op.name]
        place = scheme.precision, layer.input, layer.rounds_input
        if place not in done:
            done[place], reading = scheme.read(layer, layer.input + ROUNDED, layer.input)
            operators.extend(reading)
        operators.extend(scheme.compute(layer, layer.name, done[place], layer.output, correction))
    quantised = RuntimeGraph.from_source(with_fields(graph.source, operators=operators), graph.name)
    quantised.build()
    return quantised.rebuilt(PASSES["dead_operators"](quantised))  # weights in float32


def with_rounded_results(
    graph: RuntimeGraph, layers: Sequence[QuantisableLayer], calibration: Calibration
) -> RuntimeGraph:
    """Return a network that also rounds the results of its int8 convolutions, for no operator of its own.

    Other runtimes compute a convolution with bytes only if its result is rounded; ``save_onnx`` lets them read it so.
    Results whose channels are equalised before they are rounded for the next layer stay exact.
    """
    names = dict.fromkeys(layer.result for layer in layers if layer.result in calibration.results)
    made = [each for op in graph.operators for each in op.outputs if each.name in names]
    results = [each for each in made if not _is_equalised(each, calibration)]
    new = [
        operator
        for result in results
        for operator in quantise_operators(f"{result.name}{ROUNDED}_result", result.name, _affine(result, calibration))
    ]
    return graph.rebuilt(with_fields(graph.source, operators=[*graph.source.operators, *new]))


def _affine(result: RuntimeOperand, calibration: Calibration) -> Affine:
    """Return the scale and zero point of a result: those of its maximum pool, which then only moves bytes."""
    pool = only_consumer(result)
    if pool is not None and isinstance(pool.definition, MaxPool):
        pooled = pool.outputs[0].name
        if pooled in calibration.affines and pooled not in calibration.factors:
            return calibration.affines[pooled]
    return calibration.results[result.name]


def _is_equalised(result: RuntimeOperand, calibration: Calibration) -> bool:
    """Return whether a layer that reads what is made of a result divides the channels of that."""
    seen: set[str] = set()
    waiting = [result]
    while waiting:
        operand = waiting.pop()
        if operand.name in calibration.factors:
            return True
        if operand.name not in seen and operand.name not in calibration.affines:
            waiting += [each for op in operand.consumers for each in op.outputs]
        seen.add(operand.name)
    return False
