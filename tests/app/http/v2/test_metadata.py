"""Tests of the protocol's metadata of server and models."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from app.models.model import Model
from app.protocol.v2.ports import WirePorts
from tests.app.client import Client, serving
from tests.app.http.v2.messages import refused, send, tensor
from tests.app.sample_models import elementwise, write_model
from tests.app.v2_models import write_simple


def test_health_is_json_that_says_so(v2: Client) -> None:
    assert v2.get("/v2/health/live").json() == {"live": True}
    assert v2.get("/v2/health/ready").json() == {"ready": True, "live": True}
    assert v2.get("/v2/models/simple/ready").json() == {"name": "simple", "ready": True}
    refused(v2.get("/v2/models/nope/ready"), 404)


def test_a_server_whose_model_failed_is_not_ready_and_says_why(tmp_path: Path) -> None:
    write_simple(tmp_path)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    with serving(tmp_path) as client:
        answer = client.get("/v2/health/ready")
        assert answer.status_code == 503 and answer.json()["ready"] is False and "broken" in answer.json()["reason"]
        refused(client.get("/v2/models/broken/ready"), 503)
        assert client.get("/v2/models").json() == {"models": ["simple"]}


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_server_metadata_names_what_of_the_protocol_there_is(v2: Client, path: str) -> None:
    found = v2.get(path).json()
    assert found["name"] == "pnnx-serve" and found["version"]
    assert {"binary_tensor_data", "classification", "model_configuration", "statistics"} <= set(found["extensions"])
    assert not any("shared_memory" in extension for extension in found["extensions"])


def test_model_metadata_has_full_shapes_and_the_file_s_names(v2: Client) -> None:
    found = v2.get("/v2/models/simple").json()
    assert (found["name"], found["versions"]) == ("simple", ["1"])
    assert found["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]}]
    assert found["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 16]}]
    assert v2.get("/v2/models/simple/versions/1").json() == found


def test_how_a_model_takes_batches_is_found_out_once_and_not_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by: list[threading.Thread] = []

    class Watched(WirePorts):
        def __init__(self, model: Model) -> None:
            made_by.append(threading.current_thread())
            super().__init__(model)

    monkeypatch.setattr("app.protocol.v2.ports.WirePorts", Watched)
    write_model(tmp_path, "fixed", elementwise("add(@0,1)", "(1,3)f32"))
    with serving(tmp_path, warmup=False) as client:
        assert client.get("/v2/models/fixed/ready").status_code == 200 and not made_by
        send(client, "fixed", {"inputs": [tensor("in0", "FP32", np.ones((4, 3), np.float32))]})
        client.get("/v2/models/fixed")
    assert len(made_by) == 1 and made_by[0] is not threading.main_thread()


def test_a_batch_the_file_fixes_and_the_engine_does_not_is_open(v2: Client) -> None:
    assert v2.get("/v2/models/fixed").json()["inputs"][0]["shape"] == [-1, 3]
    answer = send(v2, "fixed", {"inputs": [tensor("in0", "FP32", np.ones((4, 3), np.float32))]})
    assert answer.json()["outputs"][0]["shape"] == [4, 3]


def test_the_configuration_leaves_the_batch_out_of_its_shapes(v2: Client) -> None:
    found = v2.get("/v2/models/simple/config").json()
    assert found["max_batch_size"] > 0
    assert found["input"] == [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [16]}]
    assert found["output"][0]["dims"] == [16] and found["version_policy"] == {"latest": {"num_versions": 1}}


def test_without_a_batch_the_configuration_has_whole_shapes(tmp_path: Path) -> None:
    write_model(tmp_path, "pair", elementwise("add(@0,@1)", "(2,3)f32", "(1,3)f32"))
    with serving(tmp_path) as client:
        config, metadata = (client.get(f"/v2/models/pair{end}").json() for end in ("/config", ""))
    assert config["max_batch_size"] == 0
    assert [row["dims"] for row in config["input"]] == [row["shape"] for row in metadata["inputs"]] == [[2, 3], [1, 3]]


def test_statistics_count_requests_items_batches_and_failures(tmp_path: Path) -> None:
    write_simple(tmp_path)
    with serving(tmp_path) as client:
        for items in (1, 2, 2):
            rows = [tensor("INPUT0", "FP32", np.ones((items, 16), np.float32))]
            assert send(client, "simple", {"inputs": rows}).status_code == 200
        refused(send(client, "simple", {"inputs": [tensor("INPUT0", "FP32", np.ones((1, 7), np.float32))]}))
        (row,) = client.get("/v2/models/simple/stats").json()["model_stats"]
        assert client.get("/v2/models/stats").json()["model_stats"][0]["name"] == "simple"
        assert client.get("/v2/models/simple/versions/1/stats").json()["model_stats"] == [row]
        refused(client.get("/v2/models/simple/versions/2/stats"), 404)
    assert (row["inference_count"], row["execution_count"], row["version"]) == (5, 3, "1")
    figures = row["inference_stats"]
    assert set(figures) == {
        "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss",
    }  # fmt: skip
    assert figures["success"]["count"] == figures["queue"]["count"] == 3 and figures["fail"]["count"] == 1
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert abs(figures["success"]["ns"] - sum(figures[part]["ns"] for part in parts)) < 10
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in row["batch_stats"]] == [(1, 1), (2, 2)]


def test_a_model_called_stats_is_reached_by_version(tmp_path: Path) -> None:
    write_model(tmp_path, "stats", elementwise("add(@0,1)", "(?,3)f32"))
    with serving(tmp_path) as client:
        assert "model_stats" in client.get("/v2/models/stats").json()
        assert client.get("/v2/models/stats/versions/1").json()["name"] == "stats"
