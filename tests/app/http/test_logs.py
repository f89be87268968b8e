"""Tests of log lines and response headers of requests: model, sizes, times, id and trace, but no payloads."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.log import JsonFormatter, TextFormatter
from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, through, write_model

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Lines(logging.Handler):
    """Handler that formats every line at once, with the ids of that time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "httpx":  # the client is in this process too
            return
        self.lines.append(json.loads(JsonFormatter().format(record)))
        self.texts.append(TextFormatter().format(record))

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["logger"] == logger]

    @property
    def last(self) -> dict[str, Any]:
        return self.of("app.access")[-1]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    write_model(tmp_path, "fails", through("test.Fail", "(1,2)f32"))
    with serving(tmp_path, access_log=True) as client:
        yield client


@pytest.fixture
def log() -> Iterator[Lines]:
    lines, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(lines)
    root.setLevel(level)


def test_a_line_tells_model_sizes_and_times_and_nothing_of_the_payload(client: Client, log: Lines) -> None:
    body = b'{"inputs": [[123454321, 2], [3, 4], [5, 6]]}'
    answer = client.post("/models/one/infer?outputs=true", content=body, headers={"content-type": "application/json"})
    line = log.last
    assert line["message"] == "POST /models/one/infer 200" and line["request_id"] == answer.headers["x-request-id"]
    assert (line["model"], line["version"], line["items"]) == ("one", 1, 3)
    assert (line["bytes_in"], line["bytes_out"]) == (len(body), len(answer.content))
    timing = answer.json()["timing"]
    del timing["total_ms"]
    assert {key: line[key] for key in timing} == timing and line["took_ms"] >= sum(timing.values())
    assert not re.search("123454321|outputs|trace_id", json.dumps(log.lines) + "".join(log.texts))


def test_a_line_of_a_request_that_failed_in_a_model_names_it(client: Client, log: Lines) -> None:
    assert client.infer("fails", [[1, 2]]).status_code == 500
    assert (log.last["model"], log.last["version"]) == ("fails", 1)
    assert "infer_ms" not in log.last and "items" not in log.last


def test_a_line_names_no_model_that_is_not_there(client: Client, log: Lines) -> None:
    assert client.infer("nosuch", [[1, 2]]).status_code == 404
    assert log.last["message"].endswith(" 404") and not {"model", "version"} & log.last.keys()


def test_a_request_of_the_protocol_has_its_line_too(client: Client, log: Lines) -> None:
    body = {"inputs": [{"name": "in0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    answer = client.post("/v2/models/one/infer", json=body)
    assert answer.status_code == 200 and (log.last["model"], log.last["items"]) == ("one", 1)
    assert "infer;dur=" in answer.headers["server-timing"]


def test_an_answer_says_where_its_time_went(client: Client) -> None:
    answer = client.infer("one", [[1, 2]])
    timing = answer.json()["timing"]
    told = {
        name: float(dur) for name, dur in re.findall(r"(\w+);dur=([0-9.]+)(?:, |$)", answer.headers["server-timing"])
    }
    assert told == pytest.approx(
        {
            "queue": timing["queue_ms"],
            "pre": timing["decode_ms"] + timing["preprocess_ms"],
            "infer": timing["infer_ms"],
            "post": timing["postprocess_ms"],
        },
        abs=0.0021,
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/health/live", "/models", "/nope"])
def test_what_no_model_answered_has_no_times_of_one(path: str, client: Client) -> None:
    assert "server-timing" not in client.get(path).headers


def test_one_request_tells_nothing_of_the_one_before_it(client: Client, log: Lines) -> None:
    client.post("/models/one/infer", json={"inputs": [[1, 2]]}, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    answer = client.get("/models")
    assert "model" not in log.last and "trace_id" not in log.last and log.last["bytes_in"] == 0
    assert "traceparent" not in answer.headers


@pytest.mark.parametrize("flags", ["00", "01"])
def test_a_trace_goes_on_as_opentelemetry_reads_it(flags: str, client: Client, log: Lines) -> None:
    answer = client.get("/models", headers={"traceparent": f"00-{TRACE}-{SPAN}-{flags}"})
    carrier = {"traceparent": answer.headers["traceparent"]}
    span = trace.get_current_span(
        TraceContextTextMapPropagator().extract(carrier, context.Context())
    ).get_span_context()
    assert span.is_valid and f"{span.trace_id:032x}" == TRACE and f"{span.span_id:016x}" != SPAN
    assert span.trace_flags == int(flags)
    assert log.last["trace_id"] == TRACE and log.texts[-1].endswith(f" {TRACE}]")


def test_lines_of_a_fault_name_its_trace(client: Client, log: Lines) -> None:
    client.post("/models/fails/infer", json={"inputs": [[1, 2]]}, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    (line,) = [line for line in log.lines if line["level"] == "error"]
    assert line["trace_id"] == TRACE


@pytest.mark.parametrize(
    ("header", "is_valid"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"cc-{TRACE}-{SPAN}-01-what the future brings", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01.what", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE[:-1]}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}", False),
        (f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}", False),
        ("", False),
        ("nonsense", False),
    ],
)
def test_a_trace_that_is_not_valid_is_none(header: str, is_valid: bool, client: Client) -> None:
    answer = client.get("/health/live", headers={"traceparent": header})
    assert ("traceparent" in answer.headers) is is_valid and answer.status_code == 200


def test_of_two_traces_none_is_believed(client: Client) -> None:
    headers = [("traceparent", f"00-{TRACE}-{SPAN}-01"), ("traceparent", f"00-{TRACE[::-1]}-{SPAN}-01")]
    assert "traceparent" not in client.get("/health/live", headers=headers).headers
