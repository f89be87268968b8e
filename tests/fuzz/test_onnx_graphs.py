"""A few random ONNX graphs, which onnxruntime answers too."""

from __future__ import annotations

import pytest

from tests.nightly import IS_NIGHTLY

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from tests.fuzz.onnx_graphs import case_of, problems_of


def test_random_graphs_give_the_answers_of_onnxruntime() -> None:
    cases = {seed: case_of(seed) for seed in range(600 if IS_NIGHTLY else 12)}
    found = {seed: problems_of(case) for seed, case in cases.items() if case is not None}
    assert len(found) > len(cases) / 2
    assert {seed: problems for seed, problems in found.items() if problems} == {}
