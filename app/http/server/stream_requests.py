"""Requests that the messages of a WebSocket are: bodies as of POST /models/NAME/infer, or pieces of one sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from app.codec.answers import dump_json
from app.codec.parse import JSON
from app.errors import InputMismatchError, InvalidRequestError, SequenceNotFoundError
from app.http.model_request import WorkItem
from app.http.routes.infer import InferHead, InferModelRequest
from app.messages import cut
from app.models.model import Model
from app.models.registry.version import Version
from app.serving.dataplane import DataPlane
from app.signature import Inputs, Signature
from app.sound.config import MAX_RATE, MIN_RATE
from app.sound.inputs import SoundInputs
from app.sound.sound import Chunk, Sounds
from app.sound.stream import SoundStream

# Parameter of the query: messages are samples of one sound at this rate.
RATE: Final = "sample_rate"


class StreamRequests(Protocol):
    """Conversion of the messages of one connection to requests, one at a time."""

    def work_item(self, body: bytearray, is_text: bool) -> WorkItem | None:
        """Return the request of a short message, or None if there is nothing to run yet.

        Raises:
            ServiceError: the message is not a request.
        """

    async def work_item_in_thread(self, body: bytearray, is_text: bool) -> WorkItem | None:
        """Return the request of a long message, as ``work_item``."""

    def answer(self, found: bytes) -> bytes:
        """Return the answer to the last message, given that of the request."""

    def empty(self) -> bytes:
        """Return the answer to a message for which nothing ran."""


class BodyRequests:
    """Messages that are bodies.

    Args:
        plane: of the app.
        head: head of each request.
    """

    def __init__(self, plane: DataPlane, head: InferHead) -> None:
        self._plane, self._head = plane, head

    def work_item(self, body: bytearray, is_text: bool) -> WorkItem:
        """Parse the body."""
        return self._request(is_text).work_item(body)

    async def work_item_in_thread(self, body: bytearray, is_text: bool) -> WorkItem:
        """Parse the body in a thread."""
        return await self._request(is_text).work_item_in_thread(body)

    def _request(self, is_text: bool) -> InferModelRequest:
        return InferModelRequest(self._plane, replace(self._head, content_type=JSON if is_text else ""))

    def answer(self, found: bytes) -> bytes:
        """Return the answer of the route."""
        return found

    def empty(self) -> bytes:
        """Raise: every body is a request."""
        raise NotImplementedError


class PcmRequests:
    """Messages that are samples of one channel, 16-bit little-endian; each is a request for the windows that it ends.

    Args:
        plane: of the app.
        head: head of each request.
        version: version that runs them all.
        inputs: its sound inputs.
        rate: samples per second.
    """

    def __init__(self, plane: DataPlane, head: InferHead, version: Version, inputs: SoundInputs, rate: int) -> None:
        self._plane, self._head, self._version, self._inputs = plane, head, version, inputs
        self._stream: SoundStream = inputs.open_stream(rate)

    def work_item(self, body: bytearray, is_text: bool) -> WorkItem | None:
        """Return the request for the windows that end in a message."""
        return self._item(self._checked(is_text), self._taking(body)())

    async def work_item_in_thread(self, body: bytearray, is_text: bool) -> WorkItem | None:
        """Return the request for the windows that end in a long message."""
        request = self._checked(is_text)
        return self._item(request, await self._plane.offload(self._taking(body), request.deadline))

    def _checked(self, is_text: bool) -> InferModelRequest:
        if is_text:
            raise InvalidRequestError("a message of a stream of sound: found a text, expected samples as bytes")
        model = self._version.model
        if not isinstance(model, Model) or model.sound_inputs is not self._inputs:
            raise SequenceNotFoundError(f"model '{self._version.name}' was loaded again, expected a new connection")
        return InferModelRequest(self._plane, self._head)

    def _taking(self, body: bytearray) -> Callable[[], Chunk | None]:
        return partial(self._stream.take, body, self._plane.settings.max_sound_s)

    def _item(self, request: InferModelRequest, chunk: Chunk | None) -> WorkItem | None:
        return None if chunk is None else request.contents_item(partial(_inputs, chunk), self._version)

    def answer(self, found: bytes) -> bytes:
        """Return the answer with the time of the windows."""
        return b"%b,%b" % (self._times[:-1], found[1:])

    def empty(self) -> bytes:
        """Return an answer without predictions."""
        return b'%b,"predictions":null}' % self._times[:-1]

    @property
    def _times(self) -> bytes:
        return dump_json({"start": round(self._stream.start_s, 4), "end": round(self._stream.end_s, 4)})


def _inputs(chunk: Chunk, signature: Signature) -> Inputs:
    return {signature.content_port("sound").name: Sounds((chunk,))}


def open_pcm(plane: DataPlane, head: InferHead, version: Version, rate: str) -> PcmRequests:
    """Return the requests of a stream of sound.

    Args:
        plane: of the app.
        head: head of each request.
        version: version of the model.
        rate: samples per second, as the query has it.

    Raises:
        ServiceError: the rate is wrong, or the model takes no streams of sound.
    """
    if not (rate.isascii() and rate.isdecimal() and len(rate) < 10 and MIN_RATE <= int(rate) <= MAX_RATE):
        raise InvalidRequestError(f"{RATE}: found '{cut(rate)}', expected {MIN_RATE} to {MAX_RATE}")
    model = version.model
    if not isinstance(model, Model):
        raise InputMismatchError(f"pipeline '{version.name}' takes no samples, expected messages that are sound files")
    if model.hooks is not None and model.hooks.takes_requests:
        raise InputMismatchError(f"model '{version.name}': its preprocess in hooks.py takes whole bodies, no samples")
    inputs = model.sound_inputs
    if inputs is None or not inputs.takes_streams:
        found = "takes no sounds" if inputs is None else "takes sounds of any length"
        raise InputMismatchError(f"model '{version.name}' {found}, expected a network with windows (sound.window_s)")
    return PcmRequests(plane, head, version, inputs, int(rate))
