"""Descriptions, times, metrics and spans of a pipeline's steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from app.tracing.otel import OtelSpans
from tests.app.client import Client
from tests.app.pipelines.conftest import PICTURES, write_pipeline
from tests.app.pipelines.test_replacement import TEXT
from tests.app.sample_models import write_classifier, write_detector
from tests.app.sockets import Front, listening
from tests.patience import PATIENCE_S

PNG = {"content-type": "image/png"}


def picture() -> bytes:
    return (PICTURES / "shapes-a.png").read_bytes()


def test_the_details_have_the_steps_and_where_the_picture_goes(scans: Client) -> None:
    row = scans.get("/models/scan").json()
    assert row["task"] == "pipeline" and row["state"] == "ready"
    assert row["steps"] == [
        {"name": "find", "model": "shapes", "input": "picture"},
        {"name": "read", "model": "digits", "crop": "find.box"},
    ]
    assert [port["name"] for port in row["inputs"]] == ["picture"]
    assert row["preprocess"] == {"input": "picture"}
    assert [port["name"] for port in row["outputs"]] == ["find.out0", "read.out0"]


def test_the_graph_has_the_steps_in_every_format(scans: Client) -> None:
    graph = scans.get("/graph?model=scan").json()
    assert [(row["name"], row["type"], row["inputs"]) for row in graph["operators"]] == [
        ("picture", "pnnx.Input", []),
        ("find", "shapes", ["picture"]),
        ("read", "digits", ["find"]),
        ("answer", "pnnx.Output", ["find", "read"]),
    ]
    for form in ("svg", "dot", "mermaid", "text", "layout"):
        found = scans.get(f"/models/scan/graph?format={form}")
        assert found.status_code == 200 and "digits" in found.text
    assert "[[step]]" in scans.get("/graph?model=scan&format=param").text


@pytest.mark.parametrize("path", ["graph?profile=true", "tune", "profile", "report"])
def test_what_needs_a_graph_of_operators_is_refused(scans: Client, path: str) -> None:
    refused = scans.get(f"/models/scan/{path}")
    assert refused.status_code == 400
    assert "is a pipeline, which has no graph of operators" in refused.json()["error"]["message"]


def test_the_answer_has_the_time_of_each_step_that_ran(scans: Client) -> None:
    timing = scans.post("/models/scan/infer", content=picture(), headers=PNG).json()["timing"]
    steps = timing["steps_ms"]
    assert list(steps) == ["find", "read"] and min(steps.values()) > 0
    assert sum(steps.values()) <= timing["total_ms"] + 0.01
    none = scans.post("/models/scan/infer?score_threshold=1", content=picture(), headers=PNG).json()
    assert none["predictions"] == {"find": []} and list(none["timing"]["steps_ms"]) == ["find"]


def samples(client: Client, name: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    every = [sample for family in families for sample in family.samples if sample.name == name]
    every = [each for each in every if each.labels.get("outcome", "ok") == "ok"]
    return {(each.labels["model"], each.labels.get("step", "")): each.value for each in every}


def test_metrics_count_the_request_once_and_each_step(scans: Client) -> None:
    before = samples(scans, "pnnx_serve_step_seconds_count")
    requests = samples(scans, "pnnx_serve_requests_total")
    for _ in range(3):
        scans.post("/models/scan/infer", content=picture(), headers=PNG)
    after = samples(scans, "pnnx_serve_step_seconds_count")
    for step in ("find", "read"):
        assert after["scan", step] - before.get(("scan", step), 0) == 3
    counted = samples(scans, "pnnx_serve_requests_total")
    assert counted["scan", ""] - requests["scan", ""] == 3
    assert counted["shapes", ""] == requests["shapes", ""]


def test_v2_describes_inputs_and_outputs_of_the_steps(scans: Client) -> None:
    found = scans.get("/v2/models/scan").json()
    assert [each["name"] for each in found["inputs"]] == ["picture"]
    assert [(each["name"], each["shape"][0]) for each in found["outputs"]] == [("find.out0", -1), ("read.out0", -1)]
    assert scans.get("/v2/models/scan/config").json()["max_batch_size"] > 0
    assert scans.get("/v2/models/scan/stats").json()["model_stats"][0]["name"] == "scan"


def test_v2_answers_the_outputs_of_the_steps(scans: Client) -> None:
    content = picture()
    sent = {"name": "picture", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(content) + 4}}
    body = httpx.Response(200, json={"inputs": [sent], "outputs": [{"name": "read.out0"}]}).content
    answer = scans.post(
        "/v2/models/scan/infer",
        content=body + len(content).to_bytes(4, "little") + content,
        headers={"inference-header-content-length": str(len(body))},
    )
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    found = scans.post("/models/scan/infer", content=content, headers=PNG).json()["predictions"]["find"]
    assert output["name"] == "read.out0" and output["shape"] == [len(found), 10]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, InMemorySpanExporter]]:
    store, memory = tmp_path_factory.mktemp("spans"), InMemorySpanExporter()
    write_classifier(store)
    write_detector(store)
    write_pipeline(store, "scan", TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.http.main.open_spans", lambda _: OtelSpans([memory], SimpleSpanProcessor))
        with listening(store) as front:
            yield front, memory


def test_spans_show_the_steps(traced: tuple[Front, InMemorySpanExporter]) -> None:
    front, memory = traced
    with httpx.Client(base_url=f"http://127.0.0.1:{front.port}", timeout=PATIENCE_S) as http:
        assert http.post("/models/scan/infer", content=picture(), headers=PNG).status_code == 200
    spans: Any = memory.get_finished_spans()
    stages = [span.name for span in spans if span.parent is not None and span.kind.name == "INTERNAL"]
    assert stages == ["queue", "preprocess", "step find", "step kind"]


def test_the_file_of_the_store_is_not_part_of_a_message(scans: Client, tmp_path: Path) -> None:
    refused = scans.post("/models/scan/infer", content=b"GIF89a" + bytes(100), headers=PNG)
    assert refused.status_code == 400 and "/" not in refused.json()["error"]["message"]
