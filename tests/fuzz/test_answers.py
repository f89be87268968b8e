"""A short hunt for answers that are not their requests', and what the judge of answers finds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.fuzz.answers import STORE, Answer, Case, hunt, own_json
from tests.nightly import IS_NIGHTLY

X = np.arange(4, dtype=np.float32).reshape(2, 2)
CASE = Case("own", "plain", own_json, X, own_json("/models/plain/infer", "own", X))


def answer(values: object, name: str = "own", status: int = 200) -> Answer:
    body = json.dumps({"outputs": {"out0": {"shape": [2, 2], "data": values}}}).encode()
    return Answer(status, {"x-request-id": name}, body)


@pytest.mark.slow
@pytest.mark.skipif(not IS_NIGHTLY, reason="a server with five models takes long to start")
def test_every_client_gets_its_own_answer() -> None:
    report = hunt(seconds=0, seed=1, clients=8, count=1)
    assert not report.findings
    assert report.counts["right"]


def test_a_right_answer_and_that_of_a_busy_server_are_no_finding() -> None:
    assert CASE.problem(answer([0, 1, 2, 3])) is None
    assert CASE.problem(answer([], status=429)) is None


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (answer([0, 1, 2, 3], name="other"), "found the id of another request, other"),
        (answer([0, 1, 2, 4]), r"wrong values, by up to 1 in items \[1\]"),
        (answer([0, 1, 2]), "unreadable"),
        (answer([0, 1, 2, 3], status=500), "status 500"),
    ],
)
def test_an_answer_that_is_not_its_requests_is_found(wrong: Answer, problem: str) -> None:
    message = CASE.problem(wrong)
    assert message is not None and message.startswith("own (plain, own_json, 2 items): ")
    with pytest.raises(ValueError, match=problem):
        raise ValueError(message)


def test_the_models_asked_share_runs_keep_outputs_and_do_neither() -> None:
    configs = [config for _, config in STORE.values()]
    assert any("[batching]" in each for each in configs) and any("[response_cache]" in each for each in configs)
    assert "" in configs
