"""Tests of early refusals by the connection, which change nothing else."""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import QueueFullError
from tests.app.pictures import npy
from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import HOST, LIVE, Front, answers, listening
from tests.patience import until

GOOD = npy(np.zeros((1, 3), np.float32))
V2 = b'{"inputs":[{"name":"in0","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}'
HURRY = V2.replace(b"{", b'{"parameters":{"priority":1},', 1)


def post(body: bytes = GOOD, path: str = "/infer?model=one", headers: bytes = b"") -> bytes:
    length = b"" if b"transfer-encoding" in headers else b"content-length: %d\r\n" % len(body)
    return b"POST %b HTTP/1.1\r\n%b%b%b\r\n%b" % (path.encode(), HOST, length, headers, body)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    write_model(folder, "one", elementwise("add(@0,1)", "(?,3)f32"))
    write_model(folder, "two", elementwise("add(@0,1)", "(?,3)f32"))
    return folder


@pytest.fixture(scope="module")
def front(store: Path) -> Iterator[Front]:
    with listening(
        store, warmup=False, backend="reference", access_log=True, cors_origins=("https://good.example",)
    ) as made:
        yield made


@contextmanager
def closed(front: Front) -> Iterator[None]:
    """Let a model admit only requests with a priority, for a block."""
    scheduler = front.server.plane.store.version("one").scheduler
    error = QueueFullError("'one' is busy: it is a test", retry_after_s=2, wait_s=0.5)

    def refusal(deadline: float, priority: int = 10, **_: Any) -> QueueFullError | None:
        return None if priority < 10 else error

    scheduler.refusal = refusal  # type: ignore[method-assign, assignment]
    scheduler._run_queue.pending += 1
    try:
        yield
    finally:
        scheduler._run_queue.pending -= 1
        del scheduler.refusal  # type: ignore[method-assign]


def statuses(front: Front) -> Counter[int]:
    return front.server.config.http.keywords["service"].statuses  # type: ignore[union-attr, no-any-return]


@pytest.fixture
def nothing_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a body is parsed."""
    monkeypatch.setattr("app.http.routes.infer.parse", lambda *_: pytest.fail("it was parsed"))
    monkeypatch.setattr("app.http.v2.infer.parse_request", lambda *_: pytest.fail("it was parsed"))


def one(connection: socket.socket, request: bytes) -> tuple[int, dict[str, str], Any]:
    """Return the answer to one request on a connection that stays open."""
    connection.sendall(request)
    return received(connection, 1)[0]


def received(connection: socket.socket, count: int) -> list[tuple[int, dict[str, str], Any]]:
    """Return the next answers."""
    found, data = [], b""
    while len(found) < count:
        head, end, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0) if end else 0
        if end and len(rest) >= length:
            found += answers(head + end + rest[:length])
            data = rest[length:]
        else:
            piece = connection.recv(1 << 16)
            assert piece, "the connection ended"
            data += piece
    return found


def test_a_query_of_too_many_fields_is_refused_by_the_app_and_the_connection_goes_on(front: Front) -> None:
    query = "&".join(["a=1"] * 33)
    with front.connect() as connection:
        for path in ("/infer", "/models/one/infer", "/v2/models/one/infer", "/v2/models/one/versions/1/infer"):
            status, _, body = one(connection, post(path=f"{path}?{query}"))
            error = body["error"] if path.startswith("/v2") else body["error"]["message"]
            assert (status, error) == (400, "the query has too many fields: found 33, expected at most 32")
        assert one(connection, LIVE)[0] == 200


def test_a_query_field_that_comes_twice_is_refused_by_the_app_and_the_connection_goes_on(front: Front) -> None:
    with front.connect() as connection:
        for path in ("/infer", "/models/one/infer", "/v2/models/one/infer"):
            status, _, body = one(connection, post(path=f"{path}?outputs=a&outputs=b"))
            error = body["error"] if path.startswith("/v2") else body["error"]["message"]
            assert (status, error) == (400, "query field 'outputs': found 2 times, expected once")
        assert one(connection, LIVE)[0] == 200


@pytest.mark.usefixtures("nothing_is_parsed")
@pytest.mark.parametrize("path", ["/infer?model=one", "/models/one/infer", "/infer?model=one&version=1&top_k=3"])
def test_refusals_come_from_the_connection_which_goes_on_and_are_counted_as_ever(front: Front, path: str) -> None:
    version = front.server.plane.store.version("one")
    before, answered = version.statistics.failures["queue_full"], statuses(front)[429]
    with closed(front), front.connect() as connection:
        for _ in range(5):
            status, headers, body = one(connection, post(path=path))
            assert (status, headers["retry-after"], len(headers["x-request-id"])) == (429, "2", 16)
            assert body == {"error": {"code": "queue_full", "message": "'one' is busy: it is a test",
                                      "detail": {"wait_s": 0.5}}}  # fmt: skip
        assert one(connection, LIVE)[0] == 200
    assert version.statistics.failures["queue_full"] == before + 5
    assert statuses(front)[429] == answered + 5


def test_what_a_request_says_is_not_looked_for_in_the_end_of_the_one_before(front: Front) -> None:
    path = "/v2/models/one/infer"
    long = post(b"\r\n\r\n" + b"x" * 5000)
    hurry = post(HURRY, path)
    with closed(front), front.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert one(connection, long[:-5000])[0] == 429
        connection.sendall(long[-5000:] + hurry[:-20])
        assert one(connection, hurry[-20:])[0] == 200


def test_as_soon_as_there_is_room_the_same_request_is_answered_on_the_same_connection(front: Front) -> None:
    with front.connect() as connection:
        with closed(front):
            assert [one(connection, post())[0] for _ in range(3)] == [429] * 3
        until(lambda: one(connection, post())[0] == 200)
        assert one(connection, post())[2]["outputs"]["out0"]["data"] == [1, 1, 1]


@pytest.mark.usefixtures("nothing_is_parsed")
def test_a_body_that_comes_later_is_dropped_and_what_follows_it_is_answered(front: Front) -> None:
    long = npy(np.zeros((1000, 3), np.float32))
    head, _, body = post(long).partition(b"\r\n\r\n")
    with closed(front), front.connect() as connection:
        for _ in range(2):
            assert one(connection, head + b"\r\n\r\n" + body[:100])[0] == 429
            connection.sendall(body[100:5000])
            connection.sendall(body[5000:] + LIVE)
            assert received(connection, 1)[0][0] == 200


def test_many_on_one_connection_are_answered_in_their_order(front: Front) -> None:
    with closed(front), front.connect() as connection:
        connection.sendall(LIVE + post() + post(path="/models/one/infer") + LIVE + post() + LIVE)
        assert [status for status, _, _ in received(connection, 6)] == [200, 429, 429, 200, 429, 200]


@pytest.mark.usefixtures("nothing_is_parsed")
@pytest.mark.parametrize(
    "request_",
    [
        post(b"1\r\nx\r\n0\r\n\r\n", headers=b"transfer-encoding: chunked\r\n"),
        post(headers=b"connection: close\r\n"),
        post(headers=b"expect: 100-continue\r\n")[: -len(GOOD)],
        post().replace(b"content-length: %d" % len(GOOD), b"content-length: 5000000"),
        post().replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["chunked", "close", "expect", "long", "1.0"],
)
def test_where_the_rest_is_not_worth_reading_the_answer_is_the_last_one(front: Front, request_: bytes) -> None:
    with closed(front):
        ((status, headers, body),) = front.ask(request_)
        assert (status, headers["connection"], headers["retry-after"]) == (429, "close", "2")
        assert body["error"]["code"] == "queue_full"
    assert front.is_live()


@pytest.mark.usefixtures("nothing_is_parsed")
def test_who_offers_an_upgrade_is_refused_as_others_are_and_stays(front: Front) -> None:
    with closed(front), front.connect() as connection:
        for _ in range(3):
            assert one(connection, post(headers=b"connection: upgrade\r\nupgrade: h2c\r\n"))[0] == 429
    assert front.is_live()


@pytest.mark.usefixtures("nothing_is_parsed")
@pytest.mark.parametrize("path", ["/v2/models/one/infer", "/v2/models/one/versions/1/infer"])
def test_the_other_protocol_is_told_in_its_own_shape(front: Front, path: str) -> None:
    with closed(front), front.connect() as connection:
        for _ in range(3):
            status, headers, body = one(connection, post(V2, path))
            assert (status, headers["retry-after"]) == (429, "2") and body == {"error": "'one' is busy: it is a test"}


def test_who_comes_before_others_passes_however_its_request_is_cut(front: Front) -> None:
    path = "/v2/models/one/infer"
    with closed(front), front.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert one(connection, post(V2, path))[0] == 429
        hurry = post(HURRY, path)
        assert one(connection, hurry)[2]["outputs"][0]["data"] == [2, 3, 4]
        padded = post(V2 + b" " * (len(HURRY) - len(V2)), path)
        assert one(connection, padded)[0] == 429  # of the same length, byte for byte the same head
        assert one(connection, hurry)[0] == 200
        for cut in (hurry.index(b"\r\n\r\n") + 4, len(hurry) - 1, 10):
            connection.sendall(hurry[:cut])
            assert one(connection, hurry[cut:])[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(b'{"model":"one","inputs":[[1,2,3]]}', "/infer", b"content-type: application/json\r\n"), 429),
        (post(path="/infer?model=one&model=one"), 400),
        (post(path="/models/one/infer?model=two"), 400),
        (post(path="/infer?model=three"), 404),
        (post(path="/infer?model=one&version=9"), 404),
        (post(path="/infer?model=one&version=-"), 400),
        (post(path="/infer?model=two"), 200),
        (post(headers=b"x-request-timeout-ms: soon\r\n"), 400),
        (post(headers=b"x-request-timeout-ms: 100000\r\n"), 429),
        (post(headers=b"a: b\r\na: c\r\n"), 429),
        (post(path="/models/one/infer").replace(b"POST", b"PUT"), 429),
        (post(path="/models/one/infer").replace(b"POST", b"PATCH"), 405),
        (b"GET /models/one HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    ],
)
def test_what_its_head_does_not_tell_goes_its_usual_way(front: Front, request_: bytes, status: int) -> None:
    with closed(front), front.connect() as connection:
        assert [one(connection, request_)[0] for _ in range(2)] == [status] * 2


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.name == "app.access" and "POST" in each.getMessage()]


def test_ids_traces_origins_and_lines_of_the_log_are_what_they_are_elsewhere(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    asked = b"x-request-id: mine\r\ntraceparent: 00-%b-b7ad6b7169203331-01\r\n" % trace.encode()
    with closed(front), front.connect() as connection, caplog.at_level(logging.INFO, "app.access"):
        for _ in range(2):
            _, headers, _ = one(connection, post(headers=asked))
            assert headers["x-request-id"] == "mine" and headers["traceparent"].split("-")[1] == trace
        _, headers, _ = one(connection, post(headers=b"origin: https://good.example\r\n"))
        assert headers["access-control-allow-origin"] == "https://good.example"
        assert "access-control-allow-origin" not in one(connection, post())[1]
        one(connection, post())
        # A line comes after its answer, and that of what was asked while the server was started as late as now.
        until(lambda: len(told(caplog)) >= 5)
    lines = told(caplog)
    assert [record.getMessage() for record in lines] == ["POST /infer 429"] * 5
    assert {record.model for record in lines if hasattr(record, "model")} == {"one"}


def test_who_brings_no_key_is_told_so_and_nothing_else(store: Path) -> None:
    with listening(store, warmup=False, backend="reference", keys="infer: open-sesame-open-sesame") as front:
        key = b"authorization: Bearer open-sesame-open-sesame\r\n"
        with closed(front), front.connect() as connection:
            for headers, status in ((b"", 401), (key, 429), (key.replace(b"open", b"shut"), 401), (key, 429)):
                assert one(connection, post(headers=headers))[0] == status


def test_clients_that_go_away_before_they_are_told_leave_nothing_behind(front: Front) -> None:
    with closed(front):
        for _ in range(20):
            with front.connect() as connection:
                connection.sendall(post())
    until(lambda: front.open == 0 and not front.server.plane.memory.used)
    assert front.is_live()


def test_a_client_that_asks_again_at_once_is_read_more_rarely_and_is_answered_when_there_is_room(front: Front) -> None:
    with front.connect() as connection:
        with closed(front):
            start = time.monotonic()
            assert one(connection, post())[0] == 429  # told at once; only what comes next waits
            for _ in range(3):
                assert one(connection, post())[0] == 429
            assert time.monotonic() - start > 0.5
        assert one(connection, post())[0] == 200
        for _ in range(3):
            assert one(connection, post())[0] == 200


def test_a_client_that_goes_away_while_it_is_not_read_is_forgotten(front: Front) -> None:
    with closed(front):
        for request in (b"", post(), post()[:50]):
            with front.connect() as connection:
                for _ in range(3):
                    assert one(connection, post())[0] == 429
                connection.sendall(request)
    until(lambda: front.open == 0)
    assert front.is_live()
