"""What a process that is still being imported says, to whom, and for how long."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from app.cli import serve
from app.errors import ModelNotReadyError
from app.process.early_health import EarlyHealth, answer, early_health
from app.settings import Settings, SettingsError
from tests.patience import PATIENCE_S, until


@pytest.fixture
def entrance() -> Iterator[EarlyHealth]:
    with early_health(Settings(host="127.0.0.1", port=0, retry_after_s=3)) as found:
        yield found


def connect(entrance: EarlyHealth) -> socket.socket:
    return socket.create_connection(entrance.listener.getsockname(), timeout=PATIENCE_S)


def ask(entrance: EarlyHealth, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Any, Any]:
    host, port = entrance.listener.getsockname()
    with closing(http.client.HTTPConnection(host, port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None, response.headers


NOT_READY = ModelNotReadyError("not ready: the server is starting", retry_after_s=3).body()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/health/live", 200, {"live": True}),
        ("/v2/health/live?x=1", 200, {"live": True}),
        ("/health/ready", 503, {"ready": False, **NOT_READY}),
        ("/models", 503, NOT_READY),
        ("/v2/health/ready", 503, {"error": "not ready: the server is starting"}),
    ],
)
def test_a_process_that_starts_lives_and_is_not_ready(
    entrance: EarlyHealth, path: str, status: int, body: object
) -> None:
    found, said, headers = ask(entrance, path)
    assert (found, said) == (status, body)
    assert headers["retry-after"] == (None if status == 200 else "3")
    assert headers["x-content-type-options"] == "nosniff"


def test_who_sends_much_gets_an_answer_and_head_gets_none_with_it(entrance: EarlyHealth) -> None:
    assert ask(entrance, "/infer", "POST", bytes(3_000_000))[:2] == (503, NOT_READY)
    assert ask(entrance, "/health/live", "HEAD")[:2] == (200, None)


@pytest.mark.parametrize(
    "head", [b"", b"\r\n\r\n", b"GET /\r\n\r\n", b"\xff" * 100 + b"\r\n\r\n", b"GET /a b HTTP/1.1\r\n"]
)
def test_what_is_no_request_is_told_so(head: bytes) -> None:
    assert answer(head, 1).startswith(b"HTTP/1.1 400 ")


def test_who_sends_too_long_a_head_or_goes_away_or_says_nothing_keeps_nobody_waiting(entrance: EarlyHealth) -> None:
    silent = [connect(entrance) for _ in range(40)]
    endless = connect(entrance)
    endless.sendall(b"GET /health/live HTTP/1.1\r\n")
    with connect(entrance) as gone:
        gone.sendall(b"GET /health")
    assert ask(entrance, "/health/live")[0] == 200
    with pytest.raises(OSError):
        while True:
            endless.sendall(b"x: y\r\n" * 1000)
    for each in (*silent, endless):
        each.close()
    assert ask(entrance, "/health/live")[0] == 200


def test_once_it_is_closed_connections_are_somebody_elses(entrance: EarlyHealth) -> None:
    begun = connect(entrance)
    begun.sendall(b"GET /health/live HTTP/1.1\r\n")
    assert ask(entrance, "/health/live")[0] == 200  # so the one that has begun was let in before
    entrance.close()
    entrance.close()
    with connect(entrance) as client:
        accepted, peer = entrance.listener.accept()
        assert peer == client.getsockname()
        accepted.close()
    begun.sendall(b"\r\n")
    assert begun.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    begun.close()


def test_an_address_that_is_taken_is_told(entrance: EarlyHealth) -> None:
    host, port = entrance.listener.getsockname()
    with (
        pytest.raises(SettingsError, match=f"cannot listen on {host} port {port}"),
        early_health(Settings(host=host, port=port)),
    ):
        pass


def test_a_host_that_is_no_name_is_told_with_its_reason() -> None:
    with (
        pytest.raises(SettingsError, match="cannot listen on a..b port 1: ") as told,
        early_health(Settings(host="a..b", port=1)),
    ):
        pass
    assert not any(word in str(told.value) for word in ("Unknown error", "Success", "while attempting"))


def test_it_needs_nothing_that_takes_long_to_import() -> None:
    code = "import sys, app.cli.serve; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert not {"numpy", "fastapi", "uvicorn", "PIL", "engine", "llvmlite"} & set(found.stdout.split())


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was_when_the_server_is_imported(enabled: bool) -> None:
    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        assert serve._imported("app.process.early_health").early_health is early_health
        with pytest.raises(ImportError):
            serve._imported("app.no_such_module")
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_whoever_is_taken_at_the_last_moment_is_answered_and_the_others_are_left_to_the_server() -> None:
    for _ in range(20):
        with early_health(Settings(host="127.0.0.1", port=0)) as entrance, ExitStack() as stack:
            clients = [stack.enter_context(connect(entrance)) for _ in range(40)]
            for client in clients:
                client.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
                client.settimeout(0.01)
            entrance.close()
            left = set[Any]()
            for client in clients:
                until(lambda: is_left(client, entrance, left) or is_answered(client))  # noqa: B023


def is_left(client: socket.socket, entrance: EarlyHealth, left: set[Any]) -> bool:
    """Whether it waits for somebody to take it, or did so before; the system may hand it over as late as now."""
    left |= accepted(entrance.listener)
    return client.getsockname() in left


def is_answered(client: socket.socket) -> bool:
    try:
        return client.recv(100).startswith(b"HTTP/1.1 200")
    except TimeoutError:
        return False


def accepted(listener: socket.socket) -> set[Any]:
    """The addresses of those that wait for somebody to take them."""
    found = set()
    listener.setblocking(False)
    while True:
        try:
            connection, address = listener.accept()
        except BlockingIOError:
            return found
        connection.close()
        found.add(address)
