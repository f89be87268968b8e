"""Tests of the table of states: an answer goes to its own request, whenever it comes."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Coroutine
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.errors import RequestTimeoutError
from app.http.server.connection import Connection
from app.http.server.connections import Connections
from app.http.server.messages import Head, Request
from app.http.server.states import TRANSITIONS, Event, State
from app.settings import Settings
from tests.app.sockets import HOST

GET = b"GET /%b HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /%b HTTP/1.1\r\n" + HOST + b"content-length: 5\r\n\r\n"


def test_every_state_is_reached_and_leads_to_the_last_one() -> None:
    reached = {State.HEAD}
    for _ in State:
        reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
    assert reached | {State.LAST} == set(State)
    assert all(state.after(Event.LAST) is State.LAST for state in State)
    assert not any(state is State.LAST for state, _ in TRANSITIONS)


def test_a_next_request_needs_both_sides_to_be_done() -> None:
    ends = {(state, event) for (state, event), after in TRANSITIONS.items() if after is State.HEAD}
    assert ends == {(State.SEND, Event.ANSWER_END), (State.DROP, Event.BODY_END)}


class Transport(asyncio.Transport):
    """Transport that keeps what is written until it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = b""
        self.is_over = False

    def write(self, data: Any) -> None:
        assert not self.is_over
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class RecordingService:
    """Service that records requests, which drop their bodies and let the test answer."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def request(self, _: Connection, head: Head) -> Request:
        self.requests.append(Request(head))
        return self.requests[-1]


class Wire:
    """Connection without a socket."""

    def __init__(self) -> None:
        self.service, self.transport = RecordingService(), Transport()
        config = uvicorn.Config(lambda *_: None, log_config=None)
        self.connection = Connection(
            config, ServerState(), {}, connections=Connections(Settings()), service=cast("Any", self.service)
        )
        self.connection.connection_made(self.transport)

    def comes(self, data: bytes) -> None:
        """Pass bytes to the connection as asyncio does."""
        while data:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def answer(self, request: Request, text: bytes) -> None:
        """Answer a request, whatever has become of it."""
        self.connection.start(request, 200, [(b"content-length", b"%d" % len(text))], [text])
        self.connection.write(request, [b""])
        self.connection.end(request)


def on_loop(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_what_is_sent_behind_a_request_is_not_begun_before_that_is_answered() -> None:
    async def test() -> None:
        wire = Wire()
        wire.comes(GET % b"a" + POST % b"b" + b"12345" + GET % b"c")
        for number, path in enumerate(("/a", "/b", "/c")):
            assert [each.head.path for each in wire.service.requests][number:] == [path]
            wire.answer(wire.service.requests[number], path.encode())
            await asyncio.sleep(0)
        bodies = [each.rpartition(b"\r\n\r\n")[2] for each in wire.transport.written.split(b"HTTP/1.1 200 OK")[1:]]
        assert bodies == [b"/a", b"/b", b"/c"]

    on_loop(test())


def test_an_answer_to_a_request_that_is_over_is_written_for_no_other_one() -> None:
    async def test() -> None:
        wire = Wire()
        wire.comes(GET % b"a")
        (first,) = wire.service.requests
        wire.answer(first, b"first")
        before = wire.transport.written
        wire.answer(first, b"again")
        wire.comes(GET % b"b")
        wire.answer(first, b"again")
        assert wire.transport.written == before and wire.connection.state is State.RUN
        wire.answer(wire.service.requests[1], b"second")
        assert wire.transport.written.endswith(b"second") and b"again" not in wire.transport.written

    on_loop(test())


@pytest.mark.parametrize("head", [GET % b"a", POST % b"a", POST % b"a" + b"123"])
@pytest.mark.parametrize("end", ["lost", "late"])
def test_an_answer_that_comes_when_its_client_is_gone_or_refused_is_dropped(head: bytes, end: str) -> None:
    async def test() -> None:
        wire = Wire()
        wire.comes(head)
        (request,) = wire.service.requests
        if end == "lost":
            wire.connection.connection_lost(None)
        else:
            wire.connection.refuse(RequestTimeoutError("it took too long"))
        before = wire.transport.written
        wire.answer(request, b"late")
        assert wire.transport.written == before and b"late" not in before
        assert wire.connection.state is State.LAST

    on_loop(test())


def test_the_same_head_again_is_a_request_of_its_own() -> None:
    async def test() -> None:
        wire = Wire()
        for _ in range(3):
            wire.comes(POST % b"a" + b"12345")
            wire.answer(wire.service.requests[-1], b"x")
        one, two, three = wire.service.requests
        assert one is not two is not three and one.head is two.head is three.head
        assert len(wire.connection._connections.heads) == 1

    on_loop(test())


def test_a_client_is_paused_after_refusals_and_not_after_other_answers() -> None:
    async def test() -> None:
        wire = Wire()
        connection = wire.connection

        def asks(*, is_refused: bool) -> bool:
            """Return whether the client is paused after the answer."""
            connection.release("refused")
            wire.comes(GET % b"a")
            if is_refused:
                connection.pause_after(wire.service.requests[-1], 0.1)
            wire.answer(wire.service.requests[-1], b"x")
            return "refused" in connection._holds

        asked = [asks(is_refused=is_refused) for is_refused in (True, True, False, False, True, False)]
        assert asked == [True, True, False, False, True, False]

    on_loop(test())


def test_what_a_client_goes_on_sending_after_the_last_answer_is_bounded() -> None:
    async def test() -> None:
        wire = Wire()
        aborted: list[bool] = []
        wire.transport.abort = lambda: aborted.append(True)  # type: ignore[method-assign]
        wire.comes(GET % b"a" + GET % b"b")
        wire.connection.shutdown()
        wire.answer(wire.service.requests[-1], b"x")
        wire.comes(bytes(4 * 2**20))
        assert not aborted
        wire.comes(b"x")
        assert aborted and len(wire.service.requests) == 1

    on_loop(test())


def test_a_client_is_not_told_to_continue_within_an_answer() -> None:
    async def test() -> None:
        wire = Wire()
        wire.comes((POST % b"a").replace(HOST, HOST + b"expect: 100-continue\r\n"))
        (request,) = wire.service.requests
        wire.connection.start(request, 200, [], [])
        wire.connection.write_continue(request)
        assert b"100" not in wire.transport.written and b"connection: close" in wire.transport.written

    on_loop(test())


def test_heads_that_are_kept_are_bounded() -> None:
    async def test() -> None:
        wire = Wire()
        for number in range(2000):
            wire.comes(GET % b"%d" % number)
            wire.answer(wire.service.requests[-1], b"x")
        assert len(wire.connection._connections.heads) <= 512
        wire.comes(GET % (b"x" * 4000))
        assert all(len(text) <= 2048 for text in wire.connection._connections.heads)

    on_loop(test())


@pytest.mark.parametrize("data", [b"", GET % b"a", POST % b"a" + b"123", POST % b"a" + b"12345", b"NO\r\n\r\n"])
def test_a_connection_that_is_over_leaves_nothing_to_the_garbage_collector(data: bytes) -> None:
    async def test() -> weakref.ref[Connection]:
        wire = Wire()
        wire.comes(data)
        wire.connection.connection_lost(None)
        return weakref.ref(wire.connection)

    gc.disable()
    try:
        assert asyncio.run(test())() is None
    finally:
        gc.enable()


CHUNKED = b"POST /a HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("lines", "answered"), [(0, 2), (40, 2), (200, 1)])
@pytest.mark.parametrize("size", [1 << 20, 7, 1])
def test_a_chunked_body_may_have_empty_lines_and_a_request_behind_it(lines: int, answered: int, size: int) -> None:
    async def test() -> None:
        wire = Wire()
        body = b"\r\n\r\n" * lines + b"x"
        data = CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + GET % b"b"
        for at in range(0, len(data), size):
            wire.comes(data[at : at + size])
        if wire.connection.state is State.RUN:
            wire.answer(wire.service.requests[0], b"x")
            await asyncio.sleep(0)
        # Behind that many empty lines it is not looked for where in a piece the next request begins.
        expected = answered if size > 1 else 2
        is_refused = b" 400 Bad Request" in wire.transport.written
        assert (len(wire.service.requests), is_refused) == (expected, expected == 1)

    on_loop(test())


def test_empty_lines_in_chunks_take_no_time() -> None:
    async def test() -> None:
        wire = Wire()
        wire.comes(CHUNKED + b"%x\r\n" % (1 << 24))
        start = time.process_time()
        wire.comes(b"\r\n" * (1 << 19))
        assert time.process_time() - start < 0.2 and wire.connection.state is State.BODY

    on_loop(test())
