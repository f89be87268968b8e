"""Tests of GET /models and /models/{name}."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.models.registry.store import Store
from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, through, write_classifier, write_model


def test_the_list_has_a_row_for_every_model(zoo: Client) -> None:
    rows = zoo.get("/models").json()["models"]
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows) and len(rows) == 12
    assert rows[1] == {
        "name": "boxes", "task": "detection", "default": False, "state": "ready", "reason": None,
        "tags": {},
        "versions": [
            {"version": 1, "state": "ready", "reason": None, "backend": "compiled", "compile_failure": None,
             "remark": None},
        ],
    }  # fmt: skip


def test_a_model_tells_what_it_takes_and_gives(zoo: Client) -> None:
    row = zoo.get("/models/shades").json()
    assert row["inputs"] == [{"name": "in0", "shape": [1, 1, 2, 2], "dtype": "float32"}]
    assert row["outputs"] == [{"name": "out0", "shape": [1, 3], "dtype": "float32"}]
    assert row["labels"] == ["left", "right", "below"]
    assert row["batching"].keys() == {
        "enabled", "reason", "is_final", "max_batch_size", "batch_sizes", "max_queue_delay_us", "latency_ms", "limits"
    }  # fmt: skip
    assert row["batching"]["max_batch_size"] == 8 and row["versions"][0]["batching"] == row["batching"]
    assert (row["preprocess"]["size"], row["preprocess"]["color"]) == ([2, 2], "grey")


def test_dynamic_dimensions_are_null(zoo: Client) -> None:
    assert zoo.get("/models/add").json()["inputs"][1] == {"name": "in1", "shape": [None, 2], "dtype": "float32"}
    assert zoo.get("/models/add").json()["preprocess"] is None


def test_statistics_count_answers_items_and_failures(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    with serving(tmp_path) as client:
        before = client.get("/models/one").json()["versions"][0]["statistics"]
        client.infer("one", np.zeros((5, 3)).tolist())
        client.infer("one", [[1, 2, 3]])
        client.infer("one", [[1, 2]])
        client.infer("one", [["a"]])
        after = client.get("/models/one").json()["versions"][0]["statistics"]
    assert (before["requests"], before["last_request_at"]) == (0, None)
    assert (after["requests"], after["items"], after["failures"]) == (2, 6, {"input_mismatch": 2})
    assert after["sums"]["infer_ms"] > 0 and after["last_request_at"] > 0


def test_the_only_model_of_a_store_is_the_default(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path) as client:
        assert client.get("/models/shades").json()["default"] is True
        assert client.post("/infer", json={"inputs": np.zeros((1, 1, 2, 2)).tolist()}).status_code == 200


def test_a_failed_model_is_shown_without_what_it_has_not(tmp_path: Path) -> None:
    write_model(tmp_path, "bad", through("no.Such", "(1,2)f32"))
    with serving(tmp_path) as client:
        row = client.get("/models/bad").json()
    assert (row["state"], row["inputs"], row["preprocess"]) == ("failed", [], None)


def test_the_list_of_models_looks_for_the_default_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count searches for the default: one search per model took a minute with twenty thousand folders."""
    asked = []
    find = Store.default_name.fget
    monkeypatch.setattr(Store, "default_name", property(lambda store: asked.append(store) or find(store)))
    for number in range(5):
        write_model(tmp_path, f"m{number}", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, cache=False, backend="reference") as client:
        asked.clear()
        assert len(client.get("/models").json()["models"]) == 5
    assert len(asked) == 1
