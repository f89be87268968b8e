"""A request that runs a model: its head, its work item and its reply.

A connection (app/http/server/inference.py) or a route (for other ASGI servers) makes a `ModelRequest` from the head,
reads the body within its limits, and sends the reply that `answer` returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from app.errors import InvalidRequestError
from app.messages import cut
from app.models.registry.version import Version
from app.models.request import InferRequest
from app.serving.dataplane import Answer, DataPlane

_NONE: Final[Mapping[str, str]] = {}
_TIMEOUT: Final = "X-Request-Timeout-Ms"
_TIMEOUT_NAME: Final = _TIMEOUT.lower().encode()
_MILLISECONDS: Final = re.compile(r"\d{1,12}(\.\d{1,6})?")


class Reply(NamedTuple):
    """A good answer.

    pieces: its body, whole or cut anywhere.
    headers: beside its type and length.
    """

    pieces: list[bytes]
    media_type: str
    headers: Mapping[str, str] = _NONE


class WorkItem(NamedTuple):
    """A request whose body is there, as the data plane takes it."""

    version: Version
    work: InferRequest
    encode: Callable[[Answer], Reply]
    deadline: float


class ModelRequest(Protocol):
    """A request to run a model, as its head says; one class for each protocol.

    Attributes:
        deadline: when it must have been answered, on time.monotonic()'s clock.
        encoding: what its body is compressed with.
        encodings: what that may be.
        values_at: where in the body tensors begin.
    """

    deadline: float
    encoding: str

    @property
    def encodings(self) -> tuple[str, ...]: ...

    @property
    def values_at(self) -> int: ...

    @property
    def version(self) -> Version | None:
        """Return which one it is for, as far as the head says; a ready one."""

    def text_bytes(self, length: int | None) -> int | None:
        """Return how many bytes of a body of this length tell its priority; None where that is not known."""

    def is_short(self, body: bytearray) -> bool:
        """Return whether it takes no time to read what the body says."""

    def work_item(self, body: bytearray) -> WorkItem:
        """Read what the body says.

        Raises:
            ServiceError: head and body do not agree, or want what the model has not.
        """

    async def work_item_in_thread(self, body: bytearray) -> WorkItem:
        """Read a long text in a thread.

        Raises:
            ServiceError: as ``order`` says, or the request would be refused anyway.
        """


async def answer(plane: DataPlane, asked: ModelRequest, body: bytearray) -> Reply:
    """Return the reply to a request whose body is there.

    Raises:
        ServiceError: as its tree says.
    """
    item = asked.work_item(body) if asked.is_short(body) else await asked.work_item_in_thread(body)
    reply = plane.answer_now(*item)
    return await plane.infer_version(*item) if reply is None else reply


def read_limit(headers: Mapping[bytes, bytes]) -> float | None:
    """Return how many seconds the client waits, from the first header of each name; None where it does not say.

    Raises:
        InvalidRequestError: the header is not a number of milliseconds, or none are left.
    """
    given = headers.get(_TIMEOUT_NAME)
    if given is None:
        return None
    text = given.decode("latin-1").strip()
    if not _MILLISECONDS.fullmatch(text) or float(text) == 0:
        raise InvalidRequestError(f"{_TIMEOUT}: found '{cut(text)}', expected milliseconds, more than 0")
    return float(text) / 1e3
