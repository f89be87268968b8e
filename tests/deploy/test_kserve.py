"""Tests of deploy/kserve against KServe's schemas, and of the runtime on the folders that it mounts."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import pytest

from app.metrics.collector import FAMILIES
from app.settings import Settings
from tests.app.client import serving
from tests.app.process.test_server import Process, process
from tests.deploy.kustomize import Object, documents
from tests.deploy.test_kubernetes import SPARE_S, environment, seconds
from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy/kserve"
SCHEMAS = json.loads((ROOT / "tests/data/kserve/schemas.json").read_text())
DIGITS = ROOT / "model_store/digits"


def strict(schema: Any) -> Any:
    """Return the schema with unknown keys refused, as in a cluster."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if "properties" in found and "type" in found and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found


def validator(plural: str) -> jsonschema.Draft202012Validator:
    schema = strict(SCHEMAS["schemas"][plural])
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(schema)


def of(name: str) -> Object:
    (found,) = documents(FOLDER / f"{name}.yaml")
    return found


@pytest.mark.parametrize("name", ["clusterservingruntime", "inferenceservice"])
def test_kserve_accepts_the_object(name: str) -> None:
    validator(f"{name}s").validate(of(name))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("clusterservingruntime", ["spec", "containers", 0, "comand"]),
        ("inferenceservice", ["spec", "predictor", "model", "storageURI"]),
        ("inferenceservice", ["spec", "predictor", "autoScaling", "metrics", 0, "external", "metric", "adress"]),
    ],
)
def test_the_definitions_reject_a_misspelt_key(name: str, path: list[Any]) -> None:
    found = of(name)
    *parents, last = path
    place: Any = found
    for key in parents:
        place = place[key]
    place[last] = "x"
    with pytest.raises(jsonschema.ValidationError):
        validator(f"{name}s").validate(found)


def test_the_definitions_name_their_source() -> None:
    assert re.fullmatch(r"https://github.com/kserve/kserve/tree/[0-9a-f]{40}/config/crd/full", SCHEMAS["source"])
    assert SCHEMAS["licence"] == "Apache-2.0"


def test_the_service_requests_a_format_and_protocol_of_the_runtime() -> None:
    model, runtime = of("inferenceservice")["spec"]["predictor"]["model"], of("clusterservingruntime")["spec"]
    assert model["modelFormat"]["name"] in {each["name"] for each in runtime["supportedModelFormats"]}
    assert model["protocolVersion"] in runtime["protocolVersions"]


@pytest.mark.parametrize("name", ["onnx", "pytorch"])
def test_formats_of_other_runtimes_are_served_on_request_only(name: str) -> None:
    (found,) = [each for each in of("clusterservingruntime")["spec"]["supportedModelFormats"] if each["name"] == name]
    assert not found["autoSelect"] and "priority" not in found


def test_the_runtime_ends_within_the_grace_period_of_the_service() -> None:
    (container,) = of("clusterservingruntime")["spec"]["containers"]
    grace_s = of("inferenceservice")["spec"]["predictor"]["terminationGracePeriodSeconds"]
    assert seconds(container) + SPARE_S <= grace_s


def test_keda_queries_existing_metrics_and_gets_the_threshold() -> None:
    service = of("inferenceservice")
    (metric,) = service["spec"]["predictor"]["autoScaling"]["metrics"]
    query, name = metric["external"]["metric"]["query"], service["metadata"]["name"]
    named = re.findall(r"\b(pnnx_serve_\w+)\{(\w+)=\"(\w+)\"\}", query)
    assert {each for each, _, _ in named} == {"pnnx_serve_running_requests", "pnnx_serve_queued_requests"}
    assert all(label in FAMILIES[each].labels and value == name for each, label, value in named)
    # getKedaMetrics in KServe's keda_reconciler.go reads Target.Value only; other targets become a threshold of 0.
    assert metric["external"]["target"].keys() == {"type", "value"}


def test_prometheus_scrapes_the_port_of_the_runtime() -> None:
    spec = of("clusterservingruntime")["spec"]
    (container,) = spec["containers"]
    assert spec["annotations"]["prometheus.kserve.io/path"] == "/metrics"
    port = spec["annotations"]["prometheus.kserve.io/port"]
    assert f"--port={port}" in container["args"] and container["ports"][0]["containerPort"] == int(port)


def test_the_runtime_uses_the_image_user_and_can_write_its_folders() -> None:
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    spec = of("clusterservingruntime")["spec"]
    (container,) = spec["containers"]
    assert f"\nUSER {container['securityContext']['runAsUser']}:" in stage
    assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"]["runAsNonRoot"]
    assert {"/tmp", environment(container)["PNNX_SERVE_CACHE_DIR"]} == {
        each["mountPath"] for each in container["volumeMounts"]
    }
    assert container["resources"]["requests"] == container["resources"]["limits"]


def runtime(mounted: Path, name: str, tmp_path: Path) -> Any:
    """Run the server with the arguments of the runtime, as KServe fills them in."""
    (container,) = of("clusterservingruntime")["spec"]["containers"]
    words = [word.replace("{{.Name}}", name) for word in container["args"][1:]]
    flags = dict(word.removeprefix("--").split("=") for word in words)
    assert flags.pop("store") == "/mnt/models" and flags.pop("port") == "8080"
    own = {f"{key.replace('-', '_')}": value for key, value in flags.items()}
    set_by_pod = Settings.from_env(environment(container))
    assert set_by_pod.request_timeout_s == 20
    return process(
        mounted, **{**own, "host": "127.0.0.1", "cache_dir": tmp_path / "cache", "threads": 1, "backend": "auto"}
    )


def ask(server: Process, path: str, body: object | None = None) -> tuple[int, Any]:
    with httpx.Client(trust_env=False, timeout=120) as http:
        answer = http.get(server.url + path) if body is None else http.post(server.url + path, json=body)
    return answer.status_code, answer.json()


def test_a_single_onnx_file_in_the_mount_is_served_under_the_service_name(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    from tests.engine.onnx_files.models import model, node, save, value

    weights = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save(tmp_path, model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 2])], [value("y", ["n", 3])], weights))
    (container,) = of("clusterservingruntime")["spec"]["containers"]
    assert "--model-name={{.Name}}" in container["args"]
    with serving(tmp_path, model_name="my-net", warmup=False) as client:
        assert client.get("/v2/models/my-net/ready").status_code == 200
        tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
        answer = client.post("/v2/models/my-net/infer", json={"inputs": [tensor]}).json()
        (output,) = answer["outputs"]
        assert (answer["model_name"], output["shape"], output["data"]) == ("my-net", [1, 3], [6.0, 9.0, 12.0])
        assert "v1" in of("clusterservingruntime")["spec"]["protocolVersions"]
        rows = client.post("/v1/models/my-net:predict", json={"instances": [[1, 2]]}).json()
        assert rows == {"predictions": [[6.0, 9.0, 12.0]]}
        # KEDA's query selects the metrics of this server by the name of the service.
        page = client.get("/metrics").text
        for name in ("running_requests", "queued_requests"):
            assert re.search(rf'^pnnx_serve_{name}\{{model="my-net"[^}}]*\}} \S+$', page, re.M)


@pytest.mark.slow
def test_a_single_pair_in_the_mount_is_served_under_the_service_name(tmp_path: Path) -> None:
    mounted = tmp_path / "mnt"
    mounted.mkdir()
    for end in ("param", "bin"):
        shutil.copy(DIGITS / f"1/model.pnnx.{end}", mounted / f"digits_v7.pnnx.{end}")
    shutil.copy(DIGITS / "config.toml", mounted)
    labels = re.findall(r'^labels = "(\S+)"', (DIGITS / "config.toml").read_text(), re.M)
    for name in labels:
        shutil.copy(DIGITS / name, mounted)
    zeros = np.zeros((1, 1, 16, 16), np.float32)
    with runtime(mounted, "my-digits", tmp_path) as server:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/my-digits/ready", "/health/ready"):
            assert ask(server, path)[0] == 200, path
        status, metadata = ask(server, "/v2/models/my-digits")
        assert (status, metadata["name"], metadata["versions"]) == (200, "my-digits", ["1"])
        tensor = {"name": "in0", "shape": list(zeros.shape), "datatype": "FP32", "data": zeros.ravel().tolist()}
        status, answer = ask(server, "/v2/models/my-digits/infer", {"inputs": [tensor]})
        assert status == 200 and answer["outputs"][0]["shape"] == [1, 10]
        status, plain = ask(server, "/infer", {"inputs": zeros.tolist()})
        assert status == 200 and plain["model"] == "my-digits" and len(plain["predictions"]) > 0
        assert ask(server, "/v2/models/digits_v7")[0] == 404
    assert os.listdir(tmp_path / "cache")
