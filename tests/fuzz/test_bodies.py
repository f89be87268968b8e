"""Some bodies of every kind, in a child under limits; ``python -m tests.fuzz.bodies`` tries more."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.bodies import FRONT_END, KINDS, LIMITS, cases
from tests.fuzz.child import run


@pytest.mark.slow
def test_no_body_is_answered_in_a_way_that_is_not_documented() -> None:
    results = list(run(FRONT_END, itertools.islice(cases(list(KINDS), 0), len(KINDS)), LIMITS))
    assert len(results) == len(KINDS)
    assert not [str(result) for result in results if result.is_finding]
