"""One request on the short way: what the app's layers do for others, in one place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from app.codec.parse import parse
from app.errors import ServiceError
from app.http import responses
from app.http.body import charge_whole
from app.http.exchange import GONE, Exchange
from app.http.gate import Visit
from app.http.order import Order, Reply
from app.http.routes import infer
from app.http.v2 import errors
from app.http.v2 import infer as v2
from app.http.wire.known import Known
from app.memory.budget import Allowance
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


class ShortRequest:
    """A request whose body is there.

    Attributes:
        exchange: what is told of it.
    """

    __slots__ = ("_allowance", "_body", "_known", "_means", "_order", "_visit", "exchange")

    def __init__(self, means: Means, known: Known, visit: Visit, body: bytearray) -> None:
        self._means = means
        self._known = known
        self._visit = visit
        self._body = body
        self._order: Order | None = None
        self._allowance: Allowance | None = None
        self.exchange = Exchange(visit.target.method, visit.target.path, ())  # a known head has no id of its own
        self.exchange.received = len(body)

    def now(self) -> Answered | None:
        """The answer, where it takes no time to make it; None where ``later`` makes it."""
        plane = self._means.plane
        self.exchange.enter()
        try:
            with plane.memory.answering() as allowance:
                charge_whole(self._body, plane.settings.max_body_bytes, allowance)
                order = self._read()
                reply = plane.answer_now(*order)
        except ServiceError as error:
            return self._refused(error)
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
        assert self._order is not None and self._allowance is not None  # ``now`` came before
        self.exchange.enter()
        try:
            with self._allowance:
                reply = await self._means.plane.infer_version(*self._order)
        except ServiceError as error:
            return self._refused(error)
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

    def _read(self) -> Order:
        """What the body says."""
        (plane, regions, trace), said, body = self._means, self._known.said, self._body
        deadline = plane.deadline(said.limit_s)
        if isinstance(said, infer.InferHead):
            return infer.order_of(plane, said, parse(body, said.content_type, plane.settings), body, deadline)
        version = self._visit.version
        assert version.model is not None  # it is ready
        found = v2.Found(version, version.model, regions, trace)
        return v2.order_of(plane, said, said.parse(body, plane.settings), found, len(body), deadline)

    def _good(self, reply: Reply) -> Answered:
        return self._answered(200, responses.good_headers(*reply), reply.pieces)

    def _refused(self, error: ServiceError) -> Answered:
        response = errors.error_response(error) if self._visit.target.is_v2 else responses.error_response(error)
        return self._answered(response.status_code, response.raw_headers, (bytes(response.body),))

    def _failed(self) -> Answered:
        """Answer a fault nobody foresaw; within ``except``."""
        self.exchange.enter()
        log.exception("%s %s", self._visit.target.method, self._visit.target.path)
        status, headers, body = self.exchange.failure()
        return self._answered(status, headers, (body,))

    def _answered(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], pieces: Sequence[bytes | memoryview]
    ) -> Answered:
        self.exchange.status = status
        self.exchange.sent = sum(map(len, pieces))
        return Answered(status, self.exchange.headers(headers), pieces)
