"""All passes together keep the answers of every recorded operator and network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import RuntimeGraph
from engine.graph import execute
from engine.passes import optimise
from tests.engine.layers.samples import Sample, all_samples
from tests.engine.passes.applying import FOLDED, assert_answers, assert_same_ports

LAYERS = [sample for sample in all_samples("layers") if sample.path.stem != "randomness"]
NETWORKS = all_samples("networks")
UNSIMPLIFIED = all_samples("passes")
every_layer = pytest.mark.parametrize("sample", LAYERS, ids=lambda sample: sample.id)
every_unsimplified = pytest.mark.parametrize("sample", UNSIMPLIFIED, ids=lambda sample: sample.id)
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


@every_unsimplified
def test_a_network_the_converter_did_not_simplify_still_gives_pytorchs_answer(
    sample: Sample, graph: RuntimeGraph
) -> None:
    optimised, _ = optimise(graph)
    assert_same_ports(graph, optimised)
    for each in sample.sets:
        outputs = execute(optimised.plan, each.inputs)
        assert [(a.shape, a.dtype) for a in outputs] == [(a.shape, a.dtype) for a in each.outputs]
        for found, expected in zip(outputs, each.outputs, strict=True):
            np.testing.assert_allclose(found, expected, rtol=sample.rtol, atol=sample.atol)


@every_unsimplified
def test_a_network_the_converter_did_not_simplify_loses_what_inference_does_not_need(
    sample: Sample, graph: RuntimeGraph
) -> None:
    optimised, _ = optimise(graph)
    types = {op.type for op in optimised.operators}
    assert not types & {"nn.BatchNorm2d", "nn.Dropout", "F.dropout", "Tensor.clone", "aten::contiguous"}
    assert len(optimised.operators) < len(graph.operators)


@pytest.mark.parametrize("name", ["resnet_bottleneck", "densenet", "inception", "shufflenet", "gru", "bert"])
def test_what_the_converter_simplifies_the_passes_simplify_as_far(name: str, tmp_path: Path) -> None:
    chosen = {sample.name: sample for sample in (*NETWORKS, *UNSIMPLIFIED)}
    counts = []
    for number, sample in enumerate([chosen[name], chosen[f"{name}_level0"], chosen[f"{name}_level1"]]):
        (tmp_path / str(number)).mkdir()
        optimised, _ = optimise(engine.load(*sample.extract(tmp_path / str(number))))
        counts.append(len(optimised.operators))
    # Channel shuffles, which the converter names, are two reshapes and a permutation each.
    shuffles = 2 * 2 if name == "shufflenet" else 0
    assert max(counts[1:]) <= counts[0] + shuffles
