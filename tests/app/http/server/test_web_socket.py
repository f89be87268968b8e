"""WebSockets that run a model: handshake, sequences, errors, limits, and how they end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wsproto import ConnectionType, WSConnection, events

from tests.app.pictures import npy
from tests.app.sockets import Front, listening
from tests.app.v2_models import write_running_sum, write_simple
from tests.patience import PATIENCE_S, until

KEYS = "infer: a-key-of-the-test-1\nmetadata: a-key-of-the-test-2"


class Socket:
    """Client, by the library that the server uses for its own side."""

    def __init__(
        self, connection: socket.socket, target: str, headers: dict[str, str], protocols: Sequence[str] = ()
    ) -> None:
        self.socket = connection
        self.protocol = WSConnection(ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.send(events.Request(host="localhost", target=target, extra_headers=extra, subprotocols=list(protocols)))

    def send(self, event: Any) -> None:
        self.socket.sendall(self.protocol.send(event))

    def receive(self) -> Any:
        """Return the next event; joins the pieces of a text."""
        text = ""
        while True:
            for event in self.protocol.events():
                if not isinstance(event, events.TextMessage):
                    return event
                text += event.data
                if event.message_finished:
                    return json.loads(text)
            self.protocol.receive_data(self.socket.recv(1 << 16) or None)

    def ask(self, message: object) -> Any:
        self.send(events.Message(data=message if isinstance(message, bytes) else json.dumps(message)))
        return self.receive()


@contextmanager
def opened(front: Front, name: str, query: str = "", **headers: str) -> Iterator[Socket]:
    with front.connect() as connection:
        client = Socket(connection, f"/models/{name}/stream{query}", headers)
        assert isinstance(client.receive(), events.AcceptConnection)
        yield client


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    store = tmp_path_factory.mktemp("store")
    write_running_sum(store)
    write_running_sum(store, "one", "[sequences]\nmax_active = 1\n")
    write_simple(store)
    with listening(store, max_body_bytes=1 << 16, keep_alive_s=2.0) as front:
        yield front


def rows(*values: float) -> dict[str, Any]:
    return {"inputs": {"in0": [list(values)]}}


def sums(answer: Any) -> list[float]:
    found: list[float] = answer["outputs"]["out0"]["data"]
    return found


def held(front: Front) -> int:
    return front.server.plane.memory.used


def test_the_messages_of_a_connection_are_one_sequence(front: Front) -> None:
    with opened(front, "sums") as one, opened(front, "sums") as other:
        assert [sums(one.ask(rows(n, 1))) for n in (1, 2, 3)] == [[1, 1], [3, 2], [6, 3]]
        assert sums(other.ask(rows(5, 5))) == [5, 5]
        assert sums(one.ask(npy(np.float32([[4, 4]])))) == [10, 7]
    until(lambda: held(front) == 0)


def test_a_binary_message_is_a_body_too(front: Front) -> None:
    with opened(front, "simple") as client:
        answer = client.ask(npy(np.zeros((1, 16), np.float32)))
        assert answer["outputs"]["OUTPUT0"]["data"] == [1] * 16


def test_the_query_applies_to_every_message(front: Front) -> None:
    with opened(front, "sums", "?outputs=out0&version=1") as client:
        assert list(client.ask(rows(1, 1))["outputs"]) == ["out0"]


def test_an_error_is_answered_and_the_sequence_goes_on(front: Front) -> None:
    with opened(front, "sums") as client:
        assert sums(client.ask(rows(1, 1))) == [1, 1]
        assert client.ask({"inputs": {"in0": [[1, 2, 3]]}})["error"]["code"] == "input_mismatch"
        assert client.ask(b"{")["error"]["code"] == "invalid_request"
        assert client.ask({"nope": 1})["error"]["code"] == "invalid_request"
        assert sums(client.ask(rows(1, 1))) == [2, 2]


def test_messages_sent_at_once_are_answered_in_order(front: Front) -> None:
    with opened(front, "sums") as client:
        for _ in range(50):
            client.send(events.Message(data=json.dumps(rows(1, 1))))
        assert [sums(client.receive())[0] for _ in range(50)] == list(range(1, 51))


def test_a_fragmented_message_is_joined_and_a_ping_is_answered_within_it(front: Front) -> None:
    text = json.dumps(rows(1, 1))
    with opened(front, "sums") as client:
        client.send(events.Message(data=text[:9], message_finished=False))
        client.send(events.Ping(payload=b"there?"))
        client.send(events.Message(data=text[9:], message_finished=True))
        pong, answer = client.receive(), client.receive()
        assert isinstance(pong, events.Pong) and bytes(pong.payload) == b"there?"
        assert sums(answer) == [1, 1]


def test_closing_ends_the_sequence_and_the_close_is_answered(front: Front) -> None:
    with opened(front, "one") as client:
        assert sums(client.ask(rows(1, 1))) == [1, 1]
        with opened(front, "one") as refused:
            assert refused.ask(rows(1, 1))["error"]["code"] == "too_many_sequences"
        client.send(events.CloseConnection(code=1000))
        closing = client.receive()
        assert isinstance(closing, events.CloseConnection) and closing.code == 1000
        until(lambda: held(front) == 0)
        with opened(front, "one") as next_one:
            assert sums(next_one.ask(rows(1, 1))) == [1, 1]


def test_a_client_that_vanishes_ends_its_sequence(front: Front) -> None:
    for _ in range(3):
        with opened(front, "one") as client:
            assert sums(client.ask(rows(1, 1))) == [1, 1]
        until(lambda: held(front) == 0)


def test_a_message_that_is_too_large_closes_the_connection(front: Front) -> None:
    with opened(front, "sums") as client:
        client.send(events.Message(data=b"x" * ((1 << 16) + 1)))
        assert client.receive()["error"]["code"] == "too_large"
        closing = client.receive()
        assert isinstance(closing, events.CloseConnection) and closing.code == 1009
    until(lambda: held(front) == 0)


def test_an_idle_connection_is_closed(front: Front) -> None:
    with opened(front, "sums") as client:
        began = time.monotonic()
        closing = client.receive()
        assert isinstance(closing, events.CloseConnection) and closing.code == 1001
        assert 1 < time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize(
    "frame", [b"\xff\xff" * 20, b"\x81\x05hello", b"\x83\x80abcd", b"\x81\xff" + b"\xff" * 12, b"\xc1\x80abcd"]
)
def test_bytes_that_are_not_frames_close_the_connection(front: Front, frame: bytes) -> None:
    with opened(front, "sums") as client:
        client.socket.sendall(frame)
        closing = client.receive()
        assert isinstance(closing, events.CloseConnection) and closing.code in (1002, 1009)
    assert front.is_live()


UPGRADE = b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
KEY = b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


@pytest.mark.parametrize(
    ("name", "headers", "status"),
    [
        ("nope", UPGRADE + KEY, 404),
        ("sums", b"", 400),
        ("sums", UPGRADE.replace(b"13", b"8") + KEY, 400),
        ("sums", UPGRADE + b"sec-websocket-key: AAAA\r\n", 400),
        ("sums", UPGRADE, 400),
        ("sums", UPGRADE + KEY + b"origin: http://evil.example.com\r\n", 403),
    ],
)
def test_a_handshake_that_is_wrong_is_refused_and_the_connection_goes_on(
    front: Front, name: str, headers: bytes, status: int
) -> None:
    request = b"GET /models/%b/stream HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\n%b\r\n" % (
        name.encode(), headers,
    )  # fmt: skip
    live = b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert [answer[0] for answer in front.ask(request, live)] == [status, 200]


def test_a_key_is_needed_where_the_server_has_keys(tmp_path: Path) -> None:
    write_running_sum(tmp_path)
    with listening(tmp_path, keys=KEYS) as front:
        for key, status in ((None, 401), ("a-key-of-the-test-2", 403)):
            with front.connect() as connection:
                headers = {} if key is None else {"x-api-key": key}
                refused = Socket(connection, "/models/sums/stream", headers).receive()
                assert isinstance(refused, events.RejectConnection) and refused.status_code == status
        with opened(front, "sums", **{"x-api-key": "a-key-of-the-test-1"}) as client:
            assert sums(client.ask(rows(1, 1))) == [1, 1]


def test_a_server_that_stops_closes_its_web_sockets(tmp_path: Path) -> None:
    write_running_sum(tmp_path)
    with listening(tmp_path) as front:
        connection = front.connect()
        client = Socket(connection, "/models/sums/stream", {})
        assert isinstance(client.receive(), events.AcceptConnection)
        assert sums(client.ask(rows(1, 1))) == [1, 1]
        began = time.monotonic()
    closing = client.receive()
    connection.close()
    assert isinstance(closing, events.CloseConnection) and closing.code == 1001
    assert time.monotonic() - began < PATIENCE_S
