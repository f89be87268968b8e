"""Tests of connections over limits of size or time: they are refused without effect on others."""

from __future__ import annotations

import json
import logging
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.http.server import connection
from app.http.server.connections import Connections, _group
from app.settings import Settings
from tests.app.pictures import npy
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.app.sockets import HOST, LIVE, Front, answers, drain, listening, send
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.slow

GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST /infer?model=one HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
EXPECTING = POST + b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
GOOD = npy(np.zeros((1, 3), np.float32))
INFER = POST + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD
CLOSE = HOST + b"connection: close\r\n"
LAST = LIVE.replace(HOST, CLOSE)
BOUNDS = {"max_url_bytes": 300, "max_header_bytes": 2048}
PATIENT = {"header_timeout_s": PATIENCE_S, "body_timeout_s": PATIENCE_S, "keep_alive_s": PATIENCE_S}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sockets")
    write_model(folder, "one", elementwise("add(@0,1)", "(?,3)f32"))
    write_model(folder, "wide", elementwise("add(@0,1)", "(?,3000000)f32"))
    write_model(folder, "wait", through("test.Wait", "(1,2)f32"))
    return folder


@pytest.fixture(scope="module")
def front(store: Path) -> Iterator[Front]:
    """Start a server with generous time limits, so that a busy machine passes."""
    with listening(store, warmup=False, backend="reference", **BOUNDS, **PATIENT) as made:
        yield made


@pytest.fixture(scope="module")
def brisk(store: Path) -> Iterator[Front]:
    """Start a server with short time limits."""
    times = {"header_timeout_s": 0.3, "body_timeout_s": 0.6, "keep_alive_s": 0.3}
    with listening(store, warmup=False, backend="reference", **times) as made:
        yield made


def in_time(brisk: Front, *pieces: bytes) -> list[tuple[int, dict[str, str], Any]]:
    """Return the answers to the pieces; try again when a busy machine sent nothing before the time limit."""
    return next((found for _ in range(20) if (found := brisk.ask(*pieces))), [])


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that nothing a client does is logged as an error."""
    yield
    errors = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not [error for error in errors if not error.endswith("CancelledError\n")]  # a server ended by force


def refusal(front: Front, *pieces: bytes) -> tuple[int, str]:
    """Return status and code of the last answer, which must be an error that ends the connection."""
    return refused(front, front.ask(*pieces)[-1])


def refused(front: Front, answer: tuple[int, dict[str, str], Any]) -> tuple[int, str]:
    status, headers, body = answer
    assert headers["connection"] == "close" and re.fullmatch("[0-9a-f]{16}", headers["x-request-id"])
    assert set(body) == {"error"} and 0 < len(body["error"]["message"]) < 300
    assert front.is_live()
    return status, body["error"]["code"]


@pytest.mark.parametrize("url", [b"a" * 3000, b"a" * 100_000, b"?" + b"a=b&" * 100_000, b"%41" * 1000])
@pytest.mark.parametrize("end", [b"", b" HTTP/1.1\r\n" + HOST + b"\r\n"])
def test_setting_max_url_bytes_bounds_an_url_with_or_without_an_end(front: Front, url: bytes, end: bytes) -> None:
    assert refusal(front, b"GET /" + url + end) == (414, "url_too_long")


@pytest.mark.parametrize(
    "header",
    [
        b"a: " + b"b" * 1_000_000, b"a" * 1_000_000, b"a: \t" + b" " * 1_000_000, b"a: b\r\n" * 100_000,
        b"accept: " + b"*/*," * 100_000, b"cookie: a=b\r\n" * 1000 + b"\r\n",
    ],
)  # fmt: skip
def test_setting_max_header_bytes_bounds_headers_with_or_without_an_end(front: Front, header: bytes) -> None:
    assert refusal(front, GET, header) == (431, "headers_too_large")


@pytest.mark.parametrize("before", [b"", LIVE])
def test_line_ends_without_a_request_are_headers_too(front: Front, before: bytes) -> None:
    assert refusal(front, before, b"\r\n" * 100_000) == (431, "headers_too_large")


def test_a_hundred_megabytes_of_headers_are_not_collected(front: Front) -> None:
    connection = front.connect()
    with connection, pytest.raises(OSError):  # a broken pipe or a reset, as the kernel likes
        for _ in range(1600):
            connection.sendall(b"a: " + b"b" * 65_000 + b"\r\n")
    assert front.is_live()


def test_the_number_of_headers_is_bounded(front: Front) -> None:
    assert refusal(front, GET + b"a: b\r\n" * 100 + b"\r\n") == (431, "headers_too_large")
    assert front.ask(GET.replace(HOST, CLOSE) + b"a: b\r\n" * 98 + b"\r\n")[0][0] == 200


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_request_in_small_pieces_is_answered_as_in_one(front: Front, size: int) -> None:
    request = INFER + LAST
    with front.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = answers(send(connection, *(request[i : i + size] for i in range(0, len(request), size))))
    assert [status for status, _, _ in found] == [200, 200]


@pytest.mark.parametrize(
    "raw",
    [
        b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n", b"GET / HTTP/1.1\n" + HOST + b"\n", b"GET /\r\n\r\n", b"\0\0\0\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n", GET + HOST + b"\r\n", b"GET / HTTP/1.1\r\nhost: [\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", GET + b"a b: c\r\n\r\n",
        GET + b" a: b\r\n\r\n", GET + b"a: b\r\n c\r\n\r\n", GET + b"a: b\0\r\n\r\n", GET + b"a: b\rc: d\r\n\r\n",
        GET + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", GET + b"content-length: -1\r\n\r\n",
        GET + b"content-length: 99999999999999999999\r\n\r\n", GET + b"content-length: +1\r\n\r\n",
        POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", POST + b"transfer-encoding: gzip\r\n\r\n",
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", POST + b"transfer-encoding: chunked, gzip\r\n\r\n",
        b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", CHUNKED + b"zz\r\n", CHUNKED + b"-1\r\n",
        CHUNKED + b"ffffffffffffffffff\r\n", CHUNKED + b"1\nx\r\n", CHUNKED + b"1\r\nxx\r\n", CHUNKED + b"0x1\r\nx\r\n",
        CHUNKED + b"1;" + b"a" * 100_000, CHUNKED + b"1\r\nx\r\n" + b"1;a=b" * 20_000, b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        CHUNKED + b"0\r\n" + b"a: " + b"b" * 100_000, CHUNKED + b"0\r\n" + b"a: b\r\n" * 20_000,
        b"GET http://x HTTP/1.1\r\n" + HOST + b"\r\n", b"GET http://[/ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
        EXPECTING + b"zz\r\n", EXPECTING + b"1\r\nxx\r\n",
    ],
    ids=lambda raw: repr(raw)[:50],
)  # fmt: skip
def test_what_is_not_a_request_gets_an_error_in_json(front: Front, raw: bytes) -> None:
    assert refusal(front, raw) == (400, "invalid_request")


@pytest.mark.parametrize("target", [b"/health/live", b"http://x/infer"])
@pytest.mark.parametrize("body", [b"", b"content-length: 3\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"])
def test_what_is_sent_behind_connect_is_no_request(front: Front, target: bytes, body: bytes) -> None:
    found = front.ask(b"CONNECT " + target + b" HTTP/1.1\r\n" + HOST + (body or b"\r\n") + LIVE)
    assert [(status, headers["connection"]) for status, headers, _ in found] == [
        (400 if b"chunked" in body else 405, "close")
    ]


@pytest.mark.parametrize(
    "raw", [b"GARBAGE\r\n\r\n", CHUNKED + b"zz\r\n", EXPECTING + b"zz\r\n", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_a_fault_behind_good_requests_is_answered_after_them(front: Front, raw: bytes) -> None:
    found = front.ask(INFER + LIVE + raw)
    assert [status for status, _, _ in found] == [200, 200, 400]
    assert found[0][2]["outputs"]["out0"]["data"] == [1, 1, 1]


def test_an_upgrade_is_not_made_and_the_connection_goes_on_as_it_was(front: Front) -> None:
    upgrade = LIVE[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    found = front.ask(upgrade + upgrade + LIVE + b"\0" * 1000)
    assert [status for status, _, _ in found] == [200, 200, 200, 400]


@pytest.mark.parametrize("cut", [None, 0, 1, 40], ids=["whole", "head", "byte", "piece"])
@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_who_offers_an_upgrade_with_a_body_is_answered_to_the_body(
    front: Front, cut: int | None, is_long: bool, is_chunked: bool
) -> None:
    """Send what `curl --http2` and Java's HttpClient send first on a connection."""
    body = b'{"inputs": [[0, 0, 0]]}' + b" " * (70_000 if is_long else 0)
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
    head = b"POST /models/one/infer HTTP/1.1\r\n" + HOST + offer
    if is_chunked:
        request = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    at = 0 if cut is None else request.index(b"\r\n\r\n") + 4 + cut
    found = front.ask(*filter(None, (request[:at], request[at:])), LIVE, LAST)
    assert [status for status, _, _ in found] == [200, 200, 200]
    assert found[0][2]["outputs"]["out0"]["data"] == [1, 1, 1]


def test_fields_behind_a_chunked_body_become_no_headers(front: Front) -> None:
    chunked = b"%x\r\n%s\r\n0\r\nx-request-id: mine\r\ncontent-encoding: gzip\r\n\r\n" % (len(GOOD), GOOD)
    ((status, headers, _),) = front.ask(CHUNKED.replace(HOST, CLOSE) + chunked)
    assert (status, headers["x-request-id"] == "mine") == (200, False)


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"G", b"GET / HTTP/1.1\r\n", GET + b"a", GET + b"a: b\r\n"])
def test_setting_header_timeout_s_ends_connections_that_send_no_request(brisk: Front, begin: bytes) -> None:
    found = in_time(brisk, begin) if begin else brisk.ask()
    assert [status for status, _, _ in found] == ([408] if begin else [])


def test_headers_that_come_byte_by_byte_are_not_waited_for(brisk: Front) -> None:
    def told() -> bytes:
        with brisk.connect() as connection, suppress(ConnectionError):
            connection.sendall(GET)
            connection.settimeout(0.01)
            while True:
                with suppress(TimeoutError):
                    return connection.recv(65536)
                with suppress(ConnectionError):
                    connection.sendall(b"a")
        return b""  # it came too late

    until(lambda: told().startswith(b"HTTP/1.1 408"))


def test_setting_keep_alive_s_ends_connections_that_ask_nothing_more(brisk: Front) -> None:
    assert [status for status, _, _ in in_time(brisk, LIVE)] == [200]
    assert [status for status, _, _ in in_time(brisk, LIVE + LIVE + b"GET")] == [200, 200, 408]


@pytest.mark.parametrize("head", [POST + b"content-length: 1000000\r\n\r\n", CHUNKED])
def test_setting_body_timeout_s_ends_bodies_that_do_not_come(brisk: Front, head: bytes) -> None:
    assert refused(brisk, in_time(brisk, head)[-1]) == (408, "request_timeout")


def test_a_body_that_no_route_needs_is_not_waited_for(brisk: Front) -> None:
    head = LIVE[:-2] + b"content-length: 1000000\r\n\r\n"
    assert [status for status, _, _ in in_time(brisk, head, b"x" * 10)] == [200]


ASK_WAIT = json.dumps({"inputs": [[1, 1]]}).encode()
ASK_WAIT = b"POST /infer?model=wait HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n\r\n" % len(ASK_WAIT) + ASK_WAIT


@pytest.mark.parametrize("behind", [b"", LIVE, ASK_WAIT * 2])
def test_a_client_that_breaks_off_with_requests_sent_ahead_is_not_written_to(front: Front, behind: bytes) -> None:
    with front.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(ASK_WAIT + behind)
        TURNSTILE.wait_until_entered()
    until(lambda: front.open == 0)
    TURNSTILE.let_through()
    until(lambda: not front.server.server_state.tasks)
    until(front.is_live)


@pytest.mark.parametrize("behind", [0, 2])
def test_a_client_that_ends_its_own_side_gets_the_answers_to_what_it_has_sent(
    front: Front, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_HALF_CLOSED_S", PATIENCE_S)
    with front.connect() as client:
        client.sendall(ASK_WAIT + LIVE * behind)
        TURNSTILE.wait_until_entered()
        client.shutdown(socket.SHUT_WR)
        until(lambda: all(each._is_half_closed for each in front.connections))
        TURNSTILE.let_through()
        found = answers(drain(client))
    assert [status for status, _, _ in found] == [200] * (1 + behind)
    until(lambda: front.open == 0)


def test_a_client_that_ends_its_own_side_and_waits_long_counts_as_gone(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_HALF_CLOSED_S", 0.01)
    with front.connect() as client:
        client.sendall(ASK_WAIT)
        TURNSTILE.wait_until_entered()
        client.shutdown(socket.SHUT_WR)
        assert drain(client) == b""
    TURNSTILE.let_through()
    until(lambda: not front.server.server_state.tasks)


@pytest.mark.parametrize("sent", [b"", GET, POST + b"content-length: 9\r\n\r\n1234", ASK_WAIT[:-1]])
def test_a_client_that_ends_its_own_side_within_a_request_is_not_waited_for(front: Front, sent: bytes) -> None:
    with front.connect() as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert drain(client) == b""
    until(lambda: front.open == 0)


WIDE = npy(np.zeros((1, 3_000_000), np.float32))
WIDE_HEAD = b"POST /infer?model=wide HTTP/1.1\r\naccept: application/x-npz\r\n" + HOST
ASK_WIDE = WIDE_HEAD + b"content-length: %d\r\n\r\n" % len(WIDE) + WIDE


def test_a_client_that_does_not_take_its_answer_is_cut_off(store: Path) -> None:
    times = {**PATIENT, "answer_timeout_s": 0.3}
    with (
        listening(store, warmup=False, backend="reference", **times) as front,
        front.connect(receive_bytes=4096) as connection,
    ):
        connection.sendall(ASK_WIDE)
        until(lambda: front.open == 0)
        received = drain(connection)
        assert received.startswith(b"HTTP/1.1 200") and len(received) < 12_000_000


# At most so many bytes at once, and then a pause: the first would take a minute, on the fastest machine.
@pytest.mark.parametrize(("timeout_s", "bytes_at_once", "is_whole"), [(0.3, 2048, False), (120.0, 1 << 18, True)])
def test_setting_answer_timeout_s_ends_answers_that_are_taken_slowly(
    store: Path, timeout_s: float, bytes_at_once: int, is_whole: bool
) -> None:
    settings = {**PATIENT, "answer_timeout_s": timeout_s}
    with (
        listening(store, warmup=False, backend="reference", **settings) as front,
        front.connect(receive_bytes=1 << 18) as connection,
    ):
        connection.sendall(ASK_WIDE.replace(HOST, CLOSE, 1))
        received = 0
        with suppress(ConnectionResetError):
            while data := connection.recv(bytes_at_once if front.open else 1 << 18):
                received += len(data)
                time.sleep(0.01)
        assert (received > 12_000_000) is is_whole


def test_settings_max_connections_and_max_connections_per_peer_let_idle_ones_make_room(store: Path) -> None:
    with listening(store, warmup=False, max_connections=8) as front, ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(front.connect()).sendall(b"GET")
        assert [status for status, _, _ in front.ask(INFER.replace(HOST, CLOSE))] == [200]
        assert front.open <= 8


def test_health_answers_when_all_connections_are_at_work(store: Path) -> None:
    with listening(store, warmup=False, max_connections=4, max_connections_per_peer=2) as front, ExitStack() as stack:
        busy = [stack.enter_context(front.connect()) for _ in range(2)]
        for connection in busy:
            connection.sendall(ASK_WAIT)
        until(lambda: len(front.server.server_state.tasks) == 2)
        for _ in range(40):  # who takes the places that are left for the health
            stack.enter_context(front.connect()).sendall(b"GET /hea")
        assert front.is_live()
        ((status, headers, error),) = front.ask(INFER)
        assert (status, headers["retry-after"], error["error"]["code"]) == (503, "1", "too_many_connections")
        TURNSTILE.let_through(2)
        for connection in busy:
            assert connection.recv(12).startswith(b"HTTP/1.1 200")
        TURNSTILE.wait_until_entered()
        TURNSTILE.wait_until_entered()


def test_the_limits_leave_files_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 256))
    connections = Connections(Settings())
    assert (connections.most, connections.most_per_peer) == (160, 120)


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        ("10.0.0.1", "10.0.0.1"), (None, ""), ("2001:db8:1:2:3::4", "2001:db8:1:2::"), ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::"), ("a:b", "a:b"),
    ],
)  # fmt: skip
def test_a_peer_is_an_address_or_a_network(peer: str | None, group: str) -> None:
    assert _group(peer) == group
