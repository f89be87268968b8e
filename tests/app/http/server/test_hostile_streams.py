"""Hostile clients of WebSockets: garbage, silence, many connections, and answers that are not read."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from wsproto import events

from tests.app.http.server.test_sound_stream import LEVEL, LOUDNESS, pcm
from tests.app.http.server.test_web_socket import Socket, opened
from tests.app.sockets import Front, listening
from tests.app.sound_models import write_waves
from tests.patience import until

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
MANY = 300


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    store = tmp_path_factory.mktemp("store")
    write_waves(store, "level", "1600", LOUDNESS, LEVEL)
    with listening(
        store, keep_alive_s=30.0, max_connections=2 * MANY, max_connections_per_peer=400, max_bytes_in_flight=64 << 20
    ) as front:
        yield front


def held(front: Front) -> int:
    return front.server.plane.memory.used


def test_streams_side_by_side_are_not_mixed_up(front: Front) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(opened(front, "level", "?sample_rate=16000&probabilities=true")) for _ in range(MANY)
        ]
        for step in range(3):
            for number, client in enumerate(clients):
                size = (number % 90 + step) / 100
                (value,) = client.ask(pcm(np.full(1_600, size)))["predictions"]["probabilities"]
                assert value == pytest.approx(size, abs=1e-3)
    until(lambda: held(front) == 0)


def test_frames_of_chance_close_the_connection_and_free_its_memory(front: Front) -> None:
    chance = random.Random(45)
    for _ in range(60):
        with opened(front, "level", "?sample_rate=16000") as client:
            client.socket.sendall(chance.randbytes(chance.randrange(1, 400)))
    until(lambda: held(front) == 0)
    assert front.is_live()


def test_a_client_that_does_not_read_is_not_run_ahead_of(front: Front) -> None:
    """Its messages stay in the sockets once its answers do: neither memory nor runs grow."""
    with front.connect(receive_bytes=4_096) as connection:
        head = b"GET /models/level/stream?sample_rate=16000&outputs=true HTTP/1.1\r\nhost: localhost\r\n"
        upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        connection.sendall(head + upgrade + b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
        frame = b"\x82\xfe" + (3_200).to_bytes(2, "big") + bytes(4) + bytes(3_200)
        connection.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 64 << 20:
                sent += connection.send(frame)
        assert sent < 64 << 20
        assert held(front) < 1 << 20
        assert front.is_live()
    until(lambda: held(front) == 0)


def test_connections_that_vanish_in_the_handshake_or_a_message_leave_nothing(front: Front) -> None:
    before = front.open
    for piece in (b"", b"GET /models/level/stream HTTP/1.1\r\n", b"\x82\xfe\x0c\x80"):
        for _ in range(40):
            if piece.startswith(b"\x82"):
                with opened(front, "level", "?sample_rate=16000") as client:
                    client.socket.sendall(piece)
            else:
                with front.connect() as connection:
                    connection.sendall(piece)
                    connection.shutdown(socket.SHUT_RDWR)
    until(lambda: front.open <= before + 1 and held(front) == 0)


def test_more_connections_than_allowed_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    write_waves(tmp_path, "level", "1600", LOUDNESS, LEVEL)
    with listening(tmp_path, max_connections=20) as front, ExitStack() as stack:
        first = stack.enter_context(opened(front, "level", "?sample_rate=16000"))
        found = []
        for _ in range(60):
            connection = stack.enter_context(front.connect())
            found.append(Socket(connection, "/models/level/stream?sample_rate=16000", {}).receive())
        refused = [each for each in found if isinstance(each, events.RejectConnection)]
        assert 30 < len(refused) < 60 and {each.status_code for each in refused} == {503}
        assert first.ask(bytes(3_200))["end"] == 0.1


def test_errors_of_a_stream_are_json(front: Front) -> None:
    with opened(front, "level", "?sample_rate=16000") as client:
        for body in (b"\0", b"\xff" * 3):
            answer = client.ask(body)
            assert json.dumps(answer) and answer["error"]["code"] == "input_mismatch"
