"""One request on the fast path: what the app's layers do for others, in one place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from app.codec.parse import parse
from app.errors import ServiceError
from app.http import responses
from app.http.body import INLINE_BYTES, charge_whole
from app.http.exchange import GONE, Exchange
from app.http.fast_path.heads import KnownHead
from app.http.order import Order, Reply
from app.http.refusing.visits import Visit
from app.http.routes import infer
from app.http.v2 import errors
from app.http.v2 import infer as v2
from app.memory.allowance import Allowance
from app.protocol.v2.regions import Regions
from app.protocol.v2.settings import TraceSettings
from app.serving.dataplane import DataPlane

# As the outermost layer logs it.
log = logging.getLogger("app.http.edge")


class Answered(NamedTuple):
    """An answer as it is sent."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    pieces: Sequence[bytes | memoryview]


class Means(NamedTuple):
    """What requests are answered with.

    regions: of shared memory, where there is any.
    trace: what the other protocol's clients may have noted down of requests.
    """

    plane: DataPlane
    regions: Regions | None
    trace: TraceSettings


class FastRequest:
    """A request whose head is known.

    Attributes:
        exchange: what is told of it.
        deadline: when it must have been answered, on time.monotonic()'s clock.
        visit: what it is for.
    """

    __slots__ = ("_allowance", "_body", "_known", "_means", "_order", "deadline", "exchange", "visit")

    def __init__(self, means: Means, known: KnownHead, visit: Visit) -> None:
        self._means = means
        self._known = known
        self.visit = visit
        self._body: bytearray | None = None
        self._order: Order | None = None
        self._allowance: Allowance | None = None
        self.deadline = means.plane.deadline(known.said.limit_s)
        self.exchange = Exchange(visit.target.method, visit.target.path, ())  # a known head has no id of its own

    @property
    def values_at(self) -> int:
        """Where in the body tensors begin, as far as the head says."""
        said = self._known.said
        return 0 if isinstance(said, infer.InferHead) else said.values_at

    def expect(self) -> Allowance:
        """What its body is charged to, which has yet to come.

        Raises:
            ServiceError: there is no room for it.
        """
        allowance = self._means.plane.memory.open()
        allowance.would_fit(self._known.body_bytes, arriving=True)
        self._allowance = allowance
        return allowance

    def now(self, body: bytearray) -> Answered | None:
        """The answer, where it takes no time to make it; None where ``later`` makes it.

        body: all of it, which is charged if that was not done while it came.
        """
        plane, order, reply = self._means.plane, None, None
        self._body = body
        self.exchange.received = len(body)
        self.exchange.enter()
        expected, self._allowance = self._allowance, None  # an error gives it back
        try:
            with plane.memory.answering(expected) as allowance:
                if expected is None:
                    charge_whole(body, plane.settings.max_body_bytes, allowance)
                if self._is_short(body):
                    order = self._read(body)
                    reply = plane.answer_now(*order)
        except ServiceError as error:
            return self.refused(error)
        except Exception:
            return self._failed()
        finally:
            self.exchange.leave()
        self._allowance, self._order = allowance, order
        return None if reply is None else self._good(reply)

    async def later(self) -> Answered:
        """The answer, made in the model's threads.

        Raises:
            CancelledError: nobody waits for it, or the server stops.
        """
        assert self._body is not None and self._allowance is not None  # ``now`` came before
        plane, order, reply = self._means.plane, self._order, None
        self.exchange.enter()
        try:
            with self._allowance:
                if order is None:
                    order = await self._read_apart(self._body)
                    reply = plane.answer_now(*order)
                if reply is None:
                    reply = await plane.infer_version(*order)
        except ServiceError as error:
            return self.refused(error)
        except asyncio.CancelledError:
            self.exchange.status = GONE
            raise
        except Exception:
            return self._failed()
        return self._good(reply)

    def close(self) -> None:
        """It is over: give back what it holds."""
        if self._allowance is not None:
            self._allowance.close()
            self._allowance = None

    def refused(self, error: ServiceError) -> Answered:
        """The answer that says what is wrong."""
        response = errors.error_response(error) if self.visit.target.is_v2 else responses.error_response(error)
        return self._answered(response.status_code, response.raw_headers, (bytes(response.body),))

    def _is_short(self, body: bytearray) -> bool:
        """Whether it is read in no time what the body says."""
        said = self._known.said
        if len(body) <= INLINE_BYTES:
            return True
        return said.is_short(body) if isinstance(said, infer.InferHead) else said.is_short(len(body))

    def _read(self, body: bytearray) -> Order:
        """What the body says."""
        plane, said = self._means.plane, self._known.said
        if isinstance(said, infer.InferHead):
            return infer.order_of(plane, said, parse(body, said.content_type, plane.settings), body, self.deadline)
        return v2.order_of(plane, said, said.parse(body, plane.settings), self._found, len(body), self.deadline)

    async def _read_apart(self, body: bytearray) -> Order:
        """The same of a long text, in a thread."""
        plane, said, deadline = self._means.plane, self._known.said, self.deadline
        if isinstance(said, infer.InferHead):
            return infer.order_of(plane, said, await infer.read(plane, body, said, deadline), body, deadline)
        text = await v2.read(plane, self.visit.version, said, body, deadline)
        return v2.order_of(plane, said, text, self._found, len(body), deadline)

    @property
    def _found(self) -> v2.Found:
        version = self.visit.version
        assert version.model is not None  # it is ready
        return v2.Found(version, version.model, self._means.regions, self._means.trace)

    def _good(self, reply: Reply) -> Answered:
        return self._answered(200, responses.good_headers(*reply), reply.pieces)

    def _failed(self) -> Answered:
        """Answer a fault nobody foresaw; within ``except``."""
        self.exchange.enter()
        log.exception("%s %s", self.visit.target.method, self.visit.target.path)
        status, headers, body = self.exchange.failure()
        return self._answered(status, headers, (body,))

    def _answered(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], pieces: Sequence[bytes | memoryview]
    ) -> Answered:
        self.exchange.status = status
        self.exchange.sent = sum(map(len, pieces))
        return Answered(status, self.exchange.headers(headers), pieces)
