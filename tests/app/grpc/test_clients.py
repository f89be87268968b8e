"""Tests with a third-party client, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import queue
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException, shared_memory

from tests.app.grpc.conftest import calling
from tests.app.sockets import Front, listening
from tests.app.v2_models import write_running_sum, write_simple
from tests.patience import PATIENCE_S

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)


def given(array: np.ndarray = X, name: str = "INPUT0", datatype: str = "FP32") -> list[triton.InferInput]:
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array)
    return [tensor]


def test_it_finds_out_about_server_and_model(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("simple") and client.is_model_ready("simple", "1")
    assert client.get_server_metadata().name == "pnnx-serve"
    assert list(client.get_model_metadata("simple", "1").inputs[0].shape) == [-1, 16]
    assert list(client.get_model_config("simple").config.input[0].dims) == [16]
    assert {each.state for each in client.get_model_repository_index().models} == {"READY"}
    assert client.get_inference_statistics("simple").model_stats[0].version == "1"
    assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]
    assert client.get_log_settings().settings["log_error"].bool_param
    assert not client.get_system_shared_memory_status().regions
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()


@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
def test_it_runs_a_model(client: triton.InferenceServerClient, packing: str | None) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT0")]
    result = client.infer(
        "simple", given(), outputs=outputs, request_id="7", timeout=9_000_000, priority=3, compression_algorithm=packing
    )
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X + 1)
    assert result.get_response().id == "7" and result.get_response().model_version == "1"


def test_it_asks_for_classes(client: triton.InferenceServerClient) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT0", class_count=1)]
    found = client.infer("simple", given(), outputs=outputs).as_numpy("OUTPUT0")
    assert [text.split(b":")[1:] for text in found.ravel()] == [[b"15", b"label15"]] * 3


def test_it_streams_and_gets_each_answer_in_order_and_one_for_what_is_wrong(
    client: triton.InferenceServerClient,
) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for index in range(20):
        name = "simple" if index != 7 else "nope"
        client.async_stream_infer(name, given(X + index), request_id=str(index), enable_empty_final_response=index == 3)
    for index in range(20):
        result, error = answers.get(timeout=PATIENCE_S)
        if index == 7:
            assert "nope" in str(error)
            continue
        assert result.get_response().id == str(index)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), X + index + 1)
        parameters = result.get_response().parameters
        assert ("triton_final_response" in parameters) == (index == 3)
    client.stop_stream()


def test_it_reads_and_writes_shared_memory(tmp_path: Path) -> None:
    write_simple(tmp_path)
    made = shared_memory.create_shared_memory_region("both", f"/pnnx-calls-{secrets.token_hex(8)}", 2 * X.nbytes)
    try:
        shared_memory.set_shared_memory_region(made, [X])
        with listening(tmp_path, grpc_port=0, shared_memory=True) as front, calling(front) as client:
            client.register_system_shared_memory("both", made._shm_key, 2 * X.nbytes)
            assert client.get_system_shared_memory_status().regions["both"].byte_size == 2 * X.nbytes
            tensor, wanted = triton.InferInput("INPUT0", X.shape, "FP32"), triton.InferRequestedOutput("OUTPUT0")
            tensor.set_shared_memory("both", X.nbytes)
            wanted.set_shared_memory("both", X.nbytes, X.nbytes)
            answer = client.infer("simple", [tensor], outputs=[wanted]).get_response()
            assert list(answer.outputs[0].shape) == [3, 16] and not answer.raw_output_contents[0]
            found = shared_memory.get_contents_as_numpy(made, np.float32, X.shape, offset=X.nbytes)
            np.testing.assert_array_equal(found, X + 1)
            del found
            client.unregister_system_shared_memory("both")
            assert not client.get_system_shared_memory_status().regions
            with pytest.raises(InferenceServerException, match="GPUs not supported"):
                client.register_cuda_shared_memory("both", b"AA==", 0, 8)
    finally:
        shared_memory.destroy_shared_memory_region(made)


@pytest.mark.parametrize(
    ("name", "array", "datatype", "said"),
    [("WRONG", X, "FP32", "unexpected inference input"),
     ("INPUT0", X.astype(np.float64), "FP64", "data-type is 'FP64'"),
     ("INPUT0", X[0], "FP32", "batch dimension is missing")],
)  # fmt: skip
def test_it_is_told_what_is_wrong(
    client: triton.InferenceServerClient, name: str, array: np.ndarray, datatype: str, said: str
) -> None:
    with pytest.raises(InferenceServerException, match=said) as refused:
        client.infer("simple", given(array, name, datatype))
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_with_asyncio_it_runs_many_at_once_and_streams(front: Front) -> None:
    async def messages() -> AsyncIterator[dict[str, Any]]:
        for index in range(5):
            yield {"model_name": "simple", "inputs": given(X + index)}

    async def work() -> tuple[list[np.ndarray], list[np.ndarray]]:
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{front.server.grpc_port}") as client:
            assert await client.is_model_ready("simple")
            answers = await asyncio.gather(*(client.infer("simple", given(X + i)) for i in range(20)))
            streamed = [result.as_numpy("OUTPUT0") async for result, _ in client.stream_infer(messages())]
            return [answer.as_numpy("OUTPUT0") for answer in answers], streamed

    many, streamed = asyncio.run(work())
    for index, found in enumerate(many):
        np.testing.assert_array_equal(found, X + index + 1)
    for index, found in enumerate(streamed):
        np.testing.assert_array_equal(found, X + index + 1)
    assert len(streamed) == 5


def test_sequences_continue_with_single_calls_and_in_a_stream(tmp_path: Path) -> None:
    write_running_sum(tmp_path)
    one = given(np.ones((1, 2), np.float32), "in0")
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with listening(tmp_path, grpc_port=0) as front, calling(front) as client:
        for number in range(3):
            flags = {"sequence_id": 7, "sequence_start": number == 0, "sequence_end": number == 2}
            assert client.infer("sums", one, **flags).as_numpy("out0").tolist() == [[number + 1, number + 1]]
        with pytest.raises(InferenceServerException, match="expected sequence_start") as refused:
            client.infer("sums", one, sequence_id=7)
        assert refused.value.status() == "StatusCode.NOT_FOUND"
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(4):
            flags = {"sequence_id": "a text", "sequence_start": number == 0, "sequence_end": number == 2}
            client.async_stream_infer("sums", one, **flags)
        found = [answers.get(timeout=PATIENCE_S) for _ in range(4)]
        client.stop_stream()
    assert [result.as_numpy("out0")[0, 0] for result, _ in found[:3]] == [1, 2, 3]
    assert "expected sequence_start" in str(found[3][1])
