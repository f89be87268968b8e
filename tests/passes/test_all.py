"""All passes together keep the answers of every recorded operator and network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import RuntimeGraph
from engine.graph import execute
from engine.passes import optimise
from tests.layers.samples import Sample, all_samples
from tests.passes.applying import FOLDED, assert_answers, assert_same_ports

LAYERS = [sample for sample in all_samples("layers") if sample.path.stem != "randomness"]
NETWORKS = all_samples("networks")
every_layer = pytest.mark.parametrize("sample", LAYERS, ids=lambda sample: sample.id)
every_network = pytest.mark.parametrize("sample", NETWORKS, ids=lambda sample: sample.id)


@pytest.fixture
def graph(sample: Sample, tmp_path: Path) -> RuntimeGraph:
    return engine.load(*sample.extract(tmp_path))


def runnable(graph: RuntimeGraph, inputs: list[np.ndarray]) -> bool:
    """Whether the graph takes these inputs as it is, rather than its form for any batch."""
    pairs = zip(graph.inputs, inputs, strict=True)
    return all(
        m in (None, n)
        for port, array in pairs
        if port.spec is not None
        for m, n in zip(port.spec.shape, array.shape, strict=True)
    )


@every_layer
def test_an_operator_keeps_its_answer(sample: Sample, graph: RuntimeGraph) -> None:
    optimised, _ = optimise(graph)
    assert_same_ports(graph, optimised)
    for each in sample.sets:
        if runnable(graph, each.inputs):
            assert_answers(execute(optimised.plan, each.inputs), execute(graph.plan, each.inputs), FOLDED)


@every_network
def test_a_network_keeps_its_answer(sample: Sample, graph: RuntimeGraph) -> None:
    optimised, _ = optimise(graph)
    assert_same_ports(graph, optimised)
    for each in sample.sets:
        if runnable(graph, each.inputs):
            assert_answers(execute(optimised.plan, each.inputs), execute(graph.plan, each.inputs), FOLDED)


@every_network
def test_a_network_for_any_batch_keeps_its_answers(sample: Sample, graph: RuntimeGraph) -> None:
    general = graph if graph.inputs[0].spec.shape[0] is None else graph.for_any_batch()  # type: ignore[union-attr]
    optimised, _ = optimise(general)
    for each in sample.sets:
        assert_answers(execute(optimised.plan, each.inputs), execute(general.plan, each.inputs), FOLDED)


@every_network
def test_what_was_shared_computes_what_a_fresh_build_does(sample: Sample, graph: RuntimeGraph) -> None:
    optimised, _ = optimise(graph)
    fresh = RuntimeGraph.from_source(optimised.source)
    fresh.build()
    inputs = sample.sets[0].inputs
    assert_answers(execute(fresh.plan, inputs), execute(optimised.plan, inputs))


@every_network
def test_an_optimised_network_can_be_saved_and_read_again(sample: Sample, graph: RuntimeGraph, tmp_path: Path) -> None:
    optimised, _ = optimise(graph)
    paths = tmp_path / "optimised.pnnx.param", tmp_path / "optimised.pnnx.bin"
    optimised.save(*paths)
    again = engine.load(*paths)
    assert again.source == optimised.source
    assert optimise(again)[0] is again


@every_network
def test_no_pass_finds_anything_in_an_optimised_network(sample: Sample, graph: RuntimeGraph) -> None:
    optimised, _ = optimise(graph)
    assert optimise(optimised)[0] is optimised
