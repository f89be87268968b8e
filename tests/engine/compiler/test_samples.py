"""Machine code against the numpy reference and PyTorch's recorded answers: networks and the corpus.

Operators are compared with PyTorch's answers in layers/test_layers.py.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import engine
from engine import CompileError
from tests.corpus_score import DEFAULT, load_compare
from tests.engine.layers.samples import Sample, all_samples

CASES = sorted((DEFAULT / "cases").iterdir()) if DEFAULT.is_dir() else []
# Of the largest element of an output, what Winograd's transforms and sums in another order may change.
LARGEST_ERROR = {"auto": 1e-4, "off": 2e-5}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_network = pytest.mark.parametrize("sample", all_samples("networks"), ids=lambda sample: sample.id)


class Machine:
    """Graph as machine code, or on the reference where it has no kernel at all.

    It has two threads even on one core: the answer may not depend on which thread computes it.
    """

    def __init__(self, graph: engine.RuntimeGraph, winograd: Literal["auto", "off"] = "auto") -> None:
        self._graph = graph
        self.session = engine.Session(graph, backend="compiled", threads=2, winograd=winograd, cache=None)

    @cached_property
    def reference(self) -> engine.Session:
        return engine.Session(self._graph, backend="reference")

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        try:
            return self.session.run(inputs)
        except CompileError as error:
            assert "no operator of the graph has a kernel" in str(error)
            return self.reference.run(inputs)


@every_network
def test_networks_give_the_references_answers(sample: Sample, tmp_path: Path) -> None:
    graph = engine.load(*sample.extract(tmp_path))
    reference = engine.Session(graph, backend="reference")
    wanted = [reference.run(each.inputs) for each in sample.sets]
    ways: tuple[Literal["auto", "off"], ...] = ("auto", "off")
    for winograd in ways:
        session = Machine(graph, winograd).session
        errors, kernels = [], set()
        for each, expected in zip(sample.sets, wanted, strict=True):
            outputs = session.run(each.inputs)
            assert [(a.shape, a.dtype) for a in outputs] == [(a.shape, a.dtype) for a in each.outputs]
            for mine, theirs in zip(outputs, expected, strict=True):
                errors.append((np.abs(mine - theirs).max(), np.abs(theirs).max()))
            kernels |= {row.get("kernel") for row in session.describe()["operators"]}
        largest_error = LARGEST_ERROR["auto" if "winograd" in kernels else "off"]
        assert all(error <= largest_error * largest for error, largest in errors)
        if "winograd" not in kernels:  # the other way gives the same program
            break


@pytest.mark.corpus
@pytest.mark.skipif(not CASES, reason="the corpus is not beside the project")
@every_case
def test_cases_give_pytorchs_recorded_answers(case: Path) -> None:
    def run(param: str, bin: str, inputs: list[Any]) -> list[Any]:
        return list(Machine(engine.load(param, bin)).run(inputs))

    ok, detail = load_compare(DEFAULT).check_case(str(case), run)
    assert ok, [result["reason"] for results in detail for result in results if not result["ok"]]
