"""POST /infer and /models/{name}/infer.

The body is read raw: what it is, its Content-Type says, and no framework parses tensors well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Self

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.codec.advice import advised
from app.codec.answers import SLAB, dump_json, dump_pieces, json_tensors
from app.codec.arrays.numpy_files import write_npy, write_npz
from app.codec.forms.body import read_outputs
from app.codec.message import Message, read_version
from app.codec.parse import JSON, NPY, NPZ, PNG, parse, reads_all
from app.errors import InvalidRequestError
from app.http.accept import choose
from app.http.body import INLINE_BYTES, first_headers, read_body, until_disconnect
from app.http.deadline import read_limit
from app.http.openapi.inference import infer_documentation
from app.http.order import Order, Reply
from app.http.responses import ChargedResponse
from app.http.routes.state import dataplane
from app.memory.allowance import Allowance
from app.models.request import LIGHT_BYTES, PLAIN_BYTES, InferRequest
from app.serving.dataplane import Answer, DataPlane
from app.tasks.registry import TASKS, parameter_names
from app.tasks.task import Task
from app.wording import brief, cut, did_you_mean

# Of every path that runs a model, the other protocol's included.
ENDING: Final = "/infer"
_PATH: Final = ENDING
_MODEL_PATH: Final = "/models/{name}/infer"
_QUERY: Final = ("model", "version", "outputs")
# PUT is what curl -T does.
METHODS: Final = ("POST", "PUT")
# What JSON, .npy, PNG and JPEG begin with: nothing else is as small when it is decoded as it is short, or says itself
# how large it becomes.
_NPY: Final = 0x93
_LIGHT: Final = (*b"{[", _NPY, 0x89, 0xFF)
# A client that takes anything gets the first.
_OFFERED: Final = (JSON, NPZ, NPY, PNG)


def make_router() -> APIRouter:
    """The routes, with the documentation of all tasks there are."""
    return _router(tuple(TASKS.values()))


@lru_cache(maxsize=1)
def _router(tasks: tuple[type[Task[Any]], ...]) -> APIRouter:
    """Made once for these tasks: what documents a route is most of what it takes to make an app."""
    router, documentation = APIRouter(tags=["inference"]), infer_documentation()
    for method in (router.post, router.put):  # PUT is what curl -T does
        method(_PATH, **documentation, summary="Run a model")(infer)
        method(_MODEL_PATH, **documentation, summary="Run this model")(infer_model)
    return router


async def infer(request: Request) -> Response:
    """The model is named by ?model=, by "model" in the body, or is the default one."""
    return await _answer(request, None)


async def infer_model(request: Request, name: str) -> Response:
    """As /infer, with the model in the path."""
    return await _answer(request, name)


async def run(request: Request) -> Response:
    """Either of them, with the model's name, if any, in the path parameters."""
    return await _answer(request, request.path_params.get("name"))


# The same two once more, without FastAPI around them, for what direct.py leaves: other methods, and servers below a
# path of their own. The ones above describe them.
ROUTES: Final = [Route(path, run, methods=[*METHODS], include_in_schema=False) for path in (_PATH, _MODEL_PATH)]


async def _answer(request: Request, name: str | None) -> Response:
    plane = dataplane(request)
    with plane.memory.answering() as allowance:
        reply = await _reply(request, plane, name, allowance)
    return ChargedResponse(reply.pieces, allowance, reply.media_type, reply.headers)


async def _reply(request: Request, plane: DataPlane, name: str | None, allowance: Allowance) -> Reply:
    head = InferHead.of(first_headers(request), request.query_params if request.scope["query_string"] else {}, name)
    deadline = plane.deadline(head.limit_s)
    body = await read_body(request, plane.settings.max_body_bytes, deadline, allowance)
    message = await read(plane, body, head, deadline)
    order = order_of(plane, head, message, body, deadline)
    reply = plane.answer_now(*order)
    if reply is None:
        reply = await until_disconnect(request, plane.infer_version(*order))
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class InferHead:
    """What the head of a request says of it.

    Args:
        name: of the model, as the path has it.
        media_type: the answer's, as far as it does not depend on the model.
        limit_s: how long the client waits.
    """

    name: str | None
    query: Mapping[str, str]
    accept: str
    media_type: str
    content_type: str
    limit_s: float | None

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes], query: Mapping[str, str], name: str | None) -> Self:
        """Of the first header of each name.

        Raises:
            ServiceError: it asks for what there is not.
        """
        limit_s, accept = read_limit(headers), headers.get(b"accept", b"").decode("latin-1")
        media_type = choose(accept, _OFFERED)
        _check_query(query)
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        return cls(
            name=name, query=query, accept=accept, media_type=media_type, content_type=content_type, limit_s=limit_s
        )

    def is_short(self, body: bytearray) -> bool:
        """Whether a body is parsed in no time."""
        return len(body) <= INLINE_BYTES or not reads_all(body, self.content_type)


def order_of(plane: DataPlane, head: InferHead, message: Message, body: bytes | bytearray, deadline: float) -> Order:
    """What is to be done for a request whose body is there.

    Raises:
        ServiceError: head and body do not agree, or want what the model has not.
    """
    asked = _Asked(message, head.query, head.name)
    media_type = head.media_type
    if media_type != JSON:
        media_type = _possible(plane, asked, media_type, head.accept)
        if media_type in (NPZ, NPY) and asked.outputs is None:
            asked.outputs = True
    version, decode = plane.store.version(asked.model, asked.version), message.decode
    if message.is_long_text:
        decode = advised(decode, version.name)
    work = InferRequest(
        decode=decode,
        outputs=asked.outputs,
        draw=media_type == PNG,
        parameters=asked.parameters,
        is_light=body[0] in _LIGHT and len(body) <= (PLAIN_BYTES if body[0] == _NPY else LIGHT_BYTES),
        is_binary=media_type == NPY,
    )
    return Order(version, work, _ENCODERS[media_type], deadline)


class _Asked:
    """What a message says together with path and query; the same thing said twice must be the same."""

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


def _possible(plane: DataPlane, asked: _Asked, media_type: str, accept: str) -> str:
    """What the answer will be, once it is known of which model: a picture or a single tensor not all have."""
    offered: Sequence[str] = _OFFERED
    if media_type == PNG and not plane.can_draw(asked.model, asked.version):
        offered = (JSON, NPZ)
    if media_type == NPY:
        names = plane.output_names(asked.model, asked.version)
        wanted = asked.outputs if isinstance(asked.outputs, tuple) else names
        offered = (JSON, NPZ, NPY) if len(wanted) == 1 and asked.outputs is not False else (JSON, NPZ)
    return media_type if media_type in offered else choose(accept, offered)


async def read(plane: DataPlane, body: bytearray, head: InferHead, deadline: float) -> Message:
    """What a body says; a long text is read in a thread."""
    work = partial(parse, body, head.content_type, plane.settings)
    if head.is_short(body):
        return work()
    name = head.name or head.query.get("model")
    if name is not None:
        plane.admit(plane.store.version(name), deadline)
    return await plane.offload(work, deadline)


def _check_query(query: Mapping[str, str]) -> None:
    for key in query:
        if key not in _QUERY and key not in parameter_names():
            near = did_you_mean(key, (*_QUERY, *parameter_names()))
            raise InvalidRequestError(f"unknown query parameter '{cut(key)}'{near}")


def _agreed(what: str, *said: Any) -> Any:
    values = [value for value in said if value is not None]
    for value in values[1:]:
        if value != values[0]:
            raise InvalidRequestError(f"{what}: found both {brief(values[0])} and {brief(value)} in one request")
    return values[0] if values else None


def _as_json(answer: Answer) -> Reply:
    result = answer.result
    body: dict[str, Any] = {"model": answer.model, "version": answer.version}
    if result.predictions is not None:
        body["predictions"] = result.predictions[0] if len(result.predictions) == 1 else result.predictions
    if result.outputs or result.predictions is None:
        body["outputs"] = json_tensors(result.outputs)
    body["timing"] = result.timing.as_ms()
    is_short = all(array.size <= SLAB for array in result.outputs.values())
    return Reply([dump_json(body)] if is_short else dump_pieces(body), JSON)


def _as_npz(answer: Answer) -> Reply:
    return Reply([write_npz(answer.result.outputs)], NPZ)


def _as_npy(answer: Answer) -> Reply:
    (array,) = answer.result.outputs.values()
    return Reply(write_npy(array), NPY)


def _as_png(answer: Answer) -> Reply:
    assert answer.result.drawing is not None  # it was asked for, and of a model that can draw
    return Reply([answer.result.drawing], PNG)


_ENCODERS: Final[dict[str, Callable[[Answer], Reply]]] = {
    JSON: _as_json, NPZ: _as_npz, NPY: _as_npy, PNG: _as_png,
}  # fmt: skip
