"""Tests of the outermost middleware: ids, HEAD, and unexpected errors."""

from __future__ import annotations

import asyncio
import json
import logging

import numpy as np
import pytest

from app.http.middleware import RequestMiddleware
from app.log import JsonFormatter, TextFormatter, request_id
from tests.app.client import Client


def test_a_request_keeps_the_id_its_client_gave_it(zoo: Client) -> None:
    headers = {"x-request-id": "abc-123"}
    assert zoo.get("/health/live", headers=headers).headers["x-request-id"] == "abc-123"
    assert zoo.get("/nope", headers=headers).headers["x-request-id"] == "abc-123"


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, 'quote"'])
def test_a_request_without_a_harmless_id_gets_one(zoo: Client, given: str | None) -> None:
    headers = {} if given is None else {"x-request-id": given}
    made = [zoo.get("/health/live", headers=headers).headers["x-request-id"] for _ in range(2)]
    assert len(made[0]) == 16 and made[0] != made[1] and made[0] != given


@pytest.mark.parametrize("path", ["/health/live", "/models", "/", "/graph?model=one", "/nope"])
def test_head_is_get_without_the_body(zoo: Client, path: str) -> None:
    head, get = zoo.request("HEAD", path), zoo.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-length"] == str(len(get.content))


def test_an_unexpected_fault_is_a_plain_500_with_the_id_of_its_log_line(
    zoo: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.http.routes.status.summaries", lambda store: 1 // 0)
    response = zoo.get("/models", headers={"x-request-id": "r7"})
    assert response.status_code == 500
    assert response.json() == {
        "error": {
            "code": "internal", "message": "internal error; see the server's log, request id r7"
        }
    }  # fmt: skip
    assert "ZeroDivisionError" in caplog.text and response.headers["x-request-id"] == "r7"


def test_the_front_page_leads_on(zoo: Client) -> None:
    page = zoo.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert all(f'href="{path}"' in page.text for path in ("docs", "models", "graph?format=svg"))


def test_a_cancelled_request_of_a_client_who_left_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise asyncio.CancelledError

    async def test() -> list[object]:
        sent: list[object] = []
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        await RequestMiddleware(app, access_log=True)(scope, None, sent.append)  # type: ignore[arg-type]
        return sent

    with caplog.at_level(logging.INFO):
        assert asyncio.run(test()) == []
    assert "GET / 499" in caplog.text


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("app.x", logging.WARNING, "f", 1, "model %s", ("m",), None)
    made.__dict__.update(extra)
    return made


def test_a_json_line_has_its_own_fields_and_the_requests_id() -> None:
    token = request_id.set("r1")
    try:
        line = json.loads(JsonFormatter().format(record(took_ms=1.5)))
    finally:
        request_id.reset(token)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning", "logger": "app.x", "message": "model m", "request_id": "r1", "took_ms": 1.5
    }  # fmt: skip


def test_a_text_line_has_an_id_only_within_a_request() -> None:
    assert TextFormatter().format(record()).endswith("WARNING app.x: model m")
    token = request_id.set("r1")
    try:
        assert TextFormatter().format(record(took_ms=2)).endswith("WARNING app.x: model m took_ms=2 [r1]")
    finally:
        request_id.reset(token)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_of_an_exception_shows_where(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("boom")
    except ValueError as exc:
        text = formatter.format(record(exc_info=(ValueError, exc, exc.__traceback__)))
    assert "ValueError: boom" in text and "Traceback" in text


HOSTILE = "a\nb\r\x1b[2J\x00\x7f\x9b\u2028\u202e\ud800"


@pytest.mark.parametrize("place", ["message", "field", "exception"])
def test_a_text_line_is_one_line_without_control_characters_whatever_is_logged(place: str) -> None:
    error = ValueError(f"{HOSTILE}\n12:00:00 INFO app: forged")
    made = {
        "message": record(msg=HOSTILE, args=()),
        "field": record(model=HOSTILE),
        "exception": record(exc_info=(ValueError, error, None)),
    }[place]
    first, *rest = TextFormatter().format(made).split("\n")
    assert first.startswith(tuple("0123456789")) and all(line.startswith("  ") for line in rest)
    assert first.isprintable() and "".join(rest).isprintable() and bool(rest) == (place == "exception")


def test_a_json_line_is_json_whatever_is_logged() -> None:
    line = JsonFormatter().format(record(msg="%s", args=(HOSTILE,), count=2**70))
    assert "\n" not in line and json.loads(line)["message"] == HOSTILE


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_is_of_bounded_length(formatter: logging.Formatter) -> None:
    error = ValueError("y" * 1_000_000)
    assert len(formatter.format(record(msg="x" * 1_000_000, args=(), exc_info=(ValueError, error, None)))) < 100_000


@pytest.mark.parametrize(
    "path", ["/health/live", "/", "/docs", "/openapi.json", "/nope", "/graph?model=one&format=svg"]
)
def test_every_answer_says_that_its_type_is_not_to_be_guessed(zoo: Client, path: str) -> None:
    assert zoo.get(path).headers["x-content-type-options"] == "nosniff"


def test_a_drawing_may_run_nothing(zoo: Client) -> None:
    headers = zoo.get("/graph?model=one&format=svg").headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "script-src 'self'" in zoo.get("/docs").headers["content-security-policy"]


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value", [10**6000, "\ud800", Unwritable(), {(1, 2): {3}}, np.arange(6.0)[::2], np.eye(2) * 1j], ids=lambda _: "x"
)
@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_is_written_whatever_its_fields_hold(formatter: logging.Formatter, value: object) -> None:
    line = formatter.format(record(field=value))
    line.encode()
    if isinstance(formatter, JsonFormatter):
        assert "field" in json.loads(line)
    assert "here" in formatter.format(record(msg="here %s", args=(value,)))
