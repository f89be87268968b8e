"""Some requests of the protocol, in a child under limits; ``python -m tests.fuzz.protocol`` tries more."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.bodies import LIMITS
from tests.fuzz.child import run
from tests.fuzz.protocol import FRONT_END, cases


@pytest.mark.slow
def test_no_request_of_the_protocol_is_answered_in_a_way_that_is_not_documented() -> None:
    results = list(run(FRONT_END, itertools.islice(cases(0), 300), LIMITS))
    assert not [str(result) for result in results if result.is_finding]
    assert {"200", "400"} <= {result.outcome for result in results} and len(results) == 300
