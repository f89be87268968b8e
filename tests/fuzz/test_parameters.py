"""Parameters that no model has: a result or an EngineError, soon, in little memory; the module itself runs long."""

from __future__ import annotations

import random

import pytest

from tests.engine.layers.samples import all_samples
from tests.fuzz.child import Limits, run
from tests.fuzz.parameters import FRONT_ENDS, cases, first_of_each

# A busy machine may be slow; that a case ends at all is what a test can claim.
LIMITS = Limits(cpu_s=20)
SEEDS = 60


@pytest.mark.parametrize("backend", FRONT_ENDS)
def test_a_sample_of_all_parameters_and_values_gives_results_or_errors(backend: str) -> None:
    wanted = list(cases(first_of_each(all_samples()[::7])))
    found = run(FRONT_ENDS[backend], random.Random(20).sample(wanted, SEEDS), LIMITS)
    assert not [str(result) for result in found if result.is_finding]
