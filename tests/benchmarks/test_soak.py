"""Soak: checks of answers, and growth of memory."""

from __future__ import annotations

import json
import random

import httpx
import numpy as np
import pytest

from benchmarks.soak.__main__ import MODELS
from benchmarks.soak.requests import Request, bad_requests, good_requests, judge, small_requests
from benchmarks.soak.usage import Usage, UsageLog


def answer(status: int = 200, body: object = None, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body, headers={key.replace("_", "-"): value for key, value in headers.items()})


def outputs(*values: float) -> dict[str, object]:
    return {"outputs": {"out0": {"shape": [1, 3], "data": list(values)}}}


def test_a_wrong_value_a_wrong_status_and_a_refusal_without_a_reason_are_found() -> None:
    runtime_settings = next(each for each in small_requests(random.Random(1)) if each.name == "changing")
    x = np.array(json.loads(runtime_settings.body)["inputs"][0])
    assert judge(runtime_settings, answer(body=outputs(*(x + 1)))) is None
    assert judge(runtime_settings, answer(body=outputs(*(x + 2)))) is None
    assert "wrong values" in str(judge(runtime_settings, answer(body=outputs(x[0] + 1, x[1] + 2, x[2] + 1))))
    assert "500" in str(judge(runtime_settings, answer(500, {"error": "x"})))
    assert "no error" in str(judge(Request("bad", "/", b"", status=400), answer(400, {})))


def test_a_full_server_must_say_when_to_come_again() -> None:
    request = Request("any", "/", b"")
    assert judge(request, answer(429, {}, retry_after="1")) is None
    assert judge(request, answer(429, {})) is not None


def test_names_of_requests_tell_them_apart() -> None:
    names = [each.name for each in [*good_requests(MODELS), *bad_requests(MODELS)]]
    assert len(set(names)) == len(names) > 30


@pytest.mark.parametrize(("rise", "grown"), [(0.0, 0.0), (1.0, 90.0)])
def test_growth_is_counted_from_when_the_server_has_settled(rise: float, grown: float) -> None:
    looks = [Usage(at_s=at, memory_mb=50 + (500 if at < 20 else at * rise), threads=1, files=1) for at in range(120)]
    assert UsageLog(0, 0.0, looks).growth_mb(20) == pytest.approx(grown, abs=1)
