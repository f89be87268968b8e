"""A long body on its way in, on the fast path: charged as it comes, read to where it stays, waited for only so long."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from app.errors import ServiceError
from app.http.body import STEP, broken_off, too_late, unread
from app.http.fast_path.inlet import Inlet
from app.http.fast_path.request import FastRequest
from app.memory.allowance import Allowance
from app.memory.blank import unwritten


class Owner(Protocol):
    """Who answers."""

    def came(self, request: FastRequest, body: bytearray) -> None:
        """All of it is there."""
        ...

    def failed(self, request: FastRequest, error: ServiceError) -> None:
        """It is not, and nobody reads what may still come: the client is told so."""
        ...

    def lost(self, request: FastRequest, error: ServiceError) -> None:
        """It is not, and nobody is there to be told."""
        ...


class Arriving:
    """One body.

    Args:
        allowance: the request's; whoever has the request closes it.
        length: as its head says.
    """

    __slots__ = ("_allowance", "_body", "_have", "_inlet", "_length", "_owner", "_request", "_step", "_timer", "_whole")

    def __init__(self, owner: Owner, inlet: Inlet, request: FastRequest, allowance: Allowance, length: int) -> None:
        self._owner = owner
        self._inlet = inlet
        self._request = request
        self._allowance = allowance
        self._length = length
        self._have = self._step = 0
        self._body = unwritten(length, request.values_at)
        self._whole = memoryview(self._body)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, begun: memoryview) -> None:
        """Take what has come with the head, and have the rest read."""
        self._whole[: len(begun)] = begun
        self._step = len(begun)
        if len(begun) < self._length:
            self._timer = loop.call_later(max(0.0, self._request.deadline - time.monotonic()), self._give_up)
        try:
            with unread():
                self._allowance.charge(len(begun), arriving=True)
        except ServiceError as error:
            self._end()
            self._owner.failed(self._request, error)
            return
        self._go_on()

    def leave(self) -> None:
        """Nothing more is taken."""
        self._inlet.leave()

    def stop(self) -> None:
        """Nothing will come any more: the client is gone, or was told that it took too long."""
        self._end()
        self._owner.lost(self._request, broken_off())

    def _go_on(self) -> None:
        """So much more is there."""
        self._have += self._step
        self._request.exchange.received = self._have
        left = self._length - self._have
        if not left:
            self._end()
            self._allowance.arrived()
            self._owner.came(self._request, self._body)
            return
        self._step = min(STEP, left)
        try:
            with unread():
                self._allowance.charge(self._step, arriving=True)
        except ServiceError as error:
            self._end()
            self._owner.failed(self._request, error)
        else:
            self._inlet.fill(self._whole[self._have : self._have + self._step], self._go_on)

    def _give_up(self) -> None:
        self._end()
        self._owner.failed(self._request, too_late())

    def _end(self) -> None:
        self._inlet.leave()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
