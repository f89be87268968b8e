"""Machine code against PyTorch's recorded answers and the numpy reference: layers, networks and the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import engine
from tests.corpus_score import DEFAULT, load_compare
from tests.layers.samples import Sample, all_samples
from tests.layers.test_layers import assert_close

CASES = sorted((DEFAULT / "cases").iterdir()) if DEFAULT.is_dir() else []
# Of the largest element of an output, what Winograd's transforms and sums in another order may change.
LARGEST_ERROR = {"auto": 1e-4, "off": 2e-5}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_layer = pytest.mark.parametrize("sample", all_samples("layers"), ids=lambda sample: sample.id)
every_network = pytest.mark.parametrize("sample", all_samples("networks"), ids=lambda sample: sample.id)
both_ways = pytest.mark.parametrize("winograd", ["auto", "off"])


def machine(graph: engine.RuntimeGraph, winograd: Literal["auto", "off"] = "auto") -> engine.Session:
    """Two threads even where there is one core: the answer may not depend on who computes it."""
    return engine.Session(graph, threads=2, winograd=winograd, cache=None)


@every_layer
def test_layers_give_pytorchs_answers(sample: Sample, tmp_path: Path) -> None:
    session = machine(engine.load(*sample.extract(tmp_path)))
    for each in sample.sets:
        assert_close(session.run(each.inputs), each.outputs, sample)


@every_network
@both_ways
def test_networks_give_the_references_answers(sample: Sample, winograd: Literal["auto", "off"], tmp_path: Path) -> None:
    graph = engine.load(*sample.extract(tmp_path))
    session, reference = machine(graph, winograd), engine.Session(graph, backend="reference")
    for each in sample.sets:
        outputs = session.run(each.inputs)
        assert session.backend == "compiled"
        assert [(a.shape, a.dtype) for a in outputs] == [(a.shape, a.dtype) for a in each.outputs]
        for found, expected in zip(outputs, reference.run(each.inputs), strict=True):
            assert np.abs(found - expected).max() <= LARGEST_ERROR[winograd] * np.abs(expected).max()


@pytest.mark.corpus
@pytest.mark.skipif(not CASES, reason="the corpus is not beside the project")
@every_case
def test_cases_give_pytorchs_recorded_answers(case: Path) -> None:
    def run(param: str, bin: str, inputs: list[Any]) -> list[Any]:
        return list(machine(engine.load(param, bin)).run(inputs))

    ok, detail = load_compare(DEFAULT).check_case(str(case), run)
    assert ok, [result["reason"] for results in detail for result in results if not result["ok"]]
