"""Sessions give the reference's answers at thirty sets of sizes, whatever another thread runs or compiles meanwhile."""

from __future__ import annotations

import pytest

from tests.corpus_score import DEFAULT
from tests.engine.compiler.dynamic.sweeps import sweeps
from tests.nightly import IS_NIGHTLY

STEPS = {"layers": 150, "cases": 40, "networks": 8, "onnx": 200}
"""Groups of graphs, of which every so-manieth is looked at; in `make nightly` all."""
FIXED = ("indexing-slice_runtime_end", "size_arithmetic-positions_1")
"""Samples whose result is constant for some sizes, and a tensor's for others."""
GROUPS = [*FIXED, *(group for group in STEPS if group != "cases" or DEFAULT.is_dir())]
OPENINGS = 4 if IS_NIGHTLY else 1


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_two_threads_get_the_references_answers_at_thirty_sets_of_sizes(group: str) -> None:
    found = list(sweeps("racing", group, 0, 1 if IS_NIGHTLY else STEPS.get(group, 1), OPENINGS))
    assert any(each.get("passed", 0) > 1 for each in found)
    assert not {each["name"]: each["problem"] for each in found if each["problem"]}
