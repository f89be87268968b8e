"""The optimiser keeps the results of every recorded network; for operators see layers/test_layers.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import RuntimeGraph
from engine.graph import execute
from engine.passes import optimise
from tests.checking import run_all
from tests.engine.layers.samples import Sample, all_samples
from tests.engine.passes.applying import FOLDED, assert_answers, assert_same_ports, runnable

NETWORKS = all_samples("networks")
UNSIMPLIFIED = all_samples("passes")
every_unsimplified = pytest.mark.parametrize("sample", UNSIMPLIFIED, ids=lambda sample: sample.id)
every_network = pytest.mark.parametrize("sample", NETWORKS, ids=lambda sample: sample.id)


@pytest.fixture
def graph(sample: Sample, tmp_path: Path) -> RuntimeGraph:
    return engine.load(*sample.extract(tmp_path))


def it_keeps_its_answer(graph: RuntimeGraph, optimised: RuntimeGraph, sample: Sample, folder: Path) -> None:
    assert_same_ports(graph, optimised)
    for each in sample.sets:
        if runnable(graph, each.inputs):
            assert_answers(execute(optimised.plan, each.inputs), execute(graph.plan, each.inputs), FOLDED)


def for_any_batch_it_keeps_its_answers(
    graph: RuntimeGraph, optimised: RuntimeGraph, sample: Sample, folder: Path
) -> None:
    is_general = graph.inputs[0].spec.shape[0] is None  # type: ignore[union-attr]
    general = graph if is_general else graph.for_any_batch()
    made = optimised if is_general else optimise(general)[0]
    for each in sample.sets:
        assert_answers(execute(made.plan, each.inputs), execute(general.plan, each.inputs), FOLDED)


def what_was_shared_computes_what_a_fresh_build_does(
    graph: RuntimeGraph, optimised: RuntimeGraph, sample: Sample, folder: Path
) -> None:
    fresh = RuntimeGraph.from_source(optimised.source)
    fresh.build()
    inputs = sample.sets[0].inputs
    assert_answers(execute(fresh.plan, inputs), execute(optimised.plan, inputs))


def it_can_be_saved_and_read_again(graph: RuntimeGraph, optimised: RuntimeGraph, sample: Sample, folder: Path) -> None:
    paths = folder / "optimised.pnnx.param", folder / "optimised.pnnx.bin"
    optimised.save(*paths)
    again = engine.load(*paths)
    assert again.source == optimised.source
    assert optimise(again)[0] is again


def no_pass_finds_anything_in_it(graph: RuntimeGraph, optimised: RuntimeGraph, sample: Sample, folder: Path) -> None:
    assert optimise(optimised)[0] is optimised


CHECKS = (
    it_keeps_its_answer,
    for_any_batch_it_keeps_its_answers,
    what_was_shared_computes_what_a_fresh_build_does,
    it_can_be_saved_and_read_again,
    no_pass_finds_anything_in_it,
)


@every_network
def test_every_check_of_an_optimised_network_holds(sample: Sample, graph: RuntimeGraph, tmp_path: Path) -> None:
    run_all(CHECKS, graph, optimise(graph)[0], sample, tmp_path)


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
