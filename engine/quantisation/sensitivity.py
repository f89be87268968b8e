"""Loss of the network's outputs when a single layer is quantised.

Errors of layers spread differently: one layer of a text recogniser loses more than all others together. The float32
network is compiled once with the error of each layer as a further input, which is added to the layer's output, and runs
once for each layer with that layer's error and zeros. Losses of layers roughly add up: in PP-OCR's recogniser and in
MiniLM their sum is 0.5 and 0.8 of the loss of all layers together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields

import numpy as np

from engine.cancellation import Progress, check_cancelled
from engine.graph import RuntimeGraph
from engine.pnnx import Operator
from engine.quantisation.calibration import Calibration, agreement, prepared
from engine.quantisation.layers import QuantisableLayer
from engine.tensor import Array, TensorSpec


def output_losses(
    graph: RuntimeGraph,
    layers: Sequence[QuantisableLayer],
    errors: Sequence[Sequence[Array]],
    calibration: Calibration,
    samples: Sequence[Sequence[Array]],
    threads: int | None,
    progress: Progress,
) -> list[float]:
    """Return the share of the outputs' energy that each layer alone would lose, of the worst output.

    Args:
        graph: the float32 network.
        layers: some of its layers.
        errors: for each layer, what is added to its output in each recorded run.
        calibration: facts about the network on the samples.
        samples: those that it was calibrated with.
        threads: cores a run may use.
        progress: called before each layer.
    """
    recorded = calibration.recorded
    disturbed = _with_errors(graph, {layer.output: each[0] for layer, each in zip(layers, errors, strict=True)})
    names = [port.operand for port in graph.inputs]
    inputs = [dict(zip(names, samples[index], strict=True)) for index in recorded]
    outputs = {run: calibration.outputs[index] for run, index in enumerate(recorded)}
    zeros = {_error_of(layer.output): np.zeros_like(each[0]) for layer, each in zip(layers, errors, strict=True)}
    losses = []
    first = {**inputs[0], **zeros}
    with prepared(disturbed, threads, [first[port.operand] for port in disturbed.inputs]) as session:
        for index, (layer, each) in enumerate(zip(layers, errors, strict=True)):
            check_cancelled()
            progress("measuring errors", index, len(layers))
            feeds = [{**own, **zeros, _error_of(layer.output): error} for own, error in zip(inputs, each, strict=True)]
            rows = [[feed[port.operand] for port in disturbed.inputs] for feed in feeds]
            losses.append(1 - agreement(session, rows, outputs))
    return losses


def _error_of(operand: str) -> str:
    return f"{operand}/error"


def _with_errors(graph: RuntimeGraph, errors: Mapping[str, Array]) -> RuntimeGraph:
    """Return the network with an input for each of these operands that is added to it."""
    operators: list[Operator] = []
    annotations = dict(graph.source.annotations)
    for op in graph.source.operators:
        made = [name for name in op.outputs if name in errors]
        exact = {name: f"{name}/exact" for name in made}
        operators.append(with_fields(op, outputs=tuple(exact.get(name, name) for name in op.outputs)))
        for name in made:
            operators.append(Operator("pnnx.Input", _error_of(name), (), (_error_of(name),)))
            given = (exact[name], _error_of(name))
            operators.append(Operator("pnnx.Expression", f"{name}/sum", given, (name,), {"expr": "add(@0,@1)"}))
            annotations[_error_of(name)] = TensorSpec(errors[name].shape, errors[name].dtype)
    built = RuntimeGraph.from_source(
        with_fields(graph.source, operators=operators, annotations=annotations), graph.name
    )
    built.build()
    return built
