"""A template gives the reference's answers for all sizes that pass its guards, and stays inside its memory."""

from __future__ import annotations

import pytest

from tests.corpus_score import DEFAULT
from tests.engine.compiler.dynamic.sweeps import sweeps
from tests.nightly import IS_NIGHTLY

NETWORKS = ("transformers-gpt_dynamic", "sequences-tcn_dynamic", "dense_prediction-espcn")
STEPS = {"layers": 150, "cases": 40}
"""Groups of graphs, of which every so-manieth is looked at; in `make nightly` all, all networks, and ONNX's cases."""
DYNAMIC_KERNELS = 4 if IS_NIGHTLY else 1
GROUPS = [
    *(("networks", "onnx") if IS_NIGHTLY else NETWORKS),
    *(group for group in STEPS if group != "cases" or DEFAULT.is_dir()),
]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_templates_are_right_for_all_sizes_that_pass_their_guards(group: str) -> None:
    step = 1 if IS_NIGHTLY else STEPS.get(group, 1)
    found = list(sweeps("sweeping", group, 0, step, DYNAMIC_KERNELS))
    assert any(each.get("passed", 0) > 1 for each in found)
    assert not {each["name"]: each["problem"] for each in found if each["problem"]}
