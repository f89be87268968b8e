"""Tests of retries: which failures, how often and how soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from pnnx_client import BusyError, DeadlineError, PnnxError, TransportError, UnavailableError
from pnnx_client.errors import from_answer
from pnnx_client.retrying import Attempts

FULL = partial(httpx.Response, 429, json={"error": "full"}, headers={"retry-after": "3"})
NOT_READY = partial(httpx.Response, 503, json={"error": "loading"})
BROKEN = httpx.ReadError("broken", request=httpx.Request("GET", "http://server"))
GOOD = partial(httpx.Response, 200, json={"models": []})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses; the clock advances by them only."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr("pnnx_client.client.time", SimpleNamespace(sleep=made.append))
    monkeypatch.setattr("pnnx_client.client.asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("pnnx_client.retrying.time", SimpleNamespace(monotonic=lambda: sum(made)))
    return made


@pytest.mark.parametrize("first", [FULL, NOT_READY, BROKEN], ids=["429", "503", "broken"])
def test_temporary_failures_are_retried(stub: Callable[..., Any], pauses: list[float], first: Any) -> None:
    client, asked = stub(first, first, GOOD)
    assert client.models() == [] and len(asked) == 3 and len(pauses) == 2


def test_a_retry_sends_the_same_body(stub: Callable[..., Any], pauses: list[float]) -> None:
    client, asked = stub(FULL, partial(httpx.Response, 400))
    for options in ({}, {"predictions": True}):
        asked.clear()
        with pytest.raises(ValueError):
            client.infer("m", {"in0": np.ones((1, 3), np.float32)}, **options)
        first, second = (each.read() for each in asked[:2])
        parts = [body.count(np.ones(3, np.float32).tobytes()) for body in (first, second)]
        assert parts == [1, 1] and len(first) == len(second)


def test_pauses_follow_retry_after(stub: Callable[..., Any], pauses: list[float]) -> None:
    client, _ = stub(FULL, FULL, GOOD)
    client.models()
    assert all(3 <= pause <= 3.75 for pause in pauses)


def test_pauses_grow_without_retry_after(stub: Callable[..., Any], pauses: list[float]) -> None:
    client, _ = stub(NOT_READY, NOT_READY, NOT_READY, GOOD)
    client.models()
    assert [0.1 * 2**count <= pause <= 0.125 * 2**count for count, pause in enumerate(pauses)] == [True] * 3


@pytest.mark.parametrize(
    ("answer", "error"), [(FULL, BusyError), (NOT_READY, UnavailableError), (BROKEN, TransportError)]
)
@pytest.mark.parametrize("retries", [0, 2])
def test_retries_are_bounded_in_number(
    stub: Callable[..., Any], pauses: list[float], retries: int, answer: Any, error: type[PnnxError]
) -> None:
    client, asked = stub(answer, retries=retries)
    with pytest.raises(error):
        client.models()
    assert len(asked) == retries + 1


def test_retries_are_bounded_in_time(stub: Callable[..., Any], pauses: list[float]) -> None:
    client, asked = stub(FULL, timeout=8.0, retries=100)
    with pytest.raises(BusyError) as caught:
        client.models()
    assert len(asked) == 3 and sum(pauses) < 8 and caught.value.retry_after_s == 3


def test_a_call_may_have_its_own_timeout(stub: Callable[..., Any], pauses: list[float]) -> None:
    client, asked = stub(FULL)
    with pytest.raises(BusyError):
        client.infer("m", np.zeros(1, np.float32), timeout=1.0)
    assert len(asked) == 1 and asked[0].extensions["timeout"]["read"] == 1.0


@pytest.mark.parametrize(
    "answer", [400, 401, 404, 413, 422, 500, 504, httpx.ReadTimeout("late", request=BROKEN.request)]
)
def test_permanent_failures_are_not_retried(stub: Callable[..., Any], pauses: list[float], answer: Any) -> None:
    client, asked = stub(partial(httpx.Response, answer) if isinstance(answer, int) else answer)
    with pytest.raises(PnnxError):
        client.models()
    assert len(asked) == 1 and pauses == []


@pytest.mark.parametrize("answer", [FULL, BROKEN, httpx.ConnectTimeout("late", request=BROKEN.request)])
def test_probes_are_not_retried(stub: Callable[..., Any], pauses: list[float], answer: Any) -> None:
    client, asked = stub(answer)
    assert (client.live(), client.ready(), len(asked), pauses) == (False, False, 2, [])


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [("7", 7, 7), ("0", 0, 0), (None, None, None), ("soon", None, None), ("-3", None, None)],
)
def test_retry_after_is_in_seconds(value: str | None, least: float | None, most: float | None) -> None:
    found = from_answer(httpx.Response(503, headers={} if value is None else {"retry-after": value})).retry_after_s
    assert found == least == most


@pytest.mark.parametrize(
    ("exact", "expected"), [("8.25", 0.00825), ("1500", 1.5), ("0", 0.0), ("soon", 7.0), ("-1", 7.0), ("nan", 7.0)]
)
def test_retry_after_in_milliseconds_is_more_exact(exact: str, expected: float) -> None:
    answer = httpx.Response(429, headers={"retry-after": "7", "retry-after-ms": exact})
    assert from_answer(answer).retry_after_s == pytest.approx(expected)


def test_retry_after_may_be_a_date() -> None:
    dates = [formatdate(time.time() + seconds, usegmt=True) for seconds in (3600, -3600)]
    later, earlier = (from_answer(httpx.Response(503, headers={"retry-after": date})).retry_after_s for date in dates)
    assert later is not None and 3000 < later <= 3600 and earlier == 0


def test_a_failure_names_its_cause() -> None:
    with pytest.raises(TransportError, match="server did not answer: broken") as caught:
        Attempts(0, None).pause_s(BROKEN)
    assert caught.value.__cause__ is BROKEN
    error = DeadlineError("late")
    with pytest.raises(DeadlineError) as late:
        Attempts(3, None).pause_s(error)
    assert late.value is error and error.__cause__ is None


def test_the_network_timeout_is_never_zero() -> None:
    assert Attempts(3, None).left_s is None
    assert 0 < (Attempts(3, -5.0).left_s or 0) < 0.01
