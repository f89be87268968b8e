"""What is to be done for a request that runs a model, and what is sent for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from app.models.keeping.version import Version
from app.models.request import InferRequest
from app.serving.dataplane import Answer

_NONE: Final[Mapping[str, str]] = {}


class Reply(NamedTuple):
    """A good answer.

    pieces: its body, whole or cut anywhere.
    headers: beside its type and length.
    """

    pieces: list[bytes]
    media_type: str
    headers: Mapping[str, str] = _NONE


class Order(NamedTuple):
    """A request whose body is there, as the data plane takes it."""

    version: Version
    work: InferRequest
    encode: Callable[[Answer], Reply]
    deadline: float
