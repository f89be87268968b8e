"""Tests that all methods besides inference return the same as HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import tritonclient.grpc as triton
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from app.grpc.methods import Methods
from app.protocol.grpc.schema import SERVICE, methods
from tests.app.grpc.raw import call, channel, refused, request, tensor
from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import Front, listening

MODELS = ["simple", "shades", "boxes", "add", "fixed", "copy_bf16", "image"]


@pytest.fixture
def made(front: Front) -> Iterator[grpc.Channel]:
    with channel(front) as made:
        yield made


@pytest.fixture
def http(front: Front) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{front.port}", timeout=120) as http:
        yield http


def said(message: Any) -> Any:
    """Return a message as JSON, with 64-bit integers as numbers."""
    return _numbers(MessageToDict(message, preserving_proto_field_name=True))


def _filled(value: Any) -> Any:
    """Return JSON without zeros, false and empty values, which messages omit."""
    if isinstance(value, dict):
        found = {key: _filled(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    is_number = isinstance(value, str) and value.lstrip("-").isdigit()
    return int(value) if is_number else value


def test_every_method_has_its_row(front: Front) -> None:
    known = Methods(front.server.plane, None, None, None).rows  # type: ignore[arg-type]  # nothing is called
    assert {*known, "ModelInfer", "ModelStreamInfer"} == set(methods(SERVICE))


def test_metadata_of_the_server_is_that_of_http(made: grpc.Channel, http: httpx.Client) -> None:
    assert said(call(made, "ServerMetadata", b"")) == http.get("/v2").json()


@pytest.mark.parametrize("model", MODELS)
def test_metadata_and_configuration_of_a_model_are_those_of_http(
    made: grpc.Channel, http: httpx.Client, model: str
) -> None:
    asked = pb.ModelMetadataRequest(name=model)
    assert said(call(made, "ModelMetadata", asked)) == _numbers(http.get(f"/v2/models/{model}").json())
    found = said(call(made, "ModelConfig", asked))["config"]
    assert _filled(found) == _filled(_numbers(http.get(f"/v2/models/{model}/config").json()))


def test_a_dtype_that_the_protocol_has_no_word_for_is_left_out(made: grpc.Channel) -> None:
    assert said(call(made, "ModelConfig", pb.ModelConfigRequest(name="waves")))["config"]["input"][0]["dims"] == [2]


def test_statistics_are_those_of_http(made: grpc.Channel, http: httpx.Client) -> None:
    call(made, "ModelInfer", request("fixed", [bytes(12)], inputs=[tensor("in0", "FP32", (1, 3))]))
    (row,) = said(call(made, "ModelStatistics", pb.ModelStatisticsRequest(name="fixed")))["model_stats"]
    (expected,) = http.get("/v2/models/fixed/stats").json()["model_stats"]
    assert row["inference_count"] == expected["inference_count"] >= 1
    assert row["inference_stats"]["success"] == expected["inference_stats"]["success"]
    assert row["last_inference"] == expected["last_inference"]
    every = call(made, "ModelStatistics", b"").model_stats
    assert len(every) == len(http.get("/v2/models/stats").json()["model_stats"])
    assert refused(made, "ModelStatistics", pb.ModelStatisticsRequest(name="fixed", version="7"))[0] == "NOT_FOUND"


def test_the_index_is_that_of_http(made: grpc.Channel, http: httpx.Client) -> None:
    found = said(call(made, "RepositoryIndex", pb.RepositoryIndexRequest(ready=True)))["models"]
    rows = http.post("/v2/repository/index", json={"ready": True}).json()
    assert [(row["name"], row["state"]) for row in found] == [(row["name"], row["state"]) for row in rows]


def test_trace_settings_are_changed_and_put_back(made: grpc.Channel, http: httpx.Client) -> None:
    wanted = pb.TraceSettingRequest(model_name="simple")
    wanted.settings["trace_rate"].value.append("5")
    wanted.settings["trace_level"].value.append("TIMESTAMPS")
    assert said(call(made, "TraceSetting", wanted))["settings"]["trace_rate"] == {"value": [5]}
    assert http.get("/v2/models/simple/trace/setting").json()["trace_level"] == ["TIMESTAMPS"]
    for key in ("trace_rate", "trace_level"):
        wanted.settings[key].ClearField("value")
    assert said(call(made, "TraceSetting", wanted))["settings"]["trace_rate"] == {"value": [1000]}
    wanted.settings["no"].value.append("5")
    assert refused(made, "TraceSetting", wanted)[0] == "INVALID_ARGUMENT"
    assert refused(made, "TraceSetting", pb.TraceSettingRequest(model_name="nope"))[0] == "NOT_FOUND"


def test_log_settings_are_changed_and_put_back(made: grpc.Channel, http: httpx.Client) -> None:
    before = http.get("/v2/logging").json()
    wanted = pb.LogSettingsRequest()
    wanted.settings["log_verbose_level"].uint32_param = 1
    try:
        assert call(made, "LogSettings", wanted).settings["log_verbose_level"].uint32_param == 1
        wanted.settings["log_file"].string_param = "/tmp/x"
        assert refused(made, "LogSettings", wanted)[0] == "INVALID_ARGUMENT"
    finally:
        assert http.post("/v2/logging", json=before).json() == before


def test_models_are_loaded_and_unloaded_as_over_http(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with (
        listening(tmp_path, grpc_port=0, reload_interval_s=0) as front,
        triton.InferenceServerClient(f"127.0.0.1:{front.server.grpc_port}") as client,
    ):
        client.unload_model("one")
        assert not client.is_model_ready("one")
        assert client.get_model_repository_index().models[0].reason == "unloaded"
        client.load_model("one", config='{"labels": ["a", "b"]}')
        assert client.is_model_ready("one")
        assert client.get_model_config("one").config.output[0].label_filename == "labels.txt"
        with pytest.raises(InferenceServerException, match="found a file in the request"):
            client.load_model("one", config="{}", files={"file:1/model.pnnx.param": b"abc"})
        with pytest.raises(InferenceServerException, match="nope"):
            client.load_model("nope")


def test_what_is_not_there_is_told(made: grpc.Channel) -> None:
    assert refused(made, "ModelMetadata", pb.ModelMetadataRequest(name="nope"))[0] == "NOT_FOUND"
    assert not call(made, "ModelReady", pb.ModelReadyRequest(name="nope")).ready
    asked = pb.SystemSharedMemoryStatusRequest(name="region")
    assert refused(made, "SystemSharedMemoryStatus", asked)[0] == "NOT_FOUND"
    asked = pb.SystemSharedMemoryRegisterRequest(name="region", key="/k", byte_size=2**63)
    assert refused(made, "SystemSharedMemoryRegister", asked)[0] == "INVALID_ARGUMENT"
    assert refused(made, "NoSuchMethod", b"")[0] == "UNIMPLEMENTED"
    assert refused(made, "/inference.Other/ModelInfer", b"")[0] == "UNIMPLEMENTED"


def test_the_health_service_knows_the_server_and_its_models(made: grpc.Channel) -> None:
    check = "/grpc.health.v1.Health/Check"
    assert call(made, check, b"") == b"\x08\x01"
    assert call(made, check, b"\x0a\x06simple") == b"\x08\x01"
    assert refused(made, check, b"\x0a\x04nope")[0] == "NOT_FOUND"
