"""Requests that run a model: recognised and refused by their head, read, run and answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams, State
from starlette.responses import Response

from app.errors import RetryLaterError, ServiceError
from app.http import responses
from app.http.access import AccessPolicy
from app.http.body import INLINE_BYTES, STEP, body_too_late, check_announced, check_length, client_disconnected, unread
from app.http.middleware import GONE, Exchange
from app.http.model_request import ModelRequest, Reply, RequestFactory, WorkItem
from app.http.routes import infer, text
from app.http.server.asgi import AsgiRequest
from app.http.server.connection import Connection
from app.http.server.messages import Head, Headers, Pieces, Request
from app.http.server.web_socket import WebSocketRequest, stream_model
from app.http.v2.app import error_response as v2_error_response
from app.http.v2.infer import read_head as v2_read_head
from app.memory.machine import uninitialised
from app.memory.reservation import Reservation
from app.serving.dataplane import DataPlane

# The same logger as for all other requests.
log = logging.getLogger("app.http.middleware")

# An unread rest of a body is dropped as it arrives; if it is longer, the connection is closed.
_DROPPED_BYTES: Final = 1 << 20


class Target(NamedTuple):
    """Path of a request that runs a model.

    route: template of the path.
    read: reads the headers and the query of a request.
    error_response: returns an error in the form of the protocol.
    """

    route: str
    read: Callable[[Mapping[bytes, bytes], Mapping[str, str]], RequestFactory]
    error_response: Callable[[ServiceError], Response] = responses.error_response


def find(method: str, path: str) -> Target | None:
    """Return the target of a request that runs a model, or None for any other request."""
    if method == "POST" and path in text.BODIES:
        return Target(path, partial(text.read_head, path), text.error_form(path))
    if not path.endswith(infer.ENDING) or method not in infer.METHODS:
        return None
    match path.split("/"):
        case ["", "models", name, _] if name:
            return Target(infer.MODEL_PATH, partial(infer.read_head, name))
        case ["", _]:
            return Target(infer.ENDING, partial(infer.read_head, None))
        case ["", "v2", "models", name, _] if name and method == "POST":
            return Target("/v2/models/{name}/infer", partial(v2_read_head, name, None), v2_error_response)
        case ["", "v2", "models", name, "versions", number, _] if name and number and method == "POST":
            route = "/v2/models/{name}/versions/{version}/infer"
            return Target(route, partial(v2_read_head, name, number), v2_error_response)
    return None


class Service:
    """Creates requests, and holds what they share.

    Args:
        state: state of the app, shared with the routes.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.plane: DataPlane = state.dataplane
        self.statuses, self.spans = state.metrics.statuses, state.spans
        self.has_log = state.settings.access_log
        self._has_origins = bool(state.settings.cors_origins)
        # Caches must distinguish origins if pages of other origins may send requests.
        self.always = [(b"vary", b"Origin")] if self._has_origins else []

    def request(self, connection: Connection, head: Head) -> Request:
        """Return the request of a head."""
        if (name := stream_model(head.method, head.path)) is not None:
            return WebSocketRequest(
                connection, head, name, plane=self.plane, access=self._state.access, metrics=self._state.metrics
            )
        target = find(head.method, head.path)
        if target is None or (self._has_origins and any(name == b"origin" for name, _ in head.headers)):
            return AsgiRequest(connection, head)
        return InferenceRequest(connection, head, self, target)

    def model_request(self, head: Head, target: Target) -> ModelRequest:
        """Return the model request of a head that is allowed.

        Raises:
            ServiceError: it is not allowed, or requests something that does not exist.
        """
        policy: AccessPolicy = self._state.access
        if head.parsed is None or policy.has_keys:
            fault = policy.fault(head.method, head.path, head.headers, head.query, None)
            if fault is not None:
                raise fault
        if head.parsed is None:
            headers = dict(reversed(head.headers))  # the first of each name
            head.parsed = target.read(headers, QueryParams(head.query) if head.query else {})
        create: RequestFactory = head.parsed
        return create(self._state)


class InferenceRequest(Request):
    """Request that runs a model; its protocol is a `ModelRequest`, as for the routes.

    It is answered once: ``_send`` and ``lost`` are its two ends.
    """

    def __init__(self, connection: Connection, head: Head, service: Service, target: Target) -> None:
        super().__init__(head)
        self._connection, self._service, self._target, self._plane = connection, service, target, service.plane
        self._exchange = Exchange(head.method, head.path, head.headers)
        if service.spans is not None:
            self._exchange.begin_trace()
        self._model_request: ModelRequest | None = None
        self._reservation: Reservation | None = None
        # The body, bytes of it that have arrived, and bytes of it that are charged.
        self._body, self._have, self._charged = bytearray(), 0, 0
        self._task: asyncio.Task[None] | None = None
        self._is_over = self._is_counted = False

    # The head

    def begin(self) -> None:
        """Refuse the request by its head, or expect its body."""
        length = self.head.length or 0
        try:
            model_request = self._model_request = self._service.model_request(self.head, self._target)
            if (version := model_request.version) is not None and not version.scheduler.is_empty:
                self._plane.admit(version, model_request.deadline, model_request.head_priority)
            check_announced(
                model_request.encoding, length, self._plane.settings.max_body_bytes, model_request.encodings
            )
            self._reservation = self._plane.memory.open()
            if length > INLINE_BYTES:
                with unread():
                    self._reservation.would_fit(length, arriving=True)
        except Exception as error:
            self._fail(error)
        else:
            self._connection.write_continue(self)

    # The body

    def take(self, piece: bytes | memoryview) -> None:
        """Copy a piece into the body."""
        length, count = self.head.length, len(piece)
        if not self._charge(count):
            return
        if length is None:
            self._body += piece
        else:
            if not self._have:
                self._body = uninitialised(length, 0 if self._model_request is None else self._model_request.values_at)
            self._body[self._have : self._have + count] = piece
        self._have += count

    def filled(self, count: int) -> memoryview | None:
        """Count bytes read into the body, charge the next ones, and return their buffer."""
        self._have += count
        step = min(STEP, (self.head.length or 0) - self._have)
        if not step or not self._charge(step):
            return None
        return memoryview(self._body)[self._have : self._have + step]

    def check_deadline(self) -> None:
        """Refuse the request if its deadline passes before the body is complete."""
        if self._model_request is not None and time.monotonic() > self._model_request.deadline:
            self._fail(body_too_late())

    def _charge(self, count: int) -> bool:
        """Charge so many more bytes, and return whether the memory is available; otherwise the request is refused."""
        if self._is_over or self._reservation is None:
            return False
        have = self._have + count
        try:
            check_length(have, self._plane.settings.max_body_bytes)
            if have > self._charged:
                with unread():
                    self._reservation.charge(have - self._charged, arriving=True)
                self._charged = have
        except ServiceError as error:
            self._fail(error)
            return False
        return True

    # The answer

    def complete(self) -> None:
        """Answer the request, on the event loop if that takes no time, otherwise in a task."""
        if self._is_over:
            return
        model_request, reservation, body = self._model_request, self._reservation, self._body
        assert model_request is not None and reservation is not None  # begin has set them, or the request is over
        item: WorkItem | None = None
        reply: Reply | None = None
        self._exchange.enter()
        try:
            with reservation:
                reservation.arrived()
                if model_request.is_short(body):
                    item = model_request.work_item(body)
                    reply = self._plane.answer_now(*item)
        except Exception as error:
            self._fail(error)
        else:
            if reply is not None:
                self._send(200, responses.good_headers(*reply), reply.pieces)
            else:
                answering = self._answer_in_threads(model_request, reservation, item)
                self._task = self._connection.run(answering)
                self._task.add_done_callback(self._ended)
        finally:
            self._exchange.leave()

    async def _answer_in_threads(
        self, model_request: ModelRequest, reservation: Reservation, item: WorkItem | None
    ) -> None:
        """Make the answer in the model's threads."""
        self._exchange.enter()
        try:
            with reservation:
                reply = None
                if item is None:
                    item = await model_request.work_item_in_thread(self._body)
                    reply = self._plane.answer_now(*item)
                if reply is None:
                    reply = await self._plane.infer_version(*item)
        except Exception as error:
            self._fail(error)
        else:
            self._send(200, responses.good_headers(*reply), reply.pieces)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Release what a cancelled task holds; the client has left or the server stops. The task may not have begun."""
        if task.cancelled():
            if self._connection.owns(self):
                self._connection.cut_off()
            self._release(GONE)

    def _fail(self, error: Exception) -> None:
        """Answer with an error, and drop the rest of the body. Called within ``except``."""
        if not isinstance(error, ServiceError):  # a bug
            log.exception("%s %s failed", self.head.method, self.head.path)
            status, headers, body = self._exchange.failure()
            self._send(status, headers, (body,))
            return
        if isinstance(error, RetryLaterError):
            self._connection.pause_after(self, (error.retry_after_ms or error.retry_after_s * 1e3) / 1e3)
        left = self._connection.left
        if left is None or left > _DROPPED_BYTES:
            self.keeps_alive = False
        response = self._target.error_response(error)
        self._send(response.status_code, response.raw_headers, (bytes(response.body),))

    def _send(self, status: int, headers: Headers, pieces: Pieces) -> None:
        """Send the answer as fast as the client receives it; the part that waits is charged memory."""
        if self._is_over:
            return
        self._is_over = True  # it is answered once
        exchange = self._exchange
        exchange.status, exchange.received, exchange.sent = status, self._have, sum(map(len, pieces))
        headers = exchange.headers([*headers, *self._service.always])
        is_short = exchange.sent <= responses.PIECE
        self._connection.start(self, status, headers, pieces if is_short else ())
        if is_short and self._connection.flowing.is_set():
            self._sent()
        else:
            self._connection.run(self._send_rest(() if is_short else pieces))

    async def _send_rest(self, pieces: Pieces) -> None:
        for piece in responses.cut_pieces(pieces):
            await self._connection.flowing.wait()
            self._connection.write(self, [piece])
        await self._connection.flowing.wait()
        self._sent()

    def _sent(self) -> None:
        self._release()
        self._connection.end(self)

    def lost(self) -> None:
        """Cancel the request, since the client has left."""
        if self._task is not None and not self._is_over:
            self._task.cancel()
        else:
            self._release(client_disconnected().status)

    def _release(self, status: int = 0) -> None:
        """Release what the request holds, and count and log it, once. status is that of a request without an answer."""
        if self._is_counted:
            return
        self._is_over = self._is_counted = True
        service, exchange = self._service, self._exchange
        exchange.status, exchange.received = exchange.status or status, self._have
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        self._body = bytearray()
        service.statuses[exchange.status] += 1
        if service.spans is not None:
            exchange.record(service.spans, self._target.route)
        if service.has_log:
            exchange.enter()
            exchange.log()
            exchange.leave()
