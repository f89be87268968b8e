"""The conformance corpus, where it lies beside the project: PyTorch's answers, before and after saving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from tests.corpus_score import DEFAULT, load_compare, run

CASES = sorted((DEFAULT / "cases").iterdir()) if DEFAULT.is_dir() else []

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CASES, reason="the corpus is not beside the project")]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every
def test_case_matches_pytorchs_recorded_answer(case: Path) -> None:
    ok, detail = load_compare(DEFAULT).check_case(str(case), run)
    assert ok, [result["reason"] for results in detail for result in results if not result["ok"]]


@every
def test_a_saved_copy_answers_the_same(case: Path, tmp_path: Path) -> None:
    graph = engine.load(case / "model.pnnx.param")
    paths = tmp_path / "copy.pnnx.param", tmp_path / "copy.pnnx.bin"
    graph.save(*paths)
    inputs, _ = load_compare(DEFAULT).load_set(str(case), 0)
    first, second = (engine.Session(each, backend="reference").run(inputs) for each in (graph, engine.load(*paths)))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
