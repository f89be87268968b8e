"""Tests that docs/operating.md and deploy/ use existing metrics."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.log import JsonFormatter
from app.metrics.collector import FAMILIES, Kind
from docs.generate_metrics import PAGE, with_table
from tests.app.client import serving
from tests.app.sample_models import elementwise, write_model
from tests.docs.pages import ROOT, blocks, page


def test_the_table_of_metrics_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python docs/generate_metrics.py"


def test_the_page_shows_the_configuration_of_deploy() -> None:
    (shown,) = [block.text for block in blocks(page("docs/operating.md")) if block.language == "yaml"]
    assert (ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8").endswith(shown)


def dashboard() -> dict[str, Any]:
    """Return the Grafana dashboard."""
    loaded: dict[str, Any] = json.loads((ROOT / "deploy/grafana/pnnx-serve.json").read_text(encoding="utf-8"))
    return loaded


def metrics_in(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics of a Prometheus expression, with the labels it selects by."""
    for name, selector in re.findall(r"\b((?:pnnx_serve|process|python)_\w+)(?:\{([^}]*)\})?", text):
        yield name, set(re.findall(r"(\w+)[=!]", selector))


def samples() -> dict[str, set[str]]:
    """Return the sample names of all metrics with their labels; Prometheus adds job and instance."""
    found: dict[str, set[str]] = {}
    for family in FAMILIES.values():
        labels = {"job", "instance", *family.labels}
        if family.kind is Kind.HISTOGRAM:
            found |= {f"{family.name}_sum": labels, f"{family.name}_count": labels}
            found[f"{family.name}_bucket"] = labels | {"le"}
        else:
            found[family.name] = labels
    return found


def test_the_dashboard_uses_existing_metrics_and_labels() -> None:
    known, board = samples(), dashboard()
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    expressions += [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    named = [(name, labels) for text in expressions for name, labels in metrics_in(text)]
    assert len(named) > 30
    assert [(name, labels) for name, labels in named if name not in known or not labels <= known[name]] == []
    for text in expressions:
        grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", text) for label in labels.split(", ")}
        assert grouped <= set().union(*(known[name] for name, _ in metrics_in(text))), text


def test_legends_of_the_dashboard_use_labels_of_their_queries() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            legend, text = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), target["expr"]
            kept = [set(labels.split(", ")) for labels in re.findall(r"\bby \(([^)]*)\)", text)]
            found = kept or [samples()[name] for name, _ in metrics_in(text)]
            assert all(legend <= labels for labels in found), target


def test_every_metric_is_on_the_dashboard_or_listed_here() -> None:
    text = json.dumps(dashboard())
    assert {name for name in FAMILIES if name not in text} == {
        "pnnx_serve_batch_mismatches_total",
        "pnnx_serve_batches_total",
        "pnnx_serve_compiler_defects_total",
        "pnnx_serve_response_cache_seconds_total",
        "pnnx_serve_sequences",
        "python_gc_collections_total",
        "python_gc_objects_collected_total",
    }


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def test_alerts_of_the_page_use_existing_metrics() -> None:
    section = page("docs/operating.md").partition("### Alerts")[2]
    named = list(metrics_in(section))
    assert named and all(labels <= samples()[name] for name, labels in named)


def test_the_page_shows_the_fields_of_an_access_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    section = page("docs/operating.md").partition("## Logs")[2]
    (shown,) = [json.loads(block.text) for block in blocks(section) if block.language == "json"]
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with caplog.at_level(logging.INFO), serving(tmp_path, access_log=True) as client:
        assert client.infer("one", [[1, 2]]).status_code == 200
    (record,) = [each for each in caplog.records if each.name == "app.access"]
    own = set(json.loads(JsonFormatter().format(record)))
    assert own | {"request_id", "trace_id"} == shown.keys()
