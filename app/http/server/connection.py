"""One connection, from accept to close: received bytes go to the current request, and its answer goes out.

A protocol error is answered in the service's usual form, then the connection closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from app.errors import (
    HeadersTooLargeError,
    InvalidRequestError,
    RequestTimeoutError,
    ServiceError,
    TooManyConnectionsError,
)
from app.http.middleware import Exchange
from app.http.responses import error_response
from app.http.server.connections import Connections
from app.http.server.messages import CONTINUE, Head, Headers, Pieces, Reader, Request, head_of
from app.http.server.states import Event, State

if TYPE_CHECKING:
    from app.http.server.inference import Service

# Limits in time and bytes for a refused client that goes on sending: closing with unread bytes would reset the
# connection, and the answer could be lost.
_LINGER_S: Final = 2.0
_LINGER_BYTES: Final = 4 * 2**20
# Limits of the bytes around one chunk (its length and extensions, RFC 9112 section 7.1), and after the last chunk.
_FRAMING: Final = 16
_TRAILERS: Final = 16 * 1024
# Limit of the bytes read ahead of the current request's answer; a single read may exceed it by as much.
_AHEAD_BYTES: Final = 1 << 16
# Empty lines in a chunked body at which the parser is stopped, since one may be its end. Each stop takes microseconds;
# if a body has more, a request that is pipelined directly after it is refused.
_STOPS: Final = 64
# A refused client is not read before the time that it was told to wait, but at most for this time.
_PAUSE_S: Final = 0.2
# Time to answer a client that has half-closed the connection; one that has left looks the same.
_HALF_CLOSED_S: Final = 1.0
# Up to this size copying an answer is faster than sending a list of pieces.
_JOINED: Final = 1 << 17


class Connection(asyncio.BufferedProtocol):
    """A connection. uvicorn creates it, ends it (``shutdown``) and counts it; asyncio and `Connections` call it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        connections: Connections,
        service: Service,
    ) -> None:
        self.config, self.server = config, server_state
        self.loop = asyncio.get_event_loop()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set by connection_made
        self._connections, self._service, self._settings = connections, service, connections.settings
        self._most_head_bytes = self._settings.max_header_bytes + self._settings.max_url_bytes
        # The invariant: there is one request at a time, and all writes are for it (`owns`).
        self.state = State.HEAD
        self._request: Request | None = None
        self._served = 0
        self._reader = Reader()
        # Bytes of this head or body so far, its start time, and excess bytes around chunks; after the last answer,
        # dropped bytes.
        self._count, self._since, self._framing = 0, 0.0, 0
        # Since when a part of the answer waits for the client.
        self._slow_since = 0.0
        # Bytes of the body still to come (None: chunked), parser stops in it, and the buffer for its next bytes.
        self.left: int | None = 0
        self._stops = 0
        self._fill: memoryview | None = None
        # Bytes received after the current request.
        self._ahead = bytearray()
        # Reasons why reading is paused.
        self._holds: set[str] = set()
        # Set unless the client receives its answer too slowly.
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._pause_s = 0.0
        self._is_half_closed = False
        # When lingering after the last answer ends.
        self._until = 0.0

    # What asyncio and uvicorn call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio gives these
        """Register the connection if it is admitted."""
        self.transport = transport
        self.server.connections.add(self)  # type: ignore[arg-type]  # uvicorn calls shutdown, and nothing else
        address = transport.get_extra_info("peername")
        self.client = (str(address[0]), int(address[1])) if isinstance(address, (list, tuple)) else None
        self._since = self.loop.time()
        self._connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and cancel its request."""
        self.server.connections.discard(self)
        self._connections.remove(self)
        self._stop_answering()
        self._reader.close()
        self.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes: that of the request's body if it is long."""
        return self._connections.room if self._fill is None else self._fill

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that were read."""
        if self.state is State.DROP and self.left is not None and nbytes < self.left:
            self.left -= nbytes  # without a copy, since an overloaded server drops most bodies
            return
        if self._fill is None:
            data = bytes(self._connections.room[:nbytes])
            self._buffer_ahead(data) if self._ahead else self._feed(data)
            return
        assert self._request is not None and self.left is not None  # they provided the buffer
        self.left -= nbytes
        self._count += nbytes
        self._fill = self._request.filled(nbytes)
        if not self.left and self.state is not State.LAST:
            self._body_ends()

    def eof_received(self) -> bool:
        """Return whether the connection stays open after the client has half-closed it.

        It does for a short time if a request is complete, except over TLS, where asyncio closes both sides.
        """
        is_whole = self.state in (State.RUN, State.SEND)
        if not (is_whole or self._ahead) or self.transport.get_extra_info("sslcontext") is not None:
            return False
        self._is_half_closed = True
        self.loop.call_later(_HALF_CLOSED_S, self.transport.close)
        return True

    def pause_writing(self) -> None:
        """Note that the client receives its answer too slowly."""
        self.flowing.clear()

    def resume_writing(self) -> None:
        """Continue: the client has received most of its answer, or has left."""
        self.flowing.set()

    def shutdown(self) -> None:
        """Close after the answer to the current request, because the server stops."""
        if self._request is not None:
            self._request.stop()
        elif self.state is not State.LAST:
            self.transport.close()

    # What comes

    def _feed(self, data: bytes) -> None:
        """Pass bytes to the head or body; bytes after an answered request wait for the loop's next iteration."""
        at, served = 0, self._served
        try:
            while at < len(data) and served == self._served and self.state not in (State.RUN, State.SEND):
                if self.state is State.LAST:
                    self._count += len(data) - at
                    if self._count > _LINGER_BYTES:
                        self.cut_off()
                    return
                if self.state is State.STREAM and self._request is not None:
                    self._request.take(memoryview(data)[at:])
                    return
                at = self._feed_head(data, at) if self.state is State.HEAD else self._feed_body(data, at)
        except ServiceError as fault:
            self.refuse(fault)
            return
        if at < len(data):
            self._buffer_ahead(data[at:])
            if served != self._served:
                self.loop.call_soon(self._resume)

    def _feed_head(self, data: bytes, at: int) -> int:
        if not self._count:
            self._since = self.loop.time()
        stop = self._reader.cut(data, at, self._most_head_bytes - self._count)
        self._count += stop - at
        text = data[at:stop] if self._count == stop - at else b""  # a head that arrived in one piece
        head = self._connections.heads.get(text) or self._read_head(memoryview(data)[at:stop], text)
        if head is not None:
            self._begin(head)
        return stop

    def _read_head(self, piece: memoryview, text: bytes) -> Head | None:
        """Return the head that ends with a piece, or None if it continues.

        Raises:
            ServiceError: the head is invalid.
        """
        head, settings = self._reader.head(piece), self._settings
        if head is None:
            if self._count >= self._most_head_bytes:
                self._reader.found.check_size(settings)
                most = settings.max_header_bytes
                raise HeadersTooLargeError(f"the headers are too long, expected at most {most} bytes")
            return None
        head.check(settings)
        if text:
            self._connections.cache_head(text, head)
        if head.length:
            self._reader.skip()
        return head

    def _begin(self, head: Head) -> None:
        is_reserved = self in self._connections.reserved
        if is_reserved and not head.url.startswith((b"/health/", b"/metrics")):
            message = f"too many open connections, expected at most {self._connections.most}"
            raise TooManyConnectionsError(message)
        request = self._request = self._service.request(self, head)
        if self._connections.is_draining or is_reserved:
            request.keeps_alive = False
        event = Event.BODILESS if head.length == 0 else Event.HEAD
        self.state = self.state.after(event)
        self.left, self._stops = head.length, 0
        self._count, self._framing, self._slow_since = 0, 0, 0.0
        self._connections.mark_busy(self)
        request.begin()
        if event is Event.BODILESS and self.owns(request):
            request.complete()

    def _feed_body(self, data: bytes, at: int) -> int:
        if self.left is None:
            return self._feed_chunks(data, at)
        stop = min(len(data), at + self.left)
        self.left -= stop - at
        self._count += stop - at
        if self._request is not None:
            self._request.take(memoryview(data)[at:stop])
        if self.state is State.LAST:
            return stop
        if not self.left:
            self._body_ends()
        elif self._request is not None:
            self._fill = self._request.filled(0)
        return stop

    def _feed_chunks(self, data: bytes, at: int) -> int:
        stop = self._reader.cut(data, at, len(data)) if self._stops < _STOPS else len(data)
        self._stops += stop < len(data)
        self._count += stop - at
        pieces, is_whole = self._reader.chunks(memoryview(data)[at:stop])
        self._framing += stop - at
        for piece in pieces:
            self._framing -= len(piece) + _FRAMING
            if self._request is not None:
                self._request.take(piece)
        if self.state is State.LAST:
            return stop
        if self._framing > _TRAILERS:
            raise InvalidRequestError(f"chunk extensions or trailers are too long, expected at most {_TRAILERS} bytes")
        if is_whole:
            self._body_ends()
        return stop

    def _body_ends(self) -> None:
        self.state, self._fill, self.left = self.state.after(Event.BODY_END), None, 0
        if self._request is None:
            self._next()
        else:
            self._request.complete()

    def _buffer_ahead(self, data: bytes) -> None:
        """Buffer bytes received before the current request is answered; they are parsed afterwards."""
        if self.state is State.LAST or (self._request is not None and not self._request.keeps_alive):
            return  # nothing follows
        self._ahead += data
        if len(self._ahead) > _AHEAD_BYTES:
            self.hold("ahead")

    def _resume(self) -> None:
        """Parse the bytes received before the last request was answered."""
        data = bytes(self._ahead)
        self._ahead.clear()
        if self.transport.is_closing():
            return
        self.release("ahead")
        if data:
            self._feed(data)

    def hold(self, why: str) -> None:
        """Pause reading until ``release``."""
        if not self._holds and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds.add(why)

    def release(self, why: str) -> None:
        """Resume reading unless there is another reason to pause."""
        if why in self._holds:
            self._holds.remove(why)
            if not self._holds and not self.transport.is_closing():
                self.transport.resume_reading()

    # What goes

    def owns(self, request: Request) -> bool:
        """Return whether a request is the current one; nothing is written for any other."""
        return self._request is request

    def write_continue(self, request: Request) -> None:
        """Send 100 Continue if the client waits for it."""
        if self.owns(request) and request.expects:
            request.expects = False
            self._put([CONTINUE])

    def start(self, request: Request, status: int, headers: Headers, pieces: Pieces) -> None:
        """Write the head of an answer and the given pieces of its body."""
        if not self.owns(request):
            return
        if self.state is State.BODY and request.expects:  # the client may or may not send its body now
            request.keeps_alive = request.expects = False
        head = head_of(request, status, headers, self.server.default_headers)
        self.state = self.state.after(Event.START)
        self._put([head, *pieces])

    def upgrade(self, request: Request, headers: Headers) -> None:
        """Answer that the connection is a WebSocket now; the request gets all bytes that follow."""
        if self.owns(request):
            self.state = self.state.after(Event.UPGRADE)
            self._put([head_of(request, 101, headers, self.server.default_headers)])

    def finish(self, request: Request) -> None:
        """Close the connection of a WebSocket after what was written."""
        if self.owns(request):
            self._end()

    def write(self, request: Request, pieces: Pieces) -> None:
        """Write more of the answer."""
        if self.owns(request):
            self._put(pieces)

    def end(self, request: Request) -> None:
        """Complete the answer; the next request begins when the current body has ended as well."""
        if not self.owns(request):
            return
        self.state = self.state.after(Event.ANSWER_END)
        self.server.total_requests += 1
        self._request = self._fill = None
        self.release("body")
        if not request.keeps_alive:
            self._end()
        elif self.state is State.HEAD:
            self._next()
        else:
            self._since = self.loop.time()

    def pause_after(self, request: Request, seconds: float) -> None:
        """Do not read the client's next request before so many seconds after this answer."""
        if self.owns(request):
            self._pause_s = min(seconds, _PAUSE_S)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a part of a request in a task, which the server waits for when it stops."""
        task = self.loop.create_task(work)
        self.server.tasks.add(task)
        task.add_done_callback(self.server.tasks.discard)
        return task

    def _put(self, pieces: Pieces) -> None:
        if self.transport.is_closing():
            return
        if sum(map(len, pieces)) <= _JOINED:
            self.transport.write(b"".join(pieces))
        else:
            self.transport.writelines(pieces)

    def _next(self) -> None:
        """Wait for the next request, since this one is complete on both sides."""
        self._served += 1
        self._count, self._since = 0, self.loop.time()
        if self.transport.is_closing():
            return
        self._connections.mark_waiting(self)
        if self._pause_s:
            self.hold("refused")
            self.loop.call_later(self._pause_s, self.release, "refused")
            self._pause_s = 0.0
        if self._ahead:
            self.loop.call_soon(self._resume)
        elif self._is_half_closed:
            self.transport.close()

    # The end

    def refuse(self, error: ServiceError) -> None:
        """Stop reading and answer with this error, unless the answer to the current request has begun."""
        has_begun = self.state in (State.SEND, State.EARLY, State.DROP)
        self._stop_answering()
        if has_begun:
            self.transport.close() if self.flowing.is_set() else self.cut_off()
            return
        self._connections.refusals[error.code] += 1
        response, last = error_response(error), Request(Head())
        headers = Exchange("", "", ()).headers(response.raw_headers)
        self._put([head_of(last, response.status_code, headers, self.server.default_headers), response.body])
        self._linger()

    def _stop_answering(self) -> None:
        """Drop the current request and all that is received."""
        request, self._request, self._fill = self._request, None, None
        self.state = self.state.after(Event.LAST)
        self._count = 0
        self._ahead.clear()
        if request is not None:
            request.lost()

    def _end(self) -> None:
        """Close after the last answer, or linger if the client is still sending."""
        is_sending = self.state is State.DROP or bool(self._ahead)
        self._stop_answering()
        if is_sending:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._connections.mark_waiting(self)
        self._until = self.loop.time() + _LINGER_S
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        for why in [*self._holds]:
            self.release(why)

    # What `Connections` calls

    @property
    def is_taking_its_answer(self) -> bool:
        """Return whether bytes wait to be sent to the client."""
        return self.transport.get_write_buffer_size() > 0

    def cut_off(self) -> None:
        """Close at once, dropping what was not sent."""
        self.transport.abort()

    def check(self, now: float) -> None:
        """Enforce time limits: of a head, a body, an answer that is not received."""
        took = now - self._since
        if self._reads_too_slowly(now):
            self.cut_off()
        elif self._until:
            if self._slow_since:  # the client is still receiving
                self._until = now + _LINGER_S
            elif now > self._until:
                self.cut_off()
        elif self.transport.is_closing():
            return
        elif self._holds:  # the server has paused reading
            self._since = now
        elif self.state is State.STREAM and self._request is not None:
            self._request.check_deadline()
        elif self.state is State.HEAD:
            self._check_head(took)
        elif self.state is State.DROP:
            if took > self._settings.header_timeout_s:
                self.cut_off()
        elif self.state in (State.BODY, State.EARLY) and self._request is not None:
            if took > self._settings.body_timeout_s:
                self.refuse(RequestTimeoutError("the request's body did not arrive in time"))
            else:
                self._request.check_deadline()

    def _check_head(self, took: float) -> None:
        is_between = self._served > 0 and not self._count
        if took <= (self._settings.keep_alive_s if is_between else self._settings.header_timeout_s):
            return
        if self._count:
            self.refuse(RequestTimeoutError("the request's headers did not arrive in time"))
        else:
            self.transport.close()

    def _reads_too_slowly(self, now: float) -> bool:
        self._slow_since = (self._slow_since or now) if self.is_taking_its_answer else 0.0
        return self._slow_since > 0 and now - self._slow_since > self._settings.answer_timeout_s
