"""Arrays that no model was made for: a result or an EngineError, and the same from both backends."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from tests.engine.layers.samples import all_samples
from tests.fuzz import data
from tests.fuzz.child import Limits, run

# A busy machine may be slow; that a case ends at all is what a test can claim.
LIMITS = Limits(cpu_s=20)
FOUND = json.loads((Path(__file__).parent / "seeds" / "data" / "cases.json").read_text())


def test_any_arrays_give_results_or_errors_and_both_backends_the_same() -> None:
    found = list(run(data.FRONT_END, islice(data.cases(all_samples()[::9], 3), 60), LIMITS))
    assert [str(result) for result in found if result.is_finding] == []
    assert {result.outcome.partition(":")[0] for result in found} >= {"result", "InputError"}


def test_arrays_that_were_once_a_finding_are_none() -> None:
    assert [str(result) for result in run(data.FRONT_END, FOUND, LIMITS) if result.is_finding] == []
