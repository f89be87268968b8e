"""Losses of the outputs by errors of single layers: those of numpy's arithmetic, and of networks that are quantised."""

from __future__ import annotations

import numpy as np
import pytest

from engine import RuntimeGraph, TensorSpec
from engine.cancellation import silent
from engine.quantisation.calibration import agreement, calibrate, prepared
from engine.quantisation.layers import find_layers, quantise_operators
from engine.quantisation.sensitivity import output_losses
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(4)
FIRST, SECOND = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (3, 6)))


def network() -> RuntimeGraph:
    """Two linear layers; the output of the first is an output, too."""
    return built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "first", "x", "a", in_features=4, out_features=6, bias=False, weight=FIRST),
        op("nn.Linear", "second", "a", "b", in_features=6, out_features=3, bias=False, weight=SECOND),
        op("pnnx.Output", "out0", "b"),
        op("pnnx.Output", "out1", "a"),
        _x=TensorSpec((2, 4), np.dtype(np.float32)),
    )


def test_an_error_of_a_layer_is_carried_to_every_output_and_the_worst_counts() -> None:
    graph = network()
    samples = [[RANDOM.standard_normal((2, 4)).astype(np.float32)] for _ in range(3)]
    layers = find_layers(graph)
    calibration = calibrate(graph, layers, samples, 1, silent)
    errors = [[RANDOM.standard_normal((2, size)).astype(np.float32) * 0.1 for _ in calibration.recorded]
              for size in (6, 3)]  # fmt: skip
    losses = output_losses(graph, layers, errors, calibration, samples, 1, silent)

    inside = [samples[index][0] @ FIRST.T for index in calibration.recorded]
    ends = [each @ SECOND.T for each in inside]

    def share(found: list[np.ndarray], whole: list[np.ndarray]) -> float:
        return sum(np.square(each).sum() for each in found) / sum(np.square(each).sum() for each in whole)

    carried = share([each @ SECOND.T for each in errors[0]], ends)
    assert losses == pytest.approx([max(carried, share(errors[0], inside)), share(errors[1], ends)], rel=1e-4)


def test_it_foretells_the_loss_of_the_network_with_one_layer_in_int8() -> None:
    graph = network()
    samples = [[RANDOM.standard_normal((2, 4)).astype(np.float32)] for _ in range(2)]
    layers = find_layers(graph)
    calibration = calibrate(graph, layers, samples, 1, silent)
    (layer, second) = layers
    operators = []
    for each in graph.source.operators:
        if each.name == "first":
            operators += quantise_operators("q", layer.input, calibration.affines[layer.input])
            operators += layer.in_int8("first", "q", layer.output, calibration.affines[layer.input].scale)
        else:
            operators.append(each)
    quantised = RuntimeGraph.from_source(type(graph.source)(operators, dict(graph.source.annotations)), "one")
    quantised.build()
    with prepared(quantised, 1) as session:
        lost = 1 - agreement(session, samples, calibration.outputs)
        results = [session.run(sample)[1] for sample in samples]
    errors = [y - calibration.outputs[at][1] for at, y in enumerate(results)]
    nothing = [np.zeros((2, 3), np.float32)] * 2
    found = output_losses(graph, [layer, second], [errors, nothing], calibration, samples, 1, silent)
    assert found == pytest.approx([lost, 0.0], abs=1e-6)
    assert lost > 1e-6
