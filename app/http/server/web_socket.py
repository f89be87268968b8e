"""WebSockets (RFC 6455) that run a model: each message is the body of a request, and all of them are one sequence.

With ``sample_rate`` in the query, messages are pieces of one sound instead (see ``stream_requests``). The library
``wsproto`` reads and writes frames; this module has the handshake and the limits.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from starlette.datastructures import QueryParams

from app.codec.answers import dump_json
from app.codec.parse import JSON
from app.errors import InternalError, InvalidRequestError, RequestTooLargeError, SequenceNotFoundError, ServiceError
from app.http.access import AccessPolicy
from app.http.body import INLINE_BYTES
from app.http.middleware import Exchange
from app.http.model_request import WorkItem
from app.http.responses import error_response
from app.http.routes.infer import InferHead
from app.http.server.connection import Connection
from app.http.server.messages import Head, Request
from app.http.server.stream_requests import RATE, BodyRequests, StreamRequests, open_pcm
from app.memory.reservation import Reservation
from app.metrics.collector import MetricsCollector
from app.models.request import InferRequest
from app.models.sequences import SequenceStep
from app.models.statistics import Account, account
from app.serving.dataplane import DataPlane

try:
    from wsproto import connection as wsproto
    from wsproto import events
    from wsproto.utilities import LocalProtocolError, generate_accept_token
except ImportError:  # an extra
    wsproto = None  # type: ignore[assignment]

log = logging.getLogger("app.http.middleware")

ENDING: Final = "/stream"
_VERSION: Final = b"13"
_KEY_BYTES: Final = 16
# A browser sends no headers of a page's choice. It offers these protocols: this one, and one with the key in base64.
_PROTOCOLS: Final = b"sec-websocket-protocol"
_PROTOCOL: Final = b"pnnx-serve"
_KEY_PREFIX: Final = b"key."
# Codes of RFC 6455 section 7.4.1, and of its registry.
_GOING_AWAY, _NOT_ACCEPTED, _TOO_BIG, _RESTARTED = 1001, 1008, 1009, 1012


def stream_model(method: str, path: str) -> str | None:
    """Return the model in the path of a WebSocket, or None for other requests."""
    match path.split("/"):
        case ["", "models", name, "stream"] if name and method == "GET":
            return name
    return None


class WebSocketRequest(Request):
    """Request that becomes a WebSocket.

    Args:
        connection: carries it.
        head: its head.
        name: model in the path.
        plane, access, metrics: of the app.
    """

    def __init__(
        self,
        connection: Connection,
        head: Head,
        name: str,
        *,
        plane: DataPlane,
        access: AccessPolicy,
        metrics: MetricsCollector,
    ) -> None:
        super().__init__(head)
        self._connection, self._name, self._plane, self._access = connection, name, plane, access
        self._metrics = metrics
        self._exchange = Exchange(head.method, head.path, head.headers)
        self._frames: Any = None
        self._requests: StreamRequests  # set by the handshake
        self._id = secrets.token_bytes(16)
        self._has_begun = self._is_over = False
        # The message that is arriving, and its memory.
        self._message = bytearray()
        self._reservation: Reservation | None = None
        # Complete messages that wait for the one that runs.
        self._waiting: list[tuple[bytearray, bool, Reservation]] = []
        self._task: asyncio.Task[None] | None = None
        # Times of the last activity, and of the beginning of the message that is arriving.
        self._used_s = self._since_s = 0.0

    # The handshake

    def complete(self) -> None:
        """Accept the WebSocket, or refuse it with an error in the usual form."""
        try:
            token = self._accept()
        except ServiceError as error:
            response = error_response(error)
            headers = self._exchange.headers(response.raw_headers)
            self._connection.start(self, response.status_code, headers, [bytes(response.body)])
            self._count(response.status_code)
            self._connection.end(self)
            return
        answer = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", token)]
        if any(name == _PROTOCOLS and _PROTOCOL in _listed(value) for name, value in self.head.headers):
            answer.append((_PROTOCOLS, _PROTOCOL))
        headers = self._exchange.headers(answer)
        self._frames = wsproto.Connection(wsproto.ConnectionType.SERVER)
        self._used_s = self._connection.loop.time()
        self._count(101)
        self._connection.upgrade(self, headers)

    def _accept(self) -> bytes:
        """Return the token of the answer.

        Raises:
            ServiceError: the request is not allowed, names no model that serves, or is not a WebSocket's.
        """
        head, headers = self.head, dict(reversed(self.head.headers))
        known = [*head.headers, *_key_of(headers.get(_PROTOCOLS, b""))]
        fault = self._access.fault(head.method, head.path, known, head.query, self._connection.client)
        if fault is not None:
            raise fault
        if headers.get(b"upgrade", b"").lower() != b"websocket" or headers.get(b"sec-websocket-version") != _VERSION:
            raise InvalidRequestError("Upgrade: expected a WebSocket of version 13")
        key = headers.get(b"sec-websocket-key", b"")
        try:
            is_key = len(base64.b64decode(key, validate=True)) == _KEY_BYTES
        except binascii.Error:
            is_key = False
        if not is_key:
            raise InvalidRequestError(f"Sec-WebSocket-Key: found no key, expected {_KEY_BYTES} bytes in base64")
        if wsproto is None:
            raise InvalidRequestError("WebSockets need the extra 'stream': pip install 'pnnx-serve[stream]'")
        query = dict(QueryParams(head.query)) if head.query else {}
        rate = query.pop(RATE, None)
        infer_head = replace(InferHead.of(headers, query, self._name), media_type=JSON, content_type="")
        version = self._plane.store.version(self._name, infer_head.version)
        self._requests = (
            BodyRequests(self._plane, infer_head) if rate is None else open_pcm(self._plane, infer_head, version, rate)
        )
        return generate_accept_token(key)

    def _count(self, status: int) -> None:
        self._exchange.status = status
        self._metrics.statuses[status] += 1
        if self._plane.settings.access_log:
            self._exchange.enter()
            self._exchange.log()
            self._exchange.leave()

    # Messages that come

    def take(self, piece: bytes | memoryview) -> None:
        """Read frames."""
        if self._frames is None or self._is_over:
            return
        self._frames.receive_data(bytes(piece))
        for event in self._frames.events():
            if isinstance(event, events.Message):
                self._take_message(event)
            elif isinstance(event, events.Ping):
                self._write(event.response())
            elif isinstance(event, events.CloseConnection):
                self._close(event.code)
            if self._is_over:
                return
        self._answer_next()

    def _take_message(self, event: Any) -> None:
        is_text = isinstance(event, events.TextMessage)
        data = event.data.encode() if is_text else event.data
        try:
            if self._reservation is None:
                self._reservation = self._plane.memory.open()
            most = self._plane.settings.max_body_bytes
            if len(self._message) + len(data) > most:
                raise RequestTooLargeError(f"the message is too large, expected at most {most} bytes", limit=most)
            self._reservation.charge(len(data), arriving=True)
        except ServiceError as error:
            self._send(error.body())
            self._close(_TOO_BIG if isinstance(error, RequestTooLargeError) else _NOT_ACCEPTED)
            return
        self._used_s = self._connection.loop.time()
        self._since_s = self._since_s if self._message else self._used_s
        self._message += data
        if not event.message_finished:
            return
        self._waiting.append((self._message, is_text, self._reservation))
        self._message, self._reservation = bytearray(), None

    def _answer_next(self) -> None:
        """Answer the next message: on the event loop if no other waits and it takes no time, otherwise in a task."""
        if not self._waiting or self._task is not None or self._is_over:
            return
        account.set(Account(self._exchange.id))
        item, is_answered = None, False
        is_short = len(self._waiting[0][0]) <= INLINE_BYTES
        if is_short and len(self._waiting) == 1 and self._connection.flowing.is_set():
            item, is_answered = self._try_now(*self._waiting[0])
        if not is_answered:
            self._connection.hold("stream")  # the client's next messages stay in its socket
            self._task = self._connection.run(self._answer_in_threads(item))
            self._task.add_done_callback(self._ended)
        elif not self._is_over:
            self._waiting.pop()[2].close()
        account.set(None)

    def _try_now(self, body: bytearray, is_text: bool, reservation: Reservation) -> tuple[WorkItem | None, bool]:
        """Return the request of a short message, and whether it was answered."""
        item: WorkItem | None = None
        with self._failing(), reservation:
            reservation.arrived()
            item = self._requests.work_item(body, is_text)
            answer = self._requests.empty() if item is None else self._answer_now(item)
            if answer is None:
                return item, False
            self._reply(answer)
        return item, True

    async def _answer_in_threads(self, item: WorkItem | None) -> None:
        body, is_text, reservation = self._waiting.pop(0)
        try:
            with self._failing(), reservation:
                reservation.arrived()
                if item is None:
                    item = await self._requests.work_item_in_thread(body, is_text)
                self._reply(self._requests.empty() if item is None else await self._answer(item))
        finally:
            reservation.close()
        await self._connection.flowing.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            self.lost()
        self._answer_next()
        if self._task is None:
            self._connection.release("stream")

    def _reply(self, answer: bytes) -> None:
        self._write(events.TextMessage(data=answer.decode()))
        self._used_s = self._connection.loop.time()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Answer an error as JSON; the sequence goes on."""
        try:
            yield
        except ServiceError as error:
            self._send(error.body())
            if isinstance(error, SequenceNotFoundError):  # the model was loaded again
                self._close(_RESTARTED)
        except Exception:
            log.exception("a message of a WebSocket failed")
            message = f"internal error; see the server's log, request id {self._exchange.id}"
            self._send(InternalError(message).body())

    def _answer_now(self, item: WorkItem) -> bytes | None:
        """Return the JSON that answers a message if that takes no time, else None."""
        reply = self._plane.answer_now(item.version, self._in_sequence(item), item.encode, item.deadline)
        return None if reply is None else self._requests.answer(b"".join(reply.pieces))

    async def _answer(self, item: WorkItem) -> bytes:
        """Return the JSON that answers a message."""
        reply = await self._plane.infer_version(item.version, self._in_sequence(item), item.encode, item.deadline)
        self._has_begun = True
        return self._requests.answer(b"".join(reply.pieces))

    def _in_sequence(self, item: WorkItem) -> InferRequest:
        return item.work._replace(sequence=SequenceStep(self._id, 0, is_start=not self._has_begun, is_end=False))

    # The end

    def check_deadline(self) -> None:
        """Close if the client has sent nothing for too long, or a message does not end."""
        now, settings = self._connection.loop.time(), self._plane.settings
        if self._task is None and not self._message and now - self._used_s > settings.keep_alive_s:
            self._close(_GOING_AWAY)
        elif self._message and now - self._since_s > settings.body_timeout_s:
            self._close(_NOT_ACCEPTED)

    def stop(self) -> None:
        """Close, because the server stops."""
        self._close(_GOING_AWAY)

    def lost(self) -> None:
        """End the sequence and free the memory: the connection is closed."""
        if self._is_over:
            return
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        for _, _, reservation in self._waiting:
            reservation.close()
        self._waiting.clear()
        entry = self._plane.store.find(self._name)
        for version in () if entry is None else entry.versions:
            if version.model is not None and version.model.sequences is not None:
                version.model.sequences.end((self._id, 0))

    def _close(self, code: int) -> None:
        """Answer the client's close frame, or send one, and close the connection."""
        if self._is_over:
            return
        if self._frames is not None:
            self._write(events.CloseConnection(code=code if 1000 <= code < 5000 else 1000))
        self.lost()
        self._connection.finish(self)

    def _send(self, value: object) -> None:
        self._write(events.TextMessage(data=dump_json(value).decode()))

    def _write(self, event: Any) -> None:
        if self._is_over:
            return
        try:
            self._connection.write(self, [self._frames.send(event)])
        except LocalProtocolError:  # the client has closed meanwhile
            return


def _listed(value: bytes) -> list[bytes]:
    return [each.strip() for each in value.split(b",", _MOST_PROTOCOLS)]


_MOST_PROTOCOLS: Final = 8


def _key_of(protocols: bytes) -> list[tuple[bytes, bytes]]:
    """Return the key in the offered protocols as a header, or none."""
    for each in _listed(protocols):
        if each.startswith(_KEY_PREFIX):
            text = each.removeprefix(_KEY_PREFIX)
            with suppress(binascii.Error):
                return [(b"x-api-key", base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))]
    return []
