"""POST /infer and /models/{name}/infer.

The body is read raw, since no framework parses tensors well; its Content-Type decides how.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Self

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.codec.answers import CHUNK_VALUES, dump_json, dump_pieces, json_tensors
from app.codec.form import read_outputs
from app.codec.json_tensors import advised
from app.codec.message import Message, read_version
from app.codec.numpy_files import write_npy, write_npz
from app.codec.parse import JSON, NPY, NPZ, PNG, parse, reads_all
from app.errors import InvalidRequestError, NotAcceptableError, ServiceError
from app.hooks.request import HookRequest
from app.http.body import INLINE_BYTES, dataplane, encoding_of, first_headers, respond
from app.http.model_request import Reply, RequestFactory, WorkItem, read_limit
from app.http.schemas import infer_documentation
from app.messages import brief, cut, did_you_mean
from app.models.registry.version import Version
from app.models.request import LIGHT_BYTES, PLAIN_BYTES, InferRequest
from app.scheduling.job import DEFAULT_PRIORITY
from app.serving.dataplane import Answer, DataPlane
from app.signature import Inputs, Signature
from app.tasks.registry import TASKS, parameter_names
from app.tasks.task import Task

# End of every path that runs a model, in both protocols.
ENDING: Final = "/infer"
_PATH: Final = ENDING
MODEL_PATH: Final = "/models/{name}/infer"
_QUERY: Final = ("model", "version", "outputs")
# curl -T sends PUT.
METHODS: Final = ("POST", "PUT")
# First bytes of JSON, .npy, PNG and JPEG: for these the decoded size is bounded by the body or stated in it.
_NPY: Final = 0x93
_LIGHT: Final = (*b"{[", _NPY, 0x89, 0xFF)
# A client that accepts anything gets the first.
_OFFERED: Final = (JSON, NPZ, NPY, PNG)
# Further ranges of Accept are ignored.
_MOST_RANGES: Final = 100
_QVALUE: Final = re.compile(r"[0-9]?(\.[0-9]{0,9})?")


def make_router() -> APIRouter:
    """Return the routes, with the documentation of all tasks."""
    return _router(tuple(TASKS.values()))


@lru_cache(maxsize=1)
def _router(tasks: tuple[type[Task[Any]], ...]) -> APIRouter:
    """Return the routes, cached for these tasks, since documenting them is most of the work of creating an app."""
    router, documentation = APIRouter(tags=["inference"]), infer_documentation()
    for method in (router.post, router.put):  # curl -T sends PUT
        method(_PATH, **documentation, summary="Run a model")(infer)
        method(MODEL_PATH, **documentation, summary="Run this model")(infer_model)
    return router


async def infer(request: Request) -> Response:
    """The model is named by ?model=, by "model" in the body, or is the default one."""
    return await _answer(request, None)


async def infer_model(request: Request, name: str) -> Response:
    """As /infer, with the model in the path."""
    return await _answer(request, name)


async def _answer(request: Request, name: str | None) -> Response:
    query = request.query_params if request.scope["query_string"] else {}
    create = read_head(name, first_headers(request), query)
    return await respond(request, dataplane(request), create(request.app.state))


def read_head(name: str | None, headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> RequestFactory:
    """Read the head of a request; ``name`` is the model in the path.

    Raises:
        ServiceError: it requests something that does not exist.
    """
    head = InferHead.of(headers, query, name)
    return lambda state: InferModelRequest(state.dataplane, head)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferHead:
    """Contents of the head of a request to the service's own routes.

    Args:
        name: model in the path.
        media_type: of the answer, as far as it does not depend on the model.
        limit_s: how long the client waits.
        model, version: from path and query; None if only the body names them, or if both disagree.
    """

    name: str | None
    query: Mapping[str, str]
    accept: str
    media_type: str
    content_type: str
    encoding: str
    limit_s: float | None
    model: str | None
    version: int | str | None

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes], query: Mapping[str, str], name: str | None) -> Self:
        """Read the first header of each name.

        Raises:
            ServiceError: it requests something that does not exist.
        """
        limit_s, accept = read_limit(headers), headers.get(b"accept", b"").decode("latin-1")
        media_type = choose(accept, _OFFERED)
        _check_query(query)
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        model, version = name or query.get("model"), None
        try:
            version = read_version(query.get("version"))
        except ServiceError:
            model = None
        if query.get("model", model) != model:
            model = None
        return cls(
            name=name, query=query, accept=accept, media_type=media_type, content_type=content_type,
            encoding=encoding_of(headers), limit_s=limit_s, model=model, version=version,
        )  # fmt: skip


class InferModelRequest:
    """A request to the service's own routes; see `ModelRequest`."""

    encodings: tuple[str, ...] = ()
    values_at: int = 0
    head_priority: int = DEFAULT_PRIORITY

    def __init__(self, plane: DataPlane, head: InferHead) -> None:
        self._plane, self._head = plane, head
        self.deadline, self.encoding = plane.deadline(head.limit_s), head.encoding

    @property
    def version(self) -> Version | None:
        """Return the version that path and query name; None if only the body names it, or if it does not exist."""
        head = self._head
        if head.model is not None:
            with suppress(ServiceError):
                return self._plane.store.version(head.model, head.version)
        return None

    def is_short(self, body: bytearray) -> bool:
        """Return whether the body can be parsed on the event loop."""
        return len(body) <= INLINE_BYTES or not reads_all(body, self._head.content_type)

    def work_item(self, body: bytearray) -> WorkItem:
        """Parse the body."""
        return self._work_item(self._parse(body), body)

    def _parse(self, body: bytearray) -> Message:
        """Parse the body; a body for a model's hook may have any format, and is not parsed."""
        by_hook = self._hook(self.version, body)
        if by_hook is not None:
            return Message(decode=by_hook)
        return parse(body, self._head.content_type, self._plane.settings)

    def _hook(self, version: Version | None, body: bytearray) -> Callable[[Signature], Inputs] | None:
        """Return the decoder of the body by the hook of a model, or None if the model has none."""
        hooks = None if version is None or version.model is None else version.model.hooks
        if hooks is None or not hooks.takes_requests:
            return None
        content_type, most = self._head.content_type, self._plane.settings.max_pixels
        return partial(hooks.inputs, HookRequest(body=memoryview(body), content_type=content_type, max_pixels=most))

    async def work_item_in_thread(self, body: bytearray) -> WorkItem:
        """Parse the body in a thread."""
        plane, version = self._plane, self.version
        if version is not None:
            plane.admit(version, self.deadline)
        return self._work_item(await plane.offload(partial(self._parse, body), self.deadline), body)

    def contents_item(self, decode: Callable[[Signature], Inputs], version: Version) -> WorkItem:
        """Return the work item for contents that were received in another way than as a body, and decoded already."""
        return self._work_item(Message(decode=decode), None, version)

    def _work_item(self, message: Message, body: bytearray | None, version: Version | None = None) -> WorkItem:
        plane, head = self._plane, self._head
        merged, media_type = _MergedParameters(message, head.query, head.name), head.media_type
        if media_type != JSON:
            media_type = _possible(plane, merged, media_type, head.accept)
            if media_type in (NPZ, NPY) and merged.outputs is None:
                merged.outputs = True
        version = plane.store.version(merged.model, merged.version) if version is None else version
        decode = None if body is None else self._hook(version, body)
        decode = message.decode if decode is None else decode
        if message.is_long_text:
            decode = advised(decode, version.name)
        work = InferRequest(
            decode=decode,
            outputs=merged.outputs,
            draw=media_type == PNG,
            parameters=merged.parameters,
            is_light=_is_light(body),
            is_binary=media_type == NPY,
        )
        return WorkItem(version, work, _ENCODERS[media_type], self.deadline)


def _is_light(body: bytearray | None) -> bool:
    """Return whether decoding a body is cheap, whatever it contains, as contents without one are."""
    if body is None:
        return True
    first = body[0] if body else 0
    return first in _LIGHT and len(body) <= (PLAIN_BYTES if first == _NPY else LIGHT_BYTES)


class _MergedParameters:
    """Parameters of body, path and query; values given twice must be equal."""

    __slots__ = ("model", "outputs", "parameters", "version")

    def __init__(self, message: Message, query: Mapping[str, str], name: str | None) -> None:
        self.model: str | None = _agreed("model", name, query.get("model"), message.model)
        self.version: int | None = _agreed("version", read_version(query.get("version")), message.version)
        self.outputs = read_outputs(query["outputs"]) if "outputs" in query else message.outputs
        self.parameters = message.parameters
        if query:
            self.parameters = {
                **message.parameters, **{key: value for key, value in query.items() if key not in _QUERY}
            }  # fmt: skip


def _possible(plane: DataPlane, merged: _MergedParameters, media_type: str, accept: str) -> str:
    """Return the media type of the answer, now that the model is known: not all can be an image or a single tensor."""
    offered: Sequence[str] = _OFFERED
    model = plane.store.version(merged.model, merged.version).model
    assert model is not None  # Store.version returns ready versions only
    if media_type == PNG and not model.can_draw:
        offered = (JSON, NPZ)
    if media_type == NPY:
        wanted = merged.outputs if isinstance(merged.outputs, tuple) else model.signature.output_names
        offered = (JSON, NPZ, NPY) if len(wanted) == 1 and merged.outputs is not False else (JSON, NPZ)
    return media_type if media_type in offered else choose(accept, offered)


def _check_query(query: Mapping[str, str]) -> None:
    for key in query:
        if key not in _QUERY and key not in parameter_names():
            near = did_you_mean(key, (*_QUERY, *parameter_names()))
            raise InvalidRequestError(f"unknown query parameter '{cut(key)}'{near}")


def _agreed(what: str, *given: Any) -> Any:
    values = [value for value in given if value is not None]
    for value in values[1:]:
        if value != values[0]:
            message = f"{what}: found both {brief(values[0])} and {brief(value)} in one request, expected one value"
            raise InvalidRequestError(message)
    return values[0] if values else None


def _as_json(answer: Answer) -> Reply:
    result = answer.result
    body: dict[str, Any] = {"model": answer.model, "version": answer.version}
    if result.predictions is not None:
        body["predictions"] = result.predictions[0] if len(result.predictions) == 1 else result.predictions
    if result.outputs or result.predictions is None:
        body["outputs"] = json_tensors(result.outputs)
    body["timing"] = result.timing.as_ms()
    is_short = all(array.size <= CHUNK_VALUES for array in result.outputs.values())
    return Reply([dump_json(body)] if is_short else dump_pieces(body), JSON)


def _as_npz(answer: Answer) -> Reply:
    return Reply([write_npz(answer.result.outputs)], NPZ)


def _as_npy(answer: Answer) -> Reply:
    (array,) = answer.result.outputs.values()
    return Reply(write_npy(array), NPY)


def _as_png(answer: Answer) -> Reply:
    assert answer.result.drawing is not None  # it was requested, and the model can draw
    return Reply([answer.result.drawing], PNG)


_ENCODERS: Final[dict[str, Callable[[Answer], Reply]]] = {
    JSON: _as_json, NPZ: _as_npz, NPY: _as_npy, PNG: _as_png,
}  # fmt: skip


def choose(accept: str, offered: Sequence[str]) -> str:
    """Return the offered media type that Accept prefers (RFC 9110 section 12.5.1), the first of equal ones.

    Raises:
        NotAcceptableError: Accept excludes all of them.
    """
    if not accept.strip():
        return offered[0]
    ranges: dict[str, float] = {}
    for part in accept.split(",", _MOST_RANGES)[:_MOST_RANGES]:
        name, quality = _range(part)
        ranges.setdefault(name, quality)
    best = max(offered, key=lambda offer: _quality(offer, ranges))  # max() keeps the first of equals
    if _quality(best, ranges) <= 0:
        raise NotAcceptableError(
            f"Accept: found '{cut(accept)}', expected one of {', '.join(offered)}",
            expected=list(offered),
        )
    return best


def _range(part: str) -> tuple[str, float]:
    """Return a media range and its quality, 0 if it is not a number."""
    name, *parameters = (piece.strip().lower() for piece in part.split(";", _MOST_RANGES))
    quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    return name, float(quality) if _QVALUE.fullmatch(quality) and quality not in ("", ".") else 0.0


def _quality(offer: str, ranges: Mapping[str, float]) -> float:
    """Return the quality of the most specific matching range, or 0."""
    patterns = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    return next((ranges[pattern] for pattern in patterns if pattern in ranges), 0.0)
