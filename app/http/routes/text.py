"""Routes for texts that clients of other servers use: OpenAI's, Cohere's rerank, and text-embeddings-inference's.

Every route parses its body to an `InferRequest` on texts, so that limits, queues, deadlines and metrics are those of
`/infer`; only the form of bodies, answers and errors differs.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.datastructures import State as AppState
from starlette.requests import Request
from starlette.responses import Response

from app.codec.answers import dump_json
from app.codec.json_body import parse_json
from app.codec.texts import read_texts, text_inputs
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError, ServiceError
from app.http.body import BodyRequest, dataplane, first_headers, read_body, respond, until_disconnect
from app.http.model_request import ModelRequest, Reply, RequestFactory, read_limit
from app.http.responses import ChargedResponse, error_response, json_response
from app.messages import cut, explain_validation, quoted
from app.models.registry.version import State, Version
from app.models.request import InferRequest
from app.serving.dataplane import Answer, DataPlane
from app.tasks.registry import TEXT_TASKS
from app.text.text import Encoding, Text

router = APIRouter(tags=["text"])
_JSON: Final = "application/json"


# More classes than a model has.
_ALL: Final = 2**31
_TRUNCATE: Final = "Whether a text that is too long is truncated; else 413."
Right = Annotated[
    Literal["right", "Right"], Field(description="Texts are truncated at their end; no other value is supported.")
]


class TextBody(BaseModel):
    """Base of the bodies of requests: keys that this server has no use for are ignored, as others do."""

    model_config = ConfigDict(extra="ignore")
    # Tasks that a model must have.
    TASKS: ClassVar[tuple[str, ...]]

    model: str | None = Field(default=None, description="Name of the model; default: the server's default model.")

    def for_task(self, task: str) -> TextBody:
        """Return the body as models of a task take it.

        Raises:
            ServiceError: it has another form.
        """
        return self

    def request(self) -> InferRequest:
        """Return the request to the model."""
        raise NotImplementedError

    def reply(self, answer: Answer) -> Reply:
        """Return the answer in the client's form."""
        return Reply([*self.pieces(answer.model, list(answer.result.predictions or ()))], _JSON)

    def pieces(self, model: str, found: list[Any]) -> Iterable[bytes]:
        """Return the answer's JSON in pieces.

        Args:
            model: name of the model.
            found: prediction for each text.
        """
        raise NotImplementedError


def _texts(key: str, value: object) -> tuple[Text, ...]:
    try:
        return read_texts(value, key)
    except ServiceError as error:
        raise _KeptError(error) from None


class _KeptError(Exception):
    """Carries a ServiceError through pydantic, which would turn a ValueError into an error of its own."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(str(error))
        self.error = error


class EmbeddingsBody(TextBody):
    """Body of `/v1/embeddings`."""

    TASKS = ("embedding",)
    input: Annotated[Any, BeforeValidator(partial(_texts, "input"))] = Field(
        description="A text, a list of texts, token ids, or a list of token ids."
    )
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: the float32 values of a vector, little-endian, in base64."
    )
    dimensions: int | None = Field(default=None, description="Leading values of each vector that are kept.")

    def request(self) -> InferRequest:
        """Return the request to the model."""
        return _request(self.input, {} if self.dimensions is None else {"dimensions": self.dimensions})

    def pieces(self, model: str, found: list[Any]) -> Iterable[bytes]:
        """Yield the vectors in OpenAI's form."""
        yield b'{"object":"list","data":['
        for index, each in enumerate(found):
            vector = each["embedding"] if self.encoding_format == "float" else _base64(each["embedding"])
            item = dump_json({"object": "embedding", "index": index, "embedding": vector})
            yield b"," + item if index else item
        yield b"]," + dump_json({"model": model, **_usage(found)})[1:]


def _document(value: object) -> object:
    return value.get("text") if isinstance(value, Mapping) else value


class RerankBody(TextBody):
    """Body of `/v1/rerank`."""

    TASKS = ("rerank",)
    query: str = Field(description="What is searched for.")
    documents: list[Annotated[str, BeforeValidator(_document)]] = Field(
        min_length=1, description='Texts, or objects with a "text".'
    )
    top_n: int | None = Field(default=None, ge=1, description="Most results; default: all.")
    return_documents: bool = Field(default=False, description="Whether results hold their texts.")

    def request(self) -> InferRequest:
        """Return the request to the model."""
        return _request(read_texts([[self.query, document] for document in self.documents], "documents"), {})

    def pieces(self, model: str, found: list[Any]) -> Iterable[bytes]:
        """Return the documents in the order of their scores."""
        results: list[dict[str, Any]] = []
        for index in _by_score(found)[: self.top_n]:
            results.append({"index": index, "relevance_score": found[index]["score"]})
            if self.return_documents:
                results[-1]["document"] = {"text": self.documents[index]}
        return [dump_json({"model": model, "results": results, **_usage(found)})]


class EmbedBody(TextBody):
    """Body of `/embed`."""

    TASKS: ClassVar[tuple[str, ...]] = ("embedding",)
    inputs: Annotated[Any, BeforeValidator(partial(_texts, "inputs"))] = Field(description="A text, or a list of them.")
    dimensions: int | None = Field(default=None, description="Leading values of each vector that are kept.")
    normalize: bool | None = Field(default=None, description="Whether vectors have length 1; default: config.toml's.")
    truncate: bool = Field(default=False, description=_TRUNCATE)
    truncation_direction: Right = "right"
    prompt_name: None = Field(default=None, description="Not supported: put the prompt before each text.")

    def request(self) -> InferRequest:
        """Return the request to the model."""
        given = {"dimensions": self.dimensions, "normalise": self.normalize}
        return _request(self.inputs, {key: value for key, value in given.items() if value is not None})

    def pieces(self, model: str, found: list[Any]) -> Iterable[bytes]:
        """Yield a list of vectors.

        Raises:
            RequestTooLargeError: a text is too long, and must not be truncated.
        """
        _check_whole(found, "inputs", self.truncate)
        for index, each in enumerate(found):
            yield (b"," if index else b"[") + dump_json(each["embedding"])
        yield b"]"


class RerankTextsBody(TextBody):
    """Body of `/rerank`."""

    TASKS = ("rerank",)
    query: str = Field(description="What is searched for.")
    texts: list[str] = Field(min_length=1, description="Texts to score.")
    raw_scores: bool = Field(default=False, description="Whether scores are the model's own, not between 0 and 1.")
    return_text: bool = Field(default=False, description="Whether results hold their texts.")
    truncate: bool = Field(default=False, description=_TRUNCATE)
    truncation_direction: Right = "right"

    def request(self) -> InferRequest:
        """Return the request to the model."""
        pairs = read_texts([[self.query, text] for text in self.texts], "texts")
        return _request(pairs, {"activation": "none"} if self.raw_scores else {})

    def pieces(self, model: str, found: list[Any]) -> Iterable[bytes]:
        """Return the texts in the order of their scores.

        Raises:
            RequestTooLargeError: a text is too long, and must not be truncated.
        """
        _check_whole(found, "texts", self.truncate)
        results: list[dict[str, Any]] = []
        for index in _by_score(found):
            results.append({"index": index, "score": found[index]["score"]})
            if self.return_text:
                results[-1]["text"] = self.texts[index]
        return [dump_json(results)]


def _sequences(value: object) -> object:
    """Return the texts of a request to `/predict` as ``read_texts`` takes them.

    A list of strings is one text or one pair there, and a batch is a list of such lists.
    """
    if not isinstance(value, list) or len(value) == 1 and isinstance(value[0], str):
        return value
    if any(isinstance(each, str) for each in value):
        return [value]
    return [
        each[0] if isinstance(each, list) and len(each) == 1 and isinstance(each[0], str) else each for each in value
    ]


class PredictBody(TextBody):
    """Body of `/predict`."""

    TASKS = ("text-classification",)
    inputs: Any = Field(description="A text, a pair of texts, or a list of lists of one or two texts.")
    raw_scores: bool = Field(default=False, description="Whether scores are the model's own, not probabilities.")

    def request(self) -> InferRequest:
        """Return the request to the model.

        Raises:
            ServiceError: the texts have another form.
        """
        scores = {"activation": "none"} if self.raw_scores else {}
        return _request(read_texts(_sequences(self.inputs), "inputs"), {"top_k": _ALL, **scores})

    def pieces(self, model: str, found: list[Any]) -> Iterable[bytes]:
        """Return the classes of each text; those of a text or pair alone without a list around."""
        classes = [[{"score": each["probability"], "label": each["label"]} for each in one] for one in found]
        is_batch = isinstance(self.inputs, list) and isinstance(self.inputs[0], list)
        return [dump_json(classes if is_batch else classes[0])]


class InputsBody(TextBody):
    """Body of `POST /`, the route that text-embeddings-inference's clients use without a name."""

    model_config = ConfigDict(extra="allow")
    TASKS = (*EmbedBody.TASKS, *PredictBody.TASKS)
    inputs: Any = Field(description="As `/embed` or `/predict` takes them.")

    def for_task(self, task: str) -> TextBody:
        """Return the body of `/predict` for a model that classifies, else that of `/embed`."""
        body: TextBody = _validated(self.model_dump(), PredictBody if task in PredictBody.TASKS else EmbedBody)
        return body


class TokenizeBody(BaseModel):
    """Body of `/tokenize`."""

    model_config = ConfigDict(extra="ignore")
    model: str | None = Field(default=None, description="Name of the model; default: the server's default model.")
    inputs: Annotated[Any, BeforeValidator(partial(_texts, "inputs"))] = Field(description="A text, or a list of them.")
    add_special_tokens: bool = Field(default=True, description="Whether special tokens are added.")


def _check_whole(found: Sequence[Any], key: str, may_truncate: bool) -> None:
    """Raise if a text was truncated that must not be."""
    too_long = next((index for index, each in enumerate(found) if each["truncated"]), None)
    if too_long is not None and not may_truncate:
        raise RequestTooLargeError(
            f'{key}[{too_long}]: found more tokens than the model takes; set "truncate": true to shorten it'
        )


def _request(texts: tuple[Text, ...], parameters: Mapping[str, Any]) -> InferRequest:
    return InferRequest(decode=partial(text_inputs, texts), parameters=parameters)


def _base64(vector: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()


def _usage(found: Sequence[Any]) -> dict[str, Any]:
    """Return the number of tokens, and the indices of truncated texts if there are any."""
    tokens = sum(each["tokens"] for each in found)
    truncated = [index for index, each in enumerate(found) if each["truncated"]]
    usage = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return {**usage, "truncated": truncated} if truncated else usage


def _by_score(found: Sequence[Any]) -> list[int]:
    """Return the indices by falling score; scores that are not numbers come last."""
    return sorted(range(len(found)), key=lambda index: (found[index]["score"] is None, -(found[index]["score"] or 0)))


def find_version(plane: DataPlane, name: str | None, tasks: Sequence[str]) -> Version:
    """Return the model of a name; without a name the default model, or else the only one that has such a task.

    Raises:
        ServiceError: there is no such model, it is not ready, or it has another task.
    """
    if name is None and plane.store.default_name is None:
        fitting = [entry.name for entry in plane.store.entries if entry.files.config.task in tasks]
        if len(fitting) == 1:
            name = fitting[0]
    version = plane.store.version(name, None)
    task = "tensor" if version.model is None else version.model.task
    if task not in tasks:
        raise InputMismatchError(
            f"model '{version.name}': found task '{cut(task)}', expected {quoted(tasks)} for this route"
        )
    return version


def _parsed(body: bytearray, body_type: type[Any]) -> Any:
    """Return a body.

    Raises:
        InvalidRequestError: it is not JSON, or a key is missing or has an invalid value.
        RequestTooLargeError: it has too many texts.
    """
    document = parse_json(body)
    if not isinstance(document, dict):
        raise InvalidRequestError("the body: expected a JSON object")
    return _validated(document, body_type)


def _validated(document: Mapping[str, Any], body_type: type[Any]) -> Any:
    try:
        return body_type.model_validate(document)
    except _KeptError as kept:
        raise kept.error from None
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRequestError(f"{where}: {explain_validation(first)}") from None


Handler = Callable[[Request], Awaitable[Response]]


def with_openai_errors(handler: Handler) -> Handler:
    """Return a handler whose errors have OpenAI's form, which its clients read."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except ServiceError as error:
            return openai_error_response(error)

    return handle


def openai_error_response(error: ServiceError) -> Response:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    body = {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}
    return json_response(body, error.status, error.headers)


def _documentation(body_type: type[BaseModel], summary: str) -> dict[str, Any]:
    schema = body_type.model_json_schema(ref_template="#/components/schemas/{model}")
    content = {_JSON: {"schema": schema}}
    return {"summary": summary, "openapi_extra": {"requestBody": {"required": True, "content": content}}}


# Paths of requests that run a model, with their bodies and what they are.
BODIES: Final[Mapping[str, tuple[type[TextBody], str]]] = {
    "/v1/embeddings": (EmbeddingsBody, "Embeddings of texts, as OpenAI's"),
    "/v1/rerank": (RerankBody, "Documents by relevance, as Cohere's and Jina's"),
    "/embed": (EmbedBody, "Embeddings of texts, as text-embeddings-inference's"),
    "/": (InputsBody, "Embeddings or classes of texts, as text-embeddings-inference's"),
    "/rerank": (RerankTextsBody, "Texts by relevance, as text-embeddings-inference's"),
    "/predict": (PredictBody, "Classes of texts, as text-embeddings-inference's"),
}
_OPENAI: Final = "/v1/"


def read_head(path: str, headers: Mapping[bytes, bytes], query: Mapping[str, str] | None = None) -> RequestFactory:
    """Read the head of a request to a path of ``BODIES``. The query is ignored."""
    body_type, _ = BODIES[path]
    read = partial(_parsed, body_type=body_type)

    def create(state: AppState) -> ModelRequest:
        plane: DataPlane = state.dataplane

        def resolve(parsed: TextBody) -> tuple[Version, InferRequest, Callable[[Answer], Reply]]:
            version = find_version(plane, parsed.model, parsed.TASKS)
            body = parsed.for_task("" if version.model is None else version.model.task)
            return version, body.request(), body.reply

        return BodyRequest(plane, headers, read, resolve)

    return create


def error_form(path: str) -> Callable[[ServiceError], Response]:
    """Return the function that makes an answer of an error on a path."""
    return openai_error_response if path.startswith(_OPENAI) else error_response


def _handler(path: str) -> Handler:
    async def handle(request: Request) -> Response:
        create = read_head(path, first_headers(request))
        return await respond(request, dataplane(request), create(request.app.state))

    return with_openai_errors(handle) if path.startswith(_OPENAI) else handle


for _path, (_body, _summary) in BODIES.items():
    _tasks = " or ".join(_body.TASKS)
    router.post(_path, **_documentation(_body, _summary), description=f"For models with task {_tasks}.")(
        _handler(_path)
    )


@router.get("/v1/models", summary="Models, as OpenAI's")
@with_openai_errors
async def models(request: Request) -> Response:
    """The models that are ready."""
    entries = [entry for entry in dataplane(request).store.entries if entry.state is State.READY]
    data = [{"id": entry.name, "object": "model", "created": 0, "owned_by": "pnnx-serve"} for entry in entries]
    return json_response({"object": "list", "data": data})


@router.post("/tokenize", **_documentation(TokenizeBody, "Tokens of texts"))
async def tokenize(request: Request) -> Response:
    """Ids, texts and positions of the tokens of each text; positions are in characters."""
    plane = dataplane(request)
    with plane.memory.answering() as reservation:
        deadline = plane.deadline(read_limit(first_headers(request)))
        body = await read_body(request, plane.settings.max_body_bytes, deadline, reservation)
        parsed = await plane.offload(partial(_parsed, body, TokenizeBody), deadline)
        version = find_version(plane, parsed.model, TEXT_TASKS)
        work = plane.run_on_model(version, lambda model: _tokens(model, parsed), deadline)
        text = await until_disconnect(request, work)
        reservation.charge(len(text))
        return ChargedResponse([text], reservation, _JSON)


def _tokens(model: Any, parsed: TokenizeBody) -> bytes:
    model.signature.content_port("text")
    encodings = model.text_inputs.tokenizer.encode(parsed.inputs, special_tokens=parsed.add_special_tokens)
    return dump_json([list(_token_bodies(model.text_inputs.tokenizer, encoding)) for encoding in encodings])


def _token_bodies(tokenizer: Any, encoding: Encoding) -> Iterator[dict[str, Any]]:
    for index, token in enumerate(encoding.ids):
        is_special = encoding.sequences[index] is None
        start, end = encoding.offsets[index]
        yield {
            "id": token,
            "text": tokenizer.token(token),
            "special": is_special,
            "start": None if is_special else start,
            "stop": None if is_special else end,
        }
