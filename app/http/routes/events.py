"""GET /events: how all models are doing, once a second, as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.console.pulse import pulse
from app.errors import QueueFullError
from app.http.body import dataplane
from app.http.openapi.schemas import REFUSED
from app.http.progress_events import STREAMED, EventStream, format_event
from app.serving.dataplane import DataPlane

router = APIRouter(tags=["models"])

# Each holds a connection.
MAX_LISTENERS: Final = 64
# Between two events; and how soon a stream ends when the server does.
_PERIOD_S: Final = 1.0
_LOOK_S: Final = 0.25
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {200: STREAMED, 429: REFUSED}


class Pulses:
    """The events that all listeners are sent: each is made once, however many listen.

    Args:
        plane: whose models.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._text = b""
        self._made_at = float("-inf")
        self.listeners = 0

    def text(self) -> bytes:
        """The event of this second."""
        now = time.monotonic()
        if now - self._made_at > _PERIOD_S - _LOOK_S / 2:
            self._text, self._made_at = format_event("models", pulse(self._plane)), now
        return self._text

    async def stream(self) -> AsyncIterator[bytes]:
        """Events until the server stops."""
        while not self._plane.is_draining:
            yield self.text()
            for _ in range(round(_PERIOD_S / _LOOK_S)):
                if not self._plane.is_draining:
                    await asyncio.sleep(_LOOK_S)


class _Listening(EventStream):
    """Counts as a listener from when it is made, so that a crowd that comes at once is counted as well."""

    def __init__(self, pulses: Pulses) -> None:
        super().__init__(pulses.stream())
        self._pulses = pulses
        pulses.listeners += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until one of both ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pulses.listeners -= 1


@router.get("/events", responses=_RESPONSES, summary="How all models are doing, once a second", response_class=Response)
async def events(request: Request) -> Response:
    """Server-sent events named `models`: what `/models/{name}` tells, of all, and how many answers took how long."""
    pulses: Pulses = request.app.state.pulses
    if pulses.listeners >= MAX_LISTENERS:
        retry_after_s = dataplane(request).settings.retry_after_s
        raise QueueFullError(f"{MAX_LISTENERS} listen to events already", retry_after_s=retry_after_s)
    return _Listening(pulses)
