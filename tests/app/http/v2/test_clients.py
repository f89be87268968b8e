"""Tests with third-party clients against a server on a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.app.sockets import listening
from tests.app.v2_models import write_simple
from tests.patience import PATIENCE_S

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
RECORDED = Path(__file__).parents[5] / "shared" / "spec" / "oip-recorded"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    store = tmp_path_factory.mktemp("simple")
    write_simple(store)
    with listening(store) as front:
        yield front.port


@pytest.fixture
def client(port: int) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


def given(array: np.ndarray = X, name: str = "INPUT0", *, binary: bool = True) -> list[triton.InferInput]:
    tensor = triton.InferInput(name, array.shape, {"f": "FP32", "d": "FP64"}[array.dtype.char])
    tensor.set_data_from_numpy(array, binary_data=binary)
    return [tensor]


def test_tritonclient_finds_out_about_server_and_model(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("simple") and not client.is_model_ready("nope")
    assert client.get_model_metadata("simple", "1")["inputs"][0]["shape"] == [-1, 16]
    assert client.get_model_config("simple")["input"][0]["dims"] == [16]
    assert client.get_model_repository_index()[0]["state"] == "READY"
    assert client.get_inference_statistics("simple")["model_stats"][0]["version"] == "1"
    assert client.get_trace_settings()["trace_level"] == ["OFF"] and client.get_log_settings()["log_error"]
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()


def test_tritonclient_unloads_and_loads_a_model(client: triton.InferenceServerClient) -> None:
    client.unload_model("simple")
    assert not client.is_model_ready("simple") and client.is_server_ready()
    row = {"name": "simple", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    assert client.get_model_repository_index() == [row]
    with pytest.raises(InferenceServerException, match="not loaded"):
        client.infer("simple", given())
    with pytest.raises(InferenceServerException, match="max_batch_size"):
        client.load_model("simple", config='{"max_batch_size":4}')
    with pytest.raises(InferenceServerException, match="found a file in the request"):
        client.load_model("simple", config="{}", files={"file:1/model.pnnx.bin": b"abc"})
    with pytest.raises(InferenceServerException, match="not in the store"):
        client.load_model("nope")
    client.load_model("simple")
    assert client.is_model_ready("simple") and client.is_model_ready("simple", "1")
    np.testing.assert_array_equal(client.infer("simple", given()).as_numpy("OUTPUT0"), X + 1)
    client.load_model("simple", config='{"labels": ["one", "two"]}')
    client.load_model("simple")


@pytest.mark.parametrize("answers_binary", [True, False])
@pytest.mark.parametrize("sends_binary", [True, False])
def test_tritonclient_runs_a_model(
    client: triton.InferenceServerClient, sends_binary: bool, answers_binary: bool
) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=answers_binary)]
    result = client.infer("simple", given(binary=sends_binary), outputs=outputs, request_id="7", timeout=9_000_000)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X + 1)
    assert result.get_response()["id"] == "7"


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_tritonclient_packs_and_unpacks(client: triton.InferenceServerClient, packing: str) -> None:
    packed = {"request_compression_algorithm": packing, "response_compression_algorithm": packing}
    np.testing.assert_array_equal(client.infer("simple", given(), **packed).as_numpy("OUTPUT0"), X + 1)


def test_tritonclient_asks_for_classes(client: triton.InferenceServerClient) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT0", class_count=1)]
    found = client.infer("simple", given(), outputs=outputs).as_numpy("OUTPUT0")
    assert [text.split(b":")[1:] for text in found.ravel()] == [[b"15", b"label15"]] * 3


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [("WRONG", X, "unexpected inference input"), ("INPUT0", X.astype(np.float64), "data-type is 'FP64'"),
     ("INPUT0", X[0], "batch dimension is missing")],
)  # fmt: skip
def test_tritonclient_is_told_what_is_wrong(
    client: triton.InferenceServerClient, name: str, array: np.ndarray, said: str
) -> None:
    with pytest.raises(InferenceServerException, match=said) as refused:
        client.infer("simple", given(array, name))
    assert refused.value.status() == "400"


def test_tritonclient_runs_many_at_once(port: int) -> None:
    async def many() -> list[np.ndarray]:
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert await client.is_model_ready("simple")
            answers = await asyncio.gather(*(client.infer("simple", given(X + i)) for i in range(20)))
            return [answer.as_numpy("OUTPUT0") for answer in answers]

    for index, found in enumerate(asyncio.run(many())):
        np.testing.assert_array_equal(found, X + index + 1)


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded exchanges are not beside the project")
def test_what_real_clients_have_sent_is_answered_as_recorded(port: int) -> None:
    done = subprocess.run(
        [sys.executable, RECORDED / "replay.py", f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout.count("ok  ") > 10, done.stdout + done.stderr


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded exchanges are not beside the project")
def test_what_tritonclient_says_to_the_repository_is_answered_as_recorded(port: int) -> None:
    def exchange(name: str) -> tuple[int, bytes]:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            connection.sendall((RECORDED / f"{name}.request.bin").read_bytes())
            answer = HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read()

    def recorded(name: str) -> bytes:
        return (RECORDED / f"{name}.response.bin").read_bytes().partition(b"\r\n\r\n")[2]

    ready, unloaded = json.loads(recorded("11-tritonclient-repository-index"))
    for name, row in (("14-tritonclient-unload", {**unloaded, "name": "simple"}), ("12-tritonclient-load", ready)):
        assert exchange(name) == (200, recorded(name))
        assert json.loads(exchange("11-tritonclient-repository-index")[1]) == [row]
    status, said = exchange("13-tritonclient-load-config-and-file")  # here files come from the store alone
    assert status == 400 and b"found a file in the request" in said
