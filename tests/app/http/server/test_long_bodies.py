"""Tests of long bodies, which are read directly into their buffer."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.http.server.states import State
from app.memory.machine import uninitialised
from tests.app.pictures import npy
from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import HOST, LIVE, Front, answers, listening, send
from tests.patience import until

pytestmark = pytest.mark.slow

ROWS = np.arange(600_000, dtype=np.float32).reshape(-1, 3)
BODY = npy(ROWS)
POST = b"POST /infer?model=one HTTP/1.1\r\naccept: application/x-npy\r\n" + HOST
HEAD = POST + b"content-length: %d\r\n" % len(BODY)
CLOSE = b"connection: close\r\n"
LONG = HEAD + b"\r\n" + BODY
LAST = HEAD + CLOSE + b"\r\n" + BODY


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    write_model(folder, "one", elementwise("add(@0,1)", "(?,3)f32"))
    return folder


@pytest.fixture(scope="module")
def front(store: Path) -> Iterator[Front]:
    with listening(store, warmup=False, backend="reference", access_log=True) as made:
        yield made


def is_at_rest(front: Front) -> bool:
    return front.open == 0 and not front.server.plane.memory.used


@pytest.mark.parametrize("size", [1 << 30, 1_000_003, 65_537])
@pytest.mark.parametrize("behind", [LAST, LIVE.replace(HOST, HOST + CLOSE), LIVE + LONG + LAST])
def test_a_long_body_is_answered_and_so_is_what_is_sent_behind_it(
    front: Front, size: int, behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    sent = LONG + behind
    with caplog.at_level(logging.INFO, "app.access"), front.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces = (sent[at : at + size] for at in range(0, len(sent), size))
        received = send(connection, *pieces)
        wanted = sent.count(POST)
        until(lambda: _lengths(caplog).count(len(BODY)) >= wanted)  # a line of the log comes after its answer
    found = _split(received)
    bodies = [body for body in found if body.startswith(b"\x93NUMPY")]
    assert len(found) == sent.count(b" HTTP/1.1") and len(bodies) == wanted
    for body in bodies:
        np.testing.assert_array_equal(np.load(io.BytesIO(body)), ROWS + 1)
    assert _lengths(caplog).count(len(BODY)) == wanted


@pytest.mark.parametrize("missing", [1, 3, 20])
def test_a_long_body_may_come_with_the_end_of_its_head(front: Front, missing: int) -> None:
    cut = LAST.index(b"\r\n\r\n") + 4 - missing
    with front.connect() as connection:
        connection.sendall(LAST[:cut])
        until(lambda: any(each._count for each in front.connections))
        (body,) = _split(send(connection, LAST[cut:]))
    np.testing.assert_array_equal(np.load(io.BytesIO(body)), ROWS + 1)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_long_body_waits_for_a_reader_that_has_something_else_to_do_first(store: Path, is_last: bool) -> None:
    tensor = {"name": "in0", "shape": ROWS.shape, "datatype": "FP32", "parameters": {"binary_data_size": ROWS.nbytes}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    head = b"POST /v2/models/one/infer HTTP/1.1\r\n" + HOST + b"inference-header-content-length: %d\r\n" % len(text)
    head += b"content-length: %d\r\n" % (len(text) + ROWS.nbytes)
    sent = head + b"\r\n" + text + ROWS.tobytes() + head + CLOSE + b"\r\n" + text + ROWS.tobytes()
    with listening(store, warmup=False, backend="reference") as front, front.connect() as connection:
        found = _split(send(connection, LONG, sent) if is_last else send(connection, sent))
    for body in found[-2:]:
        assert np.frombuffer(body[-ROWS.nbytes :], np.float32).tobytes() == (ROWS + 1).tobytes()


def test_a_long_unread_body_is_dropped(front: Front) -> None:
    head = LIVE[:-2] + b"content-length: %d\r\n\r\n" % len(BODY)
    unread = POST.replace(b"/infer", b"/nothing") + b"content-length: %d\r\n\r\n" % len(BODY)
    with front.connect() as connection:
        received = send(connection, head + BODY + unread + BODY + LAST)
    assert re.findall(rb"HTTP/1.1 ([0-9]+)", received) == [b"200", b"404", b"200"]


def _lengths(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Return the lengths of bodies in log lines."""
    return [record.bytes_in for record in caplog.records if hasattr(record, "bytes_in")]


def _split(received: bytes) -> list[bytes]:
    """Return the bodies of answers."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        found.append(rest[:length])
        received = rest[length:]
    return found


@pytest.mark.parametrize("have", [0, 10, 100_000, len(BODY) - 1])
@pytest.mark.parametrize("is_rude", [False, True])
def test_a_client_that_breaks_off_leaves_nothing_behind(front: Front, have: int, is_rude: bool) -> None:
    with front.connect() as connection:
        if is_rude:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(HEAD + b"\r\n" + BODY[:have])
        until(lambda: any(each.state is State.BODY for each in front.connections))
    until(lambda: is_at_rest(front))
    assert front.is_live()


def test_who_waits_to_be_told_to_continue_is_told(front: Front) -> None:
    with front.connect() as connection:
        connection.sendall(HEAD + CLOSE + b"expect: 100-continue\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert len(_split(send(connection, BODY))) == 1


@pytest.mark.parametrize("have", [0, 200_000])
def test_a_long_body_that_does_not_come_in_its_time_is_not_waited_for(front: Front, have: int) -> None:
    with front.connect() as connection:
        head = HEAD + b"x-request-timeout-ms: 50\r\n\r\n"
        ((status, headers, error),) = answers(send(connection, head + BODY[:have]))
    assert (status, headers["connection"], error["error"]["code"]) == (504, "close", "deadline_exceeded")
    until(lambda: is_at_rest(front))


@pytest.mark.parametrize(("budget", "status"), [(4_000_000, 413), (5_200_000, 413), (1 << 30, 200)])
def test_a_long_body_takes_no_more_memory_than_there_is(store: Path, budget: int, status: int) -> None:
    with listening(store, warmup=False, backend="reference", max_bytes_in_flight=budget) as front:
        with front.connect() as connection:
            connection.sendall(LONG)
            assert connection.recv(12) == b"HTTP/1.1 %d" % status
        until(lambda: is_at_rest(front))


@pytest.mark.parametrize("values_at", [0, 1, 37, 128, 10**15])
@pytest.mark.parametrize("count", [1 << 16, 100_000])
def test_values_begin_where_every_dtype_may_lie(count: int, values_at: int) -> None:
    block = uninitialised(count, values_at)
    block[:] = bytes(range(256)) * (count // 256) + bytes(range(count % 256))
    assert len(block) == count
    address = np.frombuffer(block, np.uint8).__array_interface__["data"][0]
    assert (address + values_at) % 64 == 0
