"""A request that runs a model: its head, its work item and its reply.

A connection (app/http/server/inference.py) or a route (for other ASGI servers) makes a `ModelRequest` from the head,
reads the body within its limits, and sends the reply that `answer` returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from starlette.datastructures import State

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
    """A successful answer.

    pieces: its body.
    headers: beside type and length.
    """

    pieces: list[bytes]
    media_type: str
    headers: Mapping[str, str] = _NONE


class WorkItem(NamedTuple):
    """A fully received request, as arguments of the data plane."""

    version: Version
    work: InferRequest
    encode: Callable[[Answer], Reply]
    deadline: float


class ModelRequest(Protocol):
    """A request that runs a model, known by its head; each protocol has a class.

    Attributes:
        deadline: on time.monotonic()'s clock.
        encoding: compression of the body.
        encodings: supported compressions.
        head_priority: highest priority that the body may ask for.
        values_at: offset of the tensors in the body.
    """

    deadline: float
    encoding: str
    head_priority: int

    @property
    def encodings(self) -> tuple[str, ...]: ...

    @property
    def values_at(self) -> int: ...

    @property
    def version(self) -> Version | None:
        """Return the requested version if the head names it and it is ready."""

    def is_short(self, body: bytearray) -> bool:
        """Return whether the body can be parsed on the event loop."""

    def work_item(self, body: bytearray) -> WorkItem:
        """Parse the body.

        Raises:
            ServiceError: head and body disagree, or request something that the model lacks.
        """

    async def work_item_in_thread(self, body: bytearray) -> WorkItem:
        """Parse a long body in a thread.

        Raises:
            ServiceError: as ``work_item``, or the request would be refused anyway.
        """


# Creates the model request of a head from the state of the app.
RequestFactory: TypeAlias = Callable[[State], ModelRequest]


async def answer(plane: DataPlane, model_request: ModelRequest, body: bytearray) -> Reply:
    """Return the reply to a fully received request.

    Raises:
        ServiceError: the request failed.
    """
    is_short = model_request.is_short(body)
    item = model_request.work_item(body) if is_short else await model_request.work_item_in_thread(body)
    reply = plane.answer_now(*item)
    return await plane.infer_version(*item) if reply is None else reply


def read_limit(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the seconds that the client waits, from the first header of each name; None without a limit.

    Raises:
        InvalidRequestError: the header is not a number of milliseconds, or is 0.
    """
    given = headers.get(_TIMEOUT_NAME)
    if given is None:
        return None
    text = given.decode("latin-1").strip()
    if not _MILLISECONDS.fullmatch(text) or float(text) == 0:
        raise InvalidRequestError(f"{_TIMEOUT}: found '{cut(text)}', expected milliseconds, more than 0")
    return float(text) / 1e3
