"""Tests that requests answered by their connection get the same bytes as from the ASGI application."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.http.server import inference
from app.http.server.asgi import AsgiRequest
from app.http.server.inference import InferenceRequest
from app.http.server.states import State
from app.process.uvicorn_server import Server
from tests.app.pictures import encoded, npy
from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import HOST, LIVE, Front, answers, drain, listening, send
from tests.app.text_models import write_text_model
from tests.patience import until

HAS_TEXT = find_spec("tokenizers") is not None
ONES = npy(np.ones((1, 3), np.float32))
V2 = b'{"id":"7","inputs":[{"name":"in0","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}'
RAW = b'{"inputs":[{"name":"in0","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":12}}],'
RAW += b'"parameters":{"binary_data_output":true}}'
MANY = np.arange(30_000, dtype=np.float32).reshape(-1, 3)
FAR = json.dumps(
    {
        "inputs": [
            {
                "name": "in0",
                "shape": MANY.shape,
                "datatype": "FP32",
                "parameters": {"binary_data_size": MANY.nbytes},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
).encode()
FAR_LENGTH = b"inference-header-content-length: %d\r\n" % len(FAR)
LENGTH = b"inference-header-content-length: %d\r\n" % len(RAW)
JSON = b"content-type: application/json\r\n"
TRACE = b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"


def noise(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def post(body: bytes, path: str = "/models/one/infer", headers: bytes = b"", method: bytes = b"POST") -> bytes:
    first = b"%b %b HTTP/1.1\r\n%bcontent-length: %d\r\n" % (method, path.encode(), HOST, len(body))
    return first + headers + b"\r\n" + body


# Probes have no line of the log.
MARK = b"GET /models/two HTTP/1.1\r\n" + HOST + b"\r\n"
GOOD = {
    "json": post(b'{"inputs": [[1, 2, 3]]}', headers=JSON),
    "two items": post(b'{"inputs": [[1, 2, 3], [4, 5, 6]], "version": 1}', headers=JSON),
    "query": post(b'{"inputs": [[1, 2, 3]]}', "/infer?model=one&version=1&outputs=out0", JSON),
    "put": post(ONES, method=b"PUT"),
    "npy": post(ONES, headers=b"content-type: application/x-npy\r\naccept: application/x-npy\r\n"),
    "npz": post(ONES, headers=b"accept: application/x-npz\r\n"),
    "limit": post(ONES, headers=b"x-request-timeout-ms: 100000\r\n"),
    "not finite": post(npy(np.array([[np.nan, np.inf, 1]], np.float32))),
    "v2": post(V2, "/v2/models/one/infer", JSON),
    "v2 version": post(V2, "/v2/models/one/versions/1/infer"),
    "v2 binary": post(RAW + bytes(12), "/v2/models/one/infer", LENGTH),
    "kept": post(ONES, "/models/kept/infer"),
    "slow": post(ONES, "/models/slow/infer"),
    "long": post(b'{"inputs": [[1, 2, 3]]}' + b" " * 60_000, headers=JSON),
    # From here on too long to come in one piece.
    "far": post(b'{"inputs": [[1, 2, 3]]}' + b" " * 70_000, headers=JSON),
    "far npy": post(npy(MANY), headers=b"accept: application/x-npy\r\n"),
    "far npz": post(npy(MANY), headers=b"accept: application/x-npz\r\n"),
    "far v2": post(FAR + MANY.tobytes(), "/v2/models/one/infer", FAR_LENGTH),
    "far v2 text": post(V2 + b" " * 70_000, "/v2/models/one/infer", JSON),
    "far picture": post(encoded(noise(160, 160)), "/models/seen/infer", b"accept: application/x-npy\r\n"),
    "far limit": post(npy(MANY), headers=b"x-request-timeout-ms: 100000\r\naccept: application/x-npy\r\n"),
    "farther": post(npy(np.zeros((200_000, 3), np.float32)), headers=b"accept: application/x-npy\r\n"),
}
TEXT = {
    "openai": post(b'{"input": "The cat"}', "/v1/embeddings", JSON),
    "tei": post(b'{"inputs": ["The cat", "sat"]}', "/embed", JSON),
    "tei without a name": post(b'{"inputs": "The cat"}', "/", JSON),
    "openai limit": post(b'{"input": "The cat"}', "/v1/embeddings", b"x-request-timeout-ms: 100000\r\n"),
    "far openai": post(b'{"input": "The cat"}' + b" " * 70_000, "/v1/embeddings", JSON),
}
BAD_TEXT = {
    "openai key": post(b'{"inputs": "The cat"}', "/v1/embeddings", JSON),
    "openai json": post(b"{nope", "/v1/embeddings", JSON),
    "openai limit of nothing": post(b'{"input": "The cat"}', "/v1/embeddings", b"x-request-timeout-ms: 0\r\n"),
    "openai packed": post(b'{"input": "The cat"}', "/v1/embeddings", b"content-encoding: gzip\r\n"),
    "openai task": post(b'{"query": "The cat", "documents": ["sat"]}', "/v1/rerank", JSON),
    "tei type": post(b'{"inputs": 7}', "/embed", JSON),
}
BAD = {
    "no json": post(b"{nope", headers=JSON),
    "shape": post(b'{"inputs": [[1, 2]]}', headers=JSON),
    "other model": post(b'{"inputs": [[1, 2, 3]], "model": "two"}', headers=JSON),
    "no such version": post(b'{"inputs": [[1, 2, 3]], "version": 9}', headers=JSON),
    "type": post(b"x", headers=b"content-type: text/html\r\n"),
    "v2 text": post(b"[]", "/v2/models/one/infer"),
    "v2 shape": post(V2.replace(b"[1,3]", b"[2,2]"), "/v2/models/one/infer"),
    "v2 length": post(V2, "/v2/models/one/infer", b"inference-header-content-length: 9999\r\n"),
    "far text": post(b"{nope" + b" " * 70_000, headers=JSON),
    "far shape": post(npy(MANY.reshape(-1, 2)), headers=b"content-type: application/x-npy\r\n"),
    "far type": post(bytes(70_000), headers=b"content-type: text/html\r\n"),
    "far picture of nothing": post(encoded(noise(160, 160)), headers=b"content-type: image/png\r\n"),
    "far v2 shape": post(FAR + MANY.tobytes() + b"1", "/v2/models/one/infer", FAR_LENGTH),
    "far v2 length": post(V2 + b" " * 70_000, "/v2/models/one/infer", b"inference-header-content-length: 99999\r\n"),
    "v2 nan": post(b'{"inputs":[{"name":"in0","shape":[1],"datatype":"FP32","data":[1]}]}', "/v2/models/one/infer"),
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("short")
    for name in ("one", "kept", "slow"):
        write_model(folder, name, elementwise("add(@0,1)", "(?,3)f32"))
    write_model(folder, "seen", elementwise("add(@0,1)", "(1,3,8,8)f32"))
    if HAS_TEXT:
        write_text_model(folder, "embedding")
    (folder / "kept" / "config.toml").write_text("[response_cache]\nmax_bytes = 100000\n")
    with listening(folder, backend="reference", access_log=True) as made:
        made.server.plane.store.version("slow").model.inline_policy.rest_s = None  # type: ignore[union-attr]  # it is never quick
        yield made


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[InferenceRequest]:
    """Record the requests that their connection answers itself."""
    seen: list[InferenceRequest] = []

    def noted(*given: Any) -> InferenceRequest:
        seen.append(InferenceRequest(*given))
        return seen[-1]

    monkeypatch.setattr(inference, "InferenceRequest", noted)
    return seen


def asked(connection: socket.socket, *pieces: bytes) -> bytes:
    """Return the bytes of one answer to pieces sent one after the other."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for piece in pieces:
        connection.sendall(piece)
    data = b""
    while True:
        head, end, rest = data.partition(b"\r\n\r\n")
        if end and len(rest) >= int(head.lower().partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0]):
            return data
        piece = connection.recv(1 << 16)
        assert piece, "the connection ended"
        data += piece


def plain(answer: bytes) -> bytes:
    """Return an answer without what differs between requests."""
    answer = re.sub(rb"x-request-id: \S+", b"x-request-id: ?", re.sub(rb"date: [^\r]+", b"date: ?", answer))
    answer = re.sub(rb"dur=[0-9.]+", b"dur=?", re.sub(rb'_ms":[0-9.e-]+', b'_ms":?', answer))
    return re.sub(rb"content-length: \d+", b"content-length: ?", answer) if b'"timing"' in answer else answer


def with_header(request: bytes, header: bytes) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n", 1)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the log lines of all requests so far, without what differs; a request's line is written last."""
    kept = ("bytes_in", "bytes_out", "model", "version", "items", "trace_id")
    found = [each for each in caplog.records if each.name == "app.access"]
    return [
        {"text": each.getMessage(), **{key: value for key, value in each.__dict__.items() if key in kept}}
        for each in found
    ]


def figures(server: Server, model: str) -> tuple[Any, ...]:
    told = server.plane.store.version(model).statistics
    return (
        told.requests, told.items, told.runs, sum(told.failures.values()), dict(told.failures),
        sum(told.buckets.total), sum(told.buckets.items), told.hits.count,
        dict(handlers(server).statuses),
    )  # fmt: skip


def handlers(server: Server) -> inference.Service:
    return server.config.http.keywords["service"]  # type: ignore[union-attr, no-any-return]


def grown(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[Any]:
    """Return what was counted in between."""
    return [
        {key: count - old.get(key, 0) for key, count in new.items() if count != old.get(key, 0)}
        if isinstance(new, dict)
        else new - old
        for old, new in zip(before, after, strict=True)
    ]


@pytest.mark.parametrize("name", [*GOOD, *BAD, *TEXT, *BAD_TEXT])
def test_connection_and_application_answer_count_and_log_the_same(
    front: Front,
    direct: list[InferenceRequest],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    if name in TEXT | BAD_TEXT and not HAS_TEXT:
        pytest.skip("needs the extra text")
    request = (GOOD | BAD | TEXT | BAD_TEXT)[name]
    model = re.search(rb"kept|slow|seen|embed", request.partition(b"\r\n")[0])
    counted = "one" if model is None else {b"embed": "embedding"}.get(model[0], model[0].decode())
    cut = request.index(b"\r\n\r\n") + 4
    seen = []
    caplog.set_level(logging.INFO, "app.access")
    with front.connect() as connection:
        asked(connection, MARK)  # what came before has its line before this one has
        until(lambda: any("/models/two" in each["text"] for each in lines(caplog)))
        begun = len(lines(caplog))
        asked(connection, request)  # now it is kept where answers are kept
        until(lambda: len(lines(caplog)) > begun)
        direct.clear()
        for pieces, is_direct in (((request,), False), ((request,), True), ((request[:cut], request[cut:]), True)):
            before, count = figures(front.server, counted), len(lines(caplog))
            with monkeypatch.context() as patch:
                by(patch, is_direct)
                answer = asked(connection, *pieces)
                until(lambda: len(lines(caplog)) > count)  # noqa: B023  # it is called here
            line = lines(caplog)[-1] | ({"bytes_out": 0} if b'"timing"' in answer else {})
            seen.append((plain(answer), line, grown(before, figures(front.server, counted))))
    assert len(direct) == 2
    assert seen[0] == seen[1] == seen[2]
    assert (b" 200 OK" in seen[0][0]) == (name in GOOD | TEXT)


def test_a_long_body_may_come_in_any_pieces_with_others_before_and_behind_it(
    front: Front, direct: list[InferenceRequest]
) -> None:
    request = GOOD["farther"]
    cut = request.index(b"\r\n\r\n") + 4
    with front.connect() as connection:
        asked(connection, request)
        expected = plain(asked(connection, request))
        direct.clear()
        ends = (cut, cut + 1, cut + 65_536, cut + 1_100_000, len(request) - 1)
        for before, behind in zip((0, *ends[:-1]), ends, strict=True):
            pieces = (request[:before], request[before:behind], request[behind:])
            assert plain(asked(connection, *filter(None, pieces))) == expected
        assert len(direct) == len(ends)
        connection.sendall(GOOD["npy"] + request + request + LIVE)
        received = b""
        while received.count(b"HTTP/1.1 200") < 4 or not received.endswith(b'{"live":true}'):
            received += connection.recv(1 << 20)
        assert len(received) > 2 * 2_400_000


@pytest.mark.parametrize(
    ("size", "status"),
    [(b"0%d", 200), (b"0" * 5000 + b"%d", 200), (b"%d ", 200), (b" %d", 200), (b"+%d", 400), (b"%d_0", 400)],
    ids=lambda value: str(value)[-8:],
)
def test_a_length_is_a_number_of_digits(front: Front, size: bytes, status: int) -> None:
    request = post(ONES).replace(b"%d" % len(ONES), size % len(ONES))
    with front.connect() as connection:
        assert b" %d " % status in asked(connection, request)[:13]


@pytest.mark.parametrize("is_direct", [True, False], ids=["connection", "application"])
@pytest.mark.parametrize("have", [0, 1, 100_000, 1_300_000])
def test_who_goes_away_in_the_midst_of_a_long_body_is_counted_and_gives_everything_back(
    front: Front, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, have: int, is_direct: bool
) -> None:
    request = GOOD["farther"]
    by(monkeypatch, is_direct)
    cut = request.index(b"\r\n\r\n") + 4
    statuses = handlers(front.server).statuses
    caplog.set_level(logging.INFO, "app.access")
    with front.connect() as connection:
        asked(connection, request)
        until(lambda: len(lines(caplog)) == 1)
        before = statuses[400]
        connection.sendall(request[: cut + have])
        until(lambda: any(each.state is State.BODY for each in front.connections))
        until(lambda: front.server.plane.memory.used >= have)
    until(lambda: statuses[400] == before + 1 and not front.server.plane.memory.used)
    until(lambda: len(lines(caplog)) == 2)
    assert lines(caplog)[1]["text"] == "POST /models/one/infer 400"


@pytest.mark.parametrize("is_direct", [True, False], ids=["connection", "application"])
def test_a_long_body_that_is_late_is_told_so_and_ends_its_connection(
    front: Front, monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    request = with_header(GOOD["farther"], b"x-request-timeout-ms: 300\r\n")
    by(monkeypatch, is_direct)
    with front.connect() as connection:
        connection.sendall(request)  # which may be late itself
        assert connection.recv(8) == b"HTTP/1.1"
    with front.connect() as connection:
        connection.sendall(request[:1_300_000])
        assert told(answers(drain(connection))) == (504, "deadline_exceeded", "close")
    until(lambda: not front.server.plane.memory.used)


@pytest.mark.parametrize("is_direct", [True, False], ids=["connection", "application"])
def test_long_bodies_that_come_together_share_the_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    by(monkeypatch, is_direct)
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    body = npy(np.zeros((250_000, 3), np.float32))
    request = post(body, headers=b"accept: application/x-npy\r\n")
    cut = request.index(b"\r\n\r\n") + 4
    with listening(tmp_path, backend="reference", warmup=False, max_bytes_in_flight=10_600_000) as front:
        memory = front.server.plane.memory
        with ExitStack() as stack:
            first, second, third, fourth = (stack.enter_context(front.connect()) for _ in range(4))
            for at, connection in enumerate((first, second, third)):
                connection.sendall(request[: cut + 1])
                until(lambda: memory._arriving >= (at + 1) << 20)  # noqa: B023  # it is called here
            assert told(answers(send(fourth, request[: cut + 1]))) == (429, "queue_full", "close")
            first.sendall(request[cut + 1 : -1])
            until(lambda: memory._arriving > 5_000_000)
            second.sendall(request[cut + 1 : cut + 1 + (1 << 20)])
            assert told(answers(drain(second))) == (429, "queue_full", "close")
            assert b" 413 " in asked(first, request[-1:])[:13]  # there is room for it, and none to run it
        until(lambda: not memory.used)


def by(monkeypatch: pytest.MonkeyPatch, is_direct: bool) -> None:
    """Let the connection or the application answer requests."""
    if not is_direct:
        monkeypatch.setattr(inference.Service, "request", lambda _, *given: AsgiRequest(*given))


def told(found: list[tuple[int, dict[str, str], Any]]) -> tuple[int, str, str]:
    """Return status, error code and Connection header of the only answer."""
    ((status, headers, error),) = found
    return status, error["error"]["code"], headers["connection"]


def test_setting_max_body_bytes_is_held_against_what_is_announced(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    limits: dict[str, Any] = {"max_body_bytes": 100_000}
    with listening(tmp_path, backend="reference", warmup=False, **limits) as front:
        for length, status in ((100_000, 200), (100_000, 200), (100_001, 413), (10**18 - 1, 413), (10**30, 400)):
            head = post(b"", headers=JSON).replace(b"length: 0", b"length: %d" % length)
            with front.connect() as connection:
                answer = asked(connection, head, b'{"inputs": [[1, 2, 3]]}'.ljust(100_000) if status == 200 else b"")
            assert b" %d " % status in answer[:20]


def test_a_long_body_that_is_under_way_when_the_server_stops_is_answered(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    request = GOOD["farther"]
    with listening(tmp_path, backend="reference", warmup=False) as front, front.connect() as connection:
        asked(connection, request)
        connection.sendall(request[:1_300_000])
        until(lambda: front.server.plane.memory.used > 1_000_000)
        (own,) = front.connections
        assert own.state is State.BODY
        front.server._loop.call_soon_threadsafe(own.shutdown)  # type: ignore[union-attr]
        received = send(connection, request[1_300_000:])
    assert received.startswith(b"HTTP/1.1 200 OK") and b"\r\nconnection: close\r\n" in received
    assert received.endswith(np.ones(6, np.float32).tobytes())


def test_a_trace_is_answered_with_its_id(front: Front) -> None:
    with front.connect() as connection:
        assert all(b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-" in asked(connection, request)
                   for request in [with_header(GOOD["json"], TRACE)] * 3)  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (with_header(GOOD["json"], b"connection: close\r\n"), 200),
        (with_header(GOOD["v2"], b"accept-encoding: gzip\r\n"), 200),
        (with_header(GOOD["json"], b"accept: text/html\r\n"), 406),
        (with_header(GOOD["json"], b"content-encoding: gzip\r\n"), 415),
        (with_header(GOOD["json"], b"x-a: 1\r\nx-a: 2\r\n"), 200),
        (GOOD["json"].replace(b"HTTP/1.1", b"HTTP/1.0"), 200),
        (GOOD["json"].replace(b"/models/one", b""), 404),
        (GOOD["json"].replace(b"/one/", b"/none/"), 404),
        (GOOD["json"].replace(b"/one/", b"/%6fne/"), 200),
        (b"\r\n" + GOOD["json"], 200),
        (post(b"", headers=b"transfer-encoding: chunked\r\n").replace(b"content-length: 0\r\n", b"")
         + b"17\r\n{\"inputs\": [[1, 2, 3]]}\r\n0\r\n\r\n", 200),
    ],
    ids=["close", "gzip", "accept", "packed", "twice", "1.0", "unnamed", "unknown", "percent", "blank", "chunked"],
)  # fmt: skip
def test_unusual_requests_get_what_the_application_answers(
    front: Front, monkeypatch: pytest.MonkeyPatch, request_: bytes, status: int
) -> None:
    found = []
    for is_direct in (True, False):
        with monkeypatch.context() as patch, front.connect() as connection:
            by(patch, is_direct)
            found.append(plain(asked(connection, request_)))
    assert found[0] == found[1] and b" %d " % status in found[0][:13]


def test_a_request_may_come_in_any_pieces(front: Front) -> None:
    request = GOOD["json"]
    cut = request.index(b"\r\n\r\n") + 4
    with front.connect() as connection:
        expected = plain(asked(connection, request))
        for pieces in (
            (request[:10], request[10:]),
            (request[: cut + 5], request[cut + 5 :]),
            (request[:cut], request[cut : cut + 5], request[cut + 5 :]),
        ):
            for piece in pieces[:-1]:
                connection.sendall(piece)
                asked_live(front)  # by now the piece was read by itself
            assert plain(asked(connection, pieces[-1])) == expected
        # Two at once: the second one waits for its turn.
        connection.sendall(request + request + LIVE)
        received = b""
        while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b"}"):
            received += connection.recv(1 << 16)
        assert [status for status, _, _ in answers(received)] == [200, 200, 200]


def asked_live(front: Front) -> None:
    with front.connect() as connection:
        asked(connection, LIVE)


def test_a_body_that_looks_like_a_request_is_a_body(front: Front) -> None:
    inner = GOOD["json"]
    outer = post(inner, headers=b"content-type: application/json\r\nx-outer: 1\r\n")
    cut = outer.index(b"\r\n\r\n") + 4
    with front.connect() as connection:
        asked(connection, inner)
        for pieces in ((outer,), (outer,), (outer[:cut], outer[cut:])):
            assert b" 400 Bad Request" in asked(connection, *pieces)
        assert b" 200 OK" in asked(connection, inner)


def test_who_goes_away_is_not_answered_and_frees_its_place(
    front: Front, direct: list[InferenceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = front.server.plane.store.version("slow")
    began, goes_on = threading.Event(), threading.Event()
    run = version.model.runs.run  # type: ignore[union-attr]

    def held(*args: Any) -> Any:
        began.set()
        assert goes_on.wait(60)
        return run(*args)

    before = version.statistics.failures["cancelled"]
    with front.connect() as connection:
        asked(connection, GOOD["slow"])
        direct.clear()
        monkeypatch.setattr(version.model.runs, "run", held)
        connection.sendall(GOOD["slow"])
        assert began.wait(60)
    until(lambda: version.statistics.failures["cancelled"] == before + 1)
    goes_on.set()
    until(lambda: version.scheduler.is_empty and not front.server.plane.memory.used)
    assert len(direct) == 1


def test_a_request_whose_client_goes_away_before_its_task_begins_gives_everything_back(front: Front) -> None:
    statuses, loop = handlers(front.server).statuses, front.server._loop
    assert loop is not None
    with front.connect() as client:
        asked(client, MARK)
        (connection,) = front.connections
        before = statuses[499]

        def come_and_go() -> None:
            connection.get_buffer(-1)[: len(GOOD["slow"])] = GOOD["slow"]
            connection.buffer_updated(len(GOOD["slow"]))
            connection.connection_lost(None)
            connection.transport.abort()

        loop.call_soon_threadsafe(come_and_go)
        until(lambda: statuses[499] == before + 1)
    assert not front.server.plane.memory.used


def test_an_unexpected_fault_is_reported_as_ever(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with front.connect() as connection:
        asked(connection, GOOD["npy"])
        monkeypatch.setattr("app.http.routes.infer.parse", lambda *_: 1 // 0)
        answer = asked(connection, GOOD["npy"])
        monkeypatch.undo()
        assert b" 500 Internal Server Error" in answer and b"see the server's log, request id" in answer
        assert "ZeroDivisionError" in caplog.text and "Traceback" not in answer.decode()
        assert b" 200 OK" in asked(connection, GOOD["npy"])
    until(lambda: not front.server.plane.memory.used)


def test_pages_of_other_origins_are_answered_by_the_application(tmp_path: Path, direct: list[InferenceRequest]) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    settings: dict[str, Any] = {"backend": "reference", "cors_origins": ("https://good.example",)}
    with listening(tmp_path, **settings) as front, front.connect() as connection:
        assert b"vary: Origin" in asked(connection, GOOD["json"])
        answer = asked(connection, with_header(GOOD["json"], b"origin: https://good.example\r\n"))
        assert b"access-control-allow-origin: https://good.example" in answer and b"vary: Origin" in answer
    assert len(direct) == 1


def test_keys_are_asked_for_each_time(tmp_path: Path, direct: list[InferenceRequest]) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    key = "k" * 40
    with listening(tmp_path, backend="reference", warmup=False, keys=f"infer: {key}") as front:
        good = with_header(GOOD["json"], b"authorization: Bearer %b\r\n" % key.encode())
        with front.connect() as connection:
            for _ in range(2):
                assert b" 200 OK" in asked(connection, good)
                assert b" 401 Unauthorized" in asked(connection, GOOD["json"])
            keys = handlers(front.server)._state.keys
            keys.ring = type(keys.ring)({})
            assert b" 401 Unauthorized" in asked(connection, good)
    assert direct
