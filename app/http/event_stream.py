"""Server-sent events: how one is spelt, and an answer that is a stream of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.responses import StreamingResponse

from app.codec.answers import dump_json

_MEDIA_TYPE: Final = "text/event-stream"
# A proxy that gathers what it hands on would hold events back.
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
# What a route tells FastAPI of such an answer.
STREAMED: Final[dict[str, Any]] = {"content": {_MEDIA_TYPE: {}}}


class EventStream(StreamingResponse):
    """Events as they come, one after the other.

    Args:
        events: each as `spelt` gives it.
    """

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type=_MEDIA_TYPE, headers=_HEADERS)


def spelt(name: str, data: Any) -> bytes:
    """One event, its data as JSON."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dump_json(data))
