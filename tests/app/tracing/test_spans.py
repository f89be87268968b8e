"""Tests of spans as an exporter receives them."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tritonclient.grpc import service_pb2 as pb

from app.settings import Settings, SettingsError
from app.tracing import check_spans, open_spans
from app.tracing.otel import OtelSpans, exporters
from tests.app.grpc.raw import call, channel, refused, request, tensor
from tests.app.http.test_logs import Lines
from tests.app.process.test_server import ROOT, process
from tests.app.sample_models import elementwise, through, write_model
from tests.app.sockets import Front, listening
from tests.patience import PATIENCE_S, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
STAGES = ["queue", "preprocess", "infer", "postprocess"]
GOOD = request("one", [bytes(8)], inputs=[tensor("in0", "FP32", (1, 2))])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("spans")
    write_model(store, "one", elementwise("add(@0,1)", "(?,2)f32"))
    write_model(store, "fail", through("test.Fail", "(?,2)f32"))
    return store


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[tuple[Front, InMemorySpanExporter]]:
    memory = InMemorySpanExporter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.http.main.open_spans", lambda _: OtelSpans([memory], SimpleSpanProcessor))
        with listening(store, grpc_port=0, access_log=True) as front:
            yield front, memory


@pytest.fixture
def memory(server: tuple[Front, InMemorySpanExporter]) -> InMemorySpanExporter:
    server[1].clear()
    return server[1]


@pytest.fixture
def http(server: tuple[Front, InMemorySpanExporter]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server[0].port}", timeout=PATIENCE_S) as http:
        yield http


@pytest.fixture
def log() -> Iterator[Lines]:
    lines, logger = Lines(), logging.getLogger("app.access")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(level)


@pytest.fixture
def made(server: tuple[Front, InMemorySpanExporter]) -> Iterator[grpc.Channel]:
    with channel(server[0]) as made:
        yield made


def told(memory: InMemorySpanExporter, requests: int = 1) -> Sequence[ReadableSpan]:
    """Return the spans once so many requests are over, which is after their answers."""
    until(lambda: sum(span.kind is SpanKind.SERVER for span in memory.get_finished_spans()) >= requests)
    return memory.get_finished_spans()


def whole(memory: InMemorySpanExporter) -> tuple[ReadableSpan, list[ReadableSpan]]:
    """Return the request's span, and its child spans by time."""
    *inner, outer = sorted(told(memory), key=lambda span: span.kind is SpanKind.SERVER)
    assert outer.kind is SpanKind.SERVER
    return outer, sorted(inner, key=lambda span: (span.start_time, STAGES.index(span.name)))


def check_stages(outer: ReadableSpan, inner: list[ReadableSpan]) -> None:
    assert [span.name for span in inner] == STAGES
    at = outer.start_time or 0
    for span in inner:
        assert span.parent is not None and span.parent.span_id == outer.context.span_id
        assert span.context.trace_id == outer.context.trace_id
        assert span.start_time is not None and span.end_time is not None and at <= span.start_time <= span.end_time
        at = span.end_time
    assert at <= (outer.end_time or 0)


def test_a_request_is_a_span_of_its_client_s_trace_with_one_for_each_stage(
    http: httpx.Client, memory: InMemorySpanExporter
) -> None:
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    answer = http.post("/models/one/infer", json={"inputs": [[1, 2]]}, headers=sent)
    outer, inner = whole(memory)
    check_stages(outer, inner)
    assert f"{outer.context.trace_id:032x}" == TRACE and outer.parent is not None
    assert (f"{outer.parent.span_id:016x}", outer.parent.is_remote) == (PARENT, True)
    assert answer.headers["traceparent"] == f"00-{TRACE}-{outer.context.span_id:016x}-01"
    said = dict(outer.attributes or {})
    assert outer.name == "POST one" and said["http.response.status_code"] == 200 and said["request.id"] == "mine"
    assert said["url.path"] == "/models/one/infer" and said["inference.model"] == "one" and said["inference.items"] == 1
    (row,) = re.findall(r"infer;dur=([\d.]+)", answer.headers["server-timing"])
    span = inner[2]
    assert abs((span.end_time or 0) - (span.start_time or 0) - float(row) * 1e6) < 2_000


def test_a_call_over_grpc_is_one_too(made: grpc.Channel, memory: InMemorySpanExporter) -> None:
    call(made, "ModelInfer", GOOD, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
    outer, inner = whole(memory)
    check_stages(outer, inner)
    assert f"{outer.context.trace_id:032x}" == TRACE and outer.name == "ModelInfer one"
    said = dict(outer.attributes or {})
    assert (said["rpc.service"], said["rpc.grpc.status_code"]) == ("inference.GRPCInferenceService", 0)


def test_the_log_names_the_trace_that_a_request_begins(
    http: httpx.Client, made: grpc.Channel, memory: InMemorySpanExporter, log: Lines
) -> None:
    answer = http.post("/models/one/infer", json={"inputs": [[1, 2]]})
    refusal = http.post("/models/one/infer", json={"inputs": [[1]]})
    call(made, "ModelInfer", GOOD)
    found = [span for span in told(memory, 3) if span.kind is SpanKind.SERVER]
    until(lambda: len(log.of("app.access")) == 3)
    lines = log.of("app.access")
    ids = [(span.attributes or {})["request.id"] for span in found]
    assert ids == [line["request_id"] for line in lines]
    assert [f"{span.context.trace_id:032x}" for span in found] == [line["trace_id"] for line in lines]
    assert len({line["trace_id"] for line in lines}) == 3
    # The client asked for no trace, so it is told of none.
    assert "traceparent" not in answer.headers and "traceparent" not in refusal.headers


def test_a_trace_that_is_not_recorded_is_logged_all_the_same(
    http: httpx.Client, memory: InMemorySpanExporter, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    http.post("/models/one/infer", json={"inputs": [[1, 2]]}, headers=headers)
    until(lambda: bool(log.of("app.access")))
    assert log.of("app.access")[0]["trace_id"] == TRACE and memory.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", "/infer?model=one", "/infer"),
        ("POST", "/models/one/infer", "/models/{name}/infer"),
        ("PUT", "/models/models/infer", "/models/{name}/infer"),
        ("POST", "/v2/models/one/infer", "/v2/models/{name}/infer"),
        ("POST", "/v2/models/one/versions/1/infer", "/v2/models/{name}/versions/{version}/infer"),
        ("GET", "/v2/models/one/versions/1/config", "/v2/models/{name}/versions/{version}/config"),
        ("GET", "/v2", "/v2"),
        ("GET", "/models", "/models"),
        ("HEAD", "/models/one", "/models/{name}"),
        ("GET", "/models/one/graph", "/models/{name}/graph"),
        ("DELETE", "/models/one/infer", "/models/{name}/infer"),
        ("GET", "/nowhere", None),
        ("GET", "/v2/nowhere/infer", None),
    ],
)
def test_a_span_names_the_route_that_answered(
    method: str, path: str, route: str | None, http: httpx.Client, memory: InMemorySpanExporter
) -> None:
    http.request(method, path, json={"inputs": [[1, 2]]} if method in ("POST", "PUT") else None)
    (span,) = [span for span in told(memory) if span.kind is SpanKind.SERVER]
    assert dict(span.attributes or {}).get("http.route") == route


def test_without_a_trace_a_request_begins_one(http: httpx.Client, memory: InMemorySpanExporter) -> None:
    for _ in range(2):
        http.post("/v2/models/one/infer", content=bytes(8), headers={"inference-header-content-length": "0"})
    found = [span for span in told(memory, 2) if span.kind is SpanKind.SERVER]
    assert len({span.context.trace_id for span in found}) == 2 and all(span.parent is None for span in found)


@pytest.mark.parametrize(
    ("ask", "name", "status"),
    [
        (lambda http: http.post("/models/fail/infer", json={"inputs": [[1, 2]]}), "POST fail", StatusCode.ERROR),
        (lambda http: http.post("/models/one/infer", json={"inputs": [[1]]}), "POST one", StatusCode.UNSET),
        (lambda http: http.post("/models/nope/infer", json={"inputs": [[1]]}), "POST", StatusCode.UNSET),
        (lambda http: http.get("/models?key=secret"), "GET", StatusCode.UNSET),
    ],
)
def test_what_is_not_answered_has_no_stages_and_our_faults_are_errors(
    http: httpx.Client,
    memory: InMemorySpanExporter,
    ask: Callable[[httpx.Client], httpx.Response],
    name: str,
    status: StatusCode,
) -> None:
    ask(http)
    (span,) = told(memory)
    assert (span.name, span.status.status_code) == (name, status)
    assert "secret" not in str(span.to_json())


def test_a_sender_that_records_nothing_has_nothing_recorded(
    http: httpx.Client, made: grpc.Channel, memory: InMemorySpanExporter
) -> None:
    unsampled = f"00-{TRACE}-{PARENT}-00"
    assert http.post("/models/one/infer", json={"inputs": [[1, 2]]}, headers={"traceparent": unsampled}).is_success
    assert refused(made, "ModelMetadata", b"", metadata=(("traceparent", unsampled),))
    assert memory.get_finished_spans() == ()


def test_probes_are_neither_traced_nor_logged(
    http: httpx.Client, made: grpc.Channel, memory: InMemorySpanExporter, log: Lines
) -> None:
    paths = ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "/metrics")
    for path in (*paths, "/v2/models/one/ready", "/v2/models/one/versions/1/ready", "/v2/models/nope/ready"):
        http.get(path)
    call(made, "ServerReady", b"")
    call(made, "ModelReady", pb.ModelReadyRequest(name="one"))
    http.get("/models/ready")  # a model's page
    until(lambda: bool(log.of("app.access")))
    assert [line["message"] for line in log.of("app.access")] == ["GET /models/ready 404"]
    assert [span.attributes["url.path"] for span in told(memory)] == ["/models/ready"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": "console"}, ["ConsoleSpanExporter"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["ConsoleSpanExporter", "OTLPSpanExporter"]),
        ({}, ["OTLPSpanExporter"]),
    ],
)
def test_exporters_are_those_of_the_environment(
    environ: dict[str, str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    found = exporters()
    assert [type(each).__name__ for each in found] == expected
    for each in found:
        each.shutdown()


@pytest.mark.parametrize(
    ("key", "value"), [("OTEL_TRACES_EXPORTER", "zipkin9"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "pigeon")]
)
def test_an_exporter_that_there_is_not_is_told(key: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(key, value)
    with pytest.raises(SettingsError, match=f"{key}.*{value}"):
        check_spans(Settings(otel=True))


def test_without_the_extra_a_server_that_shall_trace_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "app.tracing.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    for ask in (check_spans, open_spans):
        assert ask(Settings()) is None
        with pytest.raises(SettingsError, match=r"pip install 'pnnx-serve\[otel\]'"):
            ask(Settings(otel=True))


def test_nothing_of_the_sdk_is_loaded_where_it_is_not_asked_for() -> None:
    code = "import sys, app.process.server; sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=PATIENCE_S, check=False).returncode == 0


@pytest.mark.slow
def test_setting_otel_sends_spans_where_the_environment_says_and_what_is_left_at_the_end(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    with process(store, otel="true") as server:
        assert httpx.post(f"{server.url}/models/one/infer", json={"inputs": [[1, 2]]}, timeout=PATIENCE_S).is_success
        server.signal()
        out, log = server._process.communicate(timeout=PATIENCE_S)
    assert server._process.returncode == 0, log
    names = re.findall(r'"name": "([^"]+)"', out)
    assert "POST one" in names and set(STAGES) <= set(names)
    assert json.dumps("ours") in out


@pytest.mark.slow
def test_a_collector_that_is_not_there_holds_up_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert "OTEL_TRACES_EXPORTER" not in os.environ
    with process(store, otel="true") as server:
        assert httpx.post(f"{server.url}/models/one/infer", json={"inputs": [[1, 2]]}, timeout=PATIENCE_S).is_success
        server.signal()
        assert server.wait()[0] == 0
