"""Tests of the class of each error, from a real server or a stub."""

from __future__ import annotations

import builtins
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import SecretStr

import pnnx_client
from pnnx_client import (
    BusyError,
    Client,
    DeadlineError,
    DeniedError,
    InvalidRequestError,
    NotFoundError,
    PnnxError,
    RetryLaterError,
    ServerError,
    TooLargeError,
    TransportError,
    UnavailableError,
)
from pnnx_client.retrying import Attempts
from tests.app.sample_models import TURNSTILE, through, write_model
from tests.app.sockets import listening

F32 = np.float32
X = np.zeros((1, 3), F32)
BOTH = pytest.mark.parametrize("predictions", [False, True])


@BOTH
def test_an_unknown_model_is_not_found(client: Client, predictions: bool) -> None:
    with pytest.raises(NotFoundError, match="nope") as caught:
        client.infer("nope", X, predictions=predictions)
    assert isinstance(caught.value, LookupError) and caught.value.status == 404
    with pytest.raises(NotFoundError):
        client.infer("one", X, version=9, predictions=predictions)
    with pytest.raises(NotFoundError) as caught:
        client.graph("nope")
    assert caught.value.code == "model_not_found"


@BOTH
def test_a_wrong_shape_is_an_invalid_request(client: Client, predictions: bool) -> None:
    with pytest.raises(InvalidRequestError, match="in0.*2, 4") as caught:
        client.infer("one", np.zeros((2, 4), F32), predictions=predictions)
    assert isinstance(caught.value, ValueError) and caught.value.status == (422 if predictions else 400)
    if predictions:
        assert caught.value.code == "input_mismatch" and caught.value.detail["found"] == "[2, 4]"


def test_a_wrong_dtype_is_an_invalid_request(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match="'FP64', but model 'one' expects 'FP32'"):
        client.infer("one", X.astype(np.float64))


def test_a_failing_model_is_a_server_error(client: Client) -> None:
    with pytest.raises(ServerError) as caught:
        client.infer("fail", np.ones((1, 2), F32), predictions=True)
    assert (caught.value.code, caught.value.status) == ("inference_failed", 500)


def test_a_broken_image_is_an_invalid_request(client: Client) -> None:
    with pytest.raises(InvalidRequestError):
        client.infer("shades", b"no picture")


@pytest.fixture
def waiting(tmp_path: Path) -> Any:
    """Provide a server with a model that blocks on the turnstile, and no room in the queue."""
    write_model(tmp_path, "wait", through("test.Wait", "(?,3)f32"))
    with listening(tmp_path, warmup=False, max_in_flight=1, max_queue=0, request_timeout_s=60.0) as front:
        yield front


def blocked(front: Any) -> threading.Thread:
    """Start a thread whose request runs until the turnstile opens."""

    def ask() -> None:
        with Client(f"http://127.0.0.1:{front.port}") as client:
            client.infer("wait", X)

    thread = threading.Thread(target=ask)
    thread.start()
    TURNSTILE.wait_until_entered()
    return thread


@BOTH
def test_a_full_queue_has_a_retry_time(waiting: Any, connect: Any, predictions: bool) -> None:
    client = connect(f"http://127.0.0.1:{waiting.port}", retries=0)
    thread = blocked(waiting)
    try:
        with pytest.raises(BusyError) as caught:
            client.infer("wait", X, predictions=predictions)
        assert (caught.value.code, caught.value.status, caught.value.retry_after_s) == ("queue_full", 429, 1.0)
    finally:
        TURNSTILE.let_through()
        thread.join()


def test_a_request_to_a_full_queue_is_retried_until_accepted(
    waiting: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = blocked(waiting)
    refused = []

    def pause(_: Attempts, failure: Exception) -> float:
        assert isinstance(failure, BusyError)
        if not refused:
            TURNSTILE.let_through(2)
            thread.join()
        refused.append(failure)
        return 0.01

    monkeypatch.setattr(Attempts, "pause_s", pause)
    result = connect(f"http://127.0.0.1:{waiting.port}").infer("wait", X)
    TURNSTILE.wait_until_entered()
    assert refused and result["out0"].shape == (1, 3)


def test_a_stopping_server_is_not_ready_then_unreachable(tmp_path: Path, connect: Any) -> None:
    write_model(tmp_path, "one", through("torch.clone", "(?,3)f32"))
    with listening(tmp_path, drain_delay_s=600.0) as front:
        client = connect(f"http://127.0.0.1:{front.port}", retries=0)
        assert client.live() and client.ready()
        front.server.handle_exit(signal.SIGTERM, None)
        assert client.live() and not client.ready()
        assert client.infer("one", X)["out0"].shape == (1, 3)
    with pytest.raises(TransportError) as caught:
        client.infer("one", X)
    assert isinstance(caught.value, ConnectionError) and caught.value.status is None and not client.live()


@BOTH
def test_a_model_that_failed_to_load_is_unavailable(tmp_path: Path, connect: Any, predictions: bool) -> None:
    write_model(tmp_path, "strange", through("test.Unheard", "(?,3)f32"))
    with listening(tmp_path) as front:
        client = connect(f"http://127.0.0.1:{front.port}", retries=0)
        with pytest.raises(UnavailableError) as caught:
            client.infer("strange", X, predictions=predictions)
        assert caught.value.retry_after_s == 1 and not client.ready()
        assert client.models()[0]["state"] == "failed"


@BOTH
def test_a_server_with_keys_requires_one_with_the_permission(tmp_path: Path, connect: Any, predictions: bool) -> None:
    write_model(tmp_path, "one", through("torch.clone", "(?,3)f32"))
    runs, looks = "a-key-that-may-run-models", "a-key-that-may-look-at-them"
    with listening(tmp_path, keys=SecretStr(f"infer: {runs}; metadata: {looks}")) as front:
        url = f"http://127.0.0.1:{front.port}"
        assert connect(url, api_key=runs).infer("one", X, predictions=predictions, outputs=True)["out0"].shape == (1, 3)
        for options, status in (
            ({}, 401),
            ({"api_key": "no-key-at-all-of-this-server"}, 401),
            ({"api_key": looks}, 403),
        ):
            client = connect(url, **options)
            with pytest.raises(DeniedError) as caught:
                client.infer("one", X, predictions=predictions)
            assert isinstance(caught.value, PermissionError) and caught.value.status == status
            assert client.ready()  # readiness needs no key


def test_a_silent_server_times_out(connect: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(DeadlineError) as caught:
            client.infer("one", X)
        assert isinstance(caught.value, TimeoutError) and client.live() is False


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidRequestError), (401, DeniedError), (403, DeniedError), (404, NotFoundError), (408, DeadlineError),
        (409, InvalidRequestError), (413, TooLargeError), (415, InvalidRequestError), (422, InvalidRequestError),
        (429, BusyError), (431, TooLargeError), (500, ServerError), (502, ServerError), (503, UnavailableError),
        (504, DeadlineError), (302, ServerError),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"json": {"error": {"code": "word", "message": "own", "detail": {"found": 3}}}},
            ("own", "word", {"found": 3}),
        ),
        ({"json": {"error": "of the protocol"}}, ("of the protocol", None, {})),
        ({"text": "<html>a proxy"}, (None, None, {})),
        ({"json": [1]}, (None, None, {})),
        ({"json": {"error": None}}, (None, None, {})),
    ],
    ids=["own", "protocol", "html", "list", "null"],
)
def test_the_status_determines_the_class_of_an_error(
    stub: Callable[..., Any], status: int, error: type[PnnxError], body: dict[str, Any], said: tuple[Any, Any, Any]
) -> None:
    client, _ = stub(partial(httpx.Response, status, **body), retries=0)
    with pytest.raises(PnnxError) as caught:
        client.models()
    assert type(caught.value) is error and caught.value.status == status
    assert caught.value.message == str(caught.value) == (said[0] or caught.value.message)
    assert caught.value.code == (said[1] or error.code) and caught.value.detail == said[2]


def answered(datatype: str, size: int) -> dict[str, Any]:
    """Return an answer that announces three values of so many bytes, without the bytes."""
    row = {"name": "out0", "datatype": datatype, "shape": [3], "parameters": {"binary_data_size": size}}
    return {"model_name": "m", "model_version": "1", "outputs": [row]}


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "no json"}, {"json": []}, {"json": {}}, {"json": {"outputs": 3}},
        {"json": answered("FP32", 9)}, {"json": answered("FP99", 12)}, {"json": answered("FP32", 16)},
        {"text": "{}", "headers": {"inference-header-content-length": "many"}},
        {"content": b"no gzip", "headers": {"content-encoding": "gzip"}},
    ],
)  # fmt: skip
def test_an_invalid_answer_is_a_server_error(stub: Callable[..., Any], answer: dict[str, Any]) -> None:
    client, _ = stub(partial(httpx.Response, 200, **answer))
    with pytest.raises(ServerError, match="cannot be read"):
        client.infer("m", X)


def test_every_error_is_public_and_derives_from_one_class() -> None:
    def below(kind: type[PnnxError]) -> list[type[PnnxError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    found = below(PnnxError)
    assert {each.__name__ for each in found} == {name for name in pnnx_client.__all__ if name.endswith("Error")}
    assert len({each.code for each in found}) == len(found)
    assert {BusyError, UnavailableError} <= set(below(RetryLaterError))
    assert all(not hasattr(builtins, each.__name__) for each in found)
