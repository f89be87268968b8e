"""GET /events: the state of all models once a second, as server-sent events."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.errors import QueueFullError
from app.http.progress_events import STREAMED, EventStream, format_event
from app.http.schemas import REFUSED
from app.memory.machine import resident_bytes
from app.models.model import Model
from app.models.registry.counters import VersionCounters
from app.models.registry.index import details
from app.models.registry.version import Version
from app.models.statistics import TIME_BOUNDS
from app.serving.dataplane import DataPlane

_STARTED: Final = time.time()
router = APIRouter(tags=["models"])
# Limit of listeners, each of which holds a connection.
MAX_LISTENERS: Final = 64
# Interval of events; and how soon a stream ends when the server stops.
_PERIOD_S: Final = 1.0
_LOOK_S: Final = 0.25
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {200: STREAMED, 429: REFUSED}


def pulse(plane: DataPlane) -> dict[str, Any]:
    """Return details and counters of every model, and of the process; rates are differences of two states."""
    tell = plane.store.counters.read()
    models = []
    for entry in plane.store.entries:
        row = details(entry, plane.store, tell)
        row["labels"] = None if row["labels"] is None else len(row["labels"])
        for version, shown in zip(entry.versions, row["versions"], strict=False):
            shown |= _figures(version, tell(version))
        models.append(row)
    return {
        "at": time.time(),
        "bounds_s": list(TIME_BOUNDS),
        "ready": plane.unready_reason(),
        "process": {"started": _STARTED, "cpu_s": sum(os.times()[:2]), "bytes": resident_bytes(), **_allowed(plane)},
        "models": models,
    }


def _figures(version: Version, counted: VersionCounters) -> dict[str, Any]:
    if version.model is None:
        return {}
    session = version.model.session if isinstance(version.model, Model) else None
    return {
        "times": list(counted.statistics.buckets.total),
        "batches": {str(size): batches.count for size, batches in sorted(counted.statistics.batches.items())},
        "weights_bytes": 0 if session is None else session.memory["weights"],
        "operators": 0 if session is None else len(session.graph.operators),
    }


def _allowed(plane: DataPlane) -> dict[str, Any]:
    return {"threads": plane.budget.threads, "workers": plane.settings.workers}


class Pulses:
    """The event of each second, made once for all listeners.

    Args:
        plane: the models.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._text = b""
        self._made_at = float("-inf")
        self.listeners = 0

    def text(self) -> bytes:
        """Return the event of this second."""
        now = time.monotonic()
        if now - self._made_at > _PERIOD_S - _LOOK_S / 2:
            self._text, self._made_at = format_event("models", pulse(self._plane)), now
        return self._text

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield events until the server stops."""
        while not self._plane.is_draining:
            yield self.text()
            for _ in range(round(_PERIOD_S / _LOOK_S)):
                if not self._plane.is_draining:
                    await asyncio.sleep(_LOOK_S)


class _Listening(EventStream):
    """Counts as a listener from its creation, so that simultaneous requests are counted as well."""

    def __init__(self, pulses: Pulses) -> None:
        super().__init__(pulses.stream())
        self._pulses = pulses
        pulses.listeners += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the server stops or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pulses.listeners -= 1


@router.get("/events", responses=_RESPONSES, summary="State of all models, once a second", response_class=Response)
async def events(request: Request) -> Response:
    """Server-sent events named `models`: the content of `/models/{name}` of all models, and histograms of times."""
    pulses: Pulses = request.app.state.pulses
    if pulses.listeners >= MAX_LISTENERS:
        raise QueueFullError(f"too many listeners to events, expected at most {MAX_LISTENERS}")
    return _Listening(pulses)
