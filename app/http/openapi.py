"""The OpenAPI document: FastAPI's document of the routes, with working examples.

Examples are built from the served models, so that each can be sent unchanged; its name begins with the status of the
answer, ``x-status`` has it for programs.

The part of the Open Inference Protocol is made from its routes and the schemas of its messages. Nothing is validated
against the schemas at run time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.codec.answers import dump_json
from app.codec.parse import JSON
from app.http.access import group_of
from app.http.v2.app import ROUTES
from app.models.model import Model
from app.models.registry.version import Version
from app.protocol.v2.ports import NAMES
from app.serving.dataplane import DataPlane
from app.tasks.images.image import PIXEL

T = TypeVar("T")

Schema = dict[str, Any]

_MOST: Final = 2**63 - 1
_TEXT: Final[Schema] = {"type": "string"}
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_OBJECT: Final[Schema] = {"type": "object"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": _MOST}
# null is equivalent to omission.
_PARAMETERS: Final[Schema] = {"type": ["object", "null"]}
_MAX_EXAMPLE_ELEMENTS: Final = 512
_MAX_EXAMPLE_MODELS: Final = 8
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_WHY: Final = {"401": "no key, or an unknown one", "403": "the key does not allow this"}


def _object(required: str, /, **known: Schema) -> Schema:
    """Return the schema of an object; required: blank-separated names of required keys."""
    return {"type": "object", "required": required.split(), "properties": known}


def _closed(**known: Schema) -> Schema:
    """Return the schema of an object of these optional keys only."""
    return {"type": "object", "additionalProperties": False, "properties": known}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_SENT: Final = _object(
    "name shape datatype",
    name=_NAME,
    shape={**_list(_COUNT), "maxItems": 32},
    datatype={"type": "string", "enum": [*NAMES], "example": "FP32"},
    parameters=_PARAMETERS,
    data={"type": "array", "items": {}, "description": "flat or nested; left out where the bytes follow"},
)
_WANTED: Final = _object("name", name=_NAME, parameters=_PARAMETERS)
_FOUND: Final = _object(
    "name shape datatype", name=_TEXT, shape=_list(_COUNT), datatype=_TEXT, parameters=_OBJECT, data=_list({})
)
_PORT: Final = _object("name datatype shape", name=_TEXT, datatype=_TEXT, shape=_list({"type": "integer"}))
_REGION: Final = _object("name key offset byte_size", name=_TEXT, key=_TEXT, offset=_COUNT, byte_size=_COUNT)
_VERSION_STATE: Final = _object("name version state reason", name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)
_LIVE: Final = _object("live", live=_FLAG)
_READY: Final = _object("ready", ready=_FLAG)
_STATISTICS: Final = _object("model_stats", model_stats=_list(_object("name version", name=_TEXT, version=_TEXT)))

ERROR: Final = _object("error", error=_TEXT)
OBJECT: Final = _OBJECT
VERSION: Final[Schema] = {"type": "string", "pattern": "^([1-9][0-9]{0,8}|[A-Za-z][A-Za-z0-9._-]{0,63})$"}
REQUEST: Final = _object(
    "inputs",
    id={"type": ["string", "null"]},
    parameters=_PARAMETERS,
    inputs={**_list(_SENT), "minItems": 1},
    outputs=_list(_WANTED),
)
REGISTER: Final = _object("key byte_size", key=_NAME, offset=_COUNT, byte_size={**_COUNT, "minimum": 1})
INDEX: Final = _object("", ready={"type": ["boolean", "null"]})
LOGGING: Final = _closed(
    log_file={"type": "string", "const": ""},
    log_info=_FLAG,
    log_warning=_FLAG,
    log_error=_FLAG,
    log_verbose_level={"type": "integer", "minimum": 0},
    log_format={"type": "string", "const": "default"},
)
_LEVELS: Final[Schema] = {"type": "array", "items": {"enum": ["OFF", "TIMESTAMPS"]}, "minItems": 1}
TRACE: Final = _closed(
    trace_file={"enum": ["", None]},
    trace_level={"oneOf": [_LEVELS, {"type": "null"}]},
    trace_rate={"type": ["string", "null"], "pattern": "^[1-9][0-9]{0,8}$"},
    trace_count={"type": ["string", "null"], "pattern": "^(-1|[0-9]{1,9})$"},
    log_frequency={"enum": ["0", None]},
)
# Keys beside parameters are ignored, as everywhere in the protocol; unknown parameters are refused.
LOAD: Final = _object("", parameters={**_closed(config={"type": ["string", "null"]}), "type": ["object", "null"]})
UNLOAD: Final = _object(
    "", parameters={**_closed(unload_dependents={"type": ["boolean", "null"]}), "type": ["object", "null"]}
)

# Schemas of answers by the end of the path; the first match counts.
ANSWERS: Final[tuple[tuple[str, Schema | None], ...]] = (
    ("/v2", _object("name version extensions", name=_TEXT, version=_TEXT, extensions=_list(_TEXT))),
    ("/health/live", _LIVE),
    ("/ready", _READY),
    ("/v2/models", _object("models", models=_list(_TEXT))),
    ("/stats", _STATISTICS),
    ("/repository/index", _list(_VERSION_STATE)),
    ("/infer", _object("model_name model_version outputs", model_name=_TEXT, model_version=_TEXT, id=_TEXT,
                       outputs=_list(_FOUND))),
    ("/status", _list(_REGION)),
    ("/config", _object("name input output", name=_TEXT, input=_list(_OBJECT), output=_list(_OBJECT))),
    ("register", None),
    ("load", None),
    ("/logging", LOGGING),
    ("/setting", TRACE),
    ("", _object("name versions platform inputs outputs", name=_TEXT, versions=_list(_TEXT), platform=_TEXT,
                 inputs=_list(_PORT), outputs=_list(_PORT))),
)  # fmt: skip

_TAG: Final = "open inference protocol v2"
_JSON: Final = "application/json"
_BYTES: Final[Schema] = {"type": "string", "format": "binary"}
# Statuses besides 200: of routes that name a model, of those that read a body, of inference, and of changes.
_OF_MODELS: Final = {404: "no such model or version", 503: "the model is not ready"}
_OF_BODIES: Final = {400: "malformed", 408: "too slow", 413: "too large", 415: "unknown Content-Encoding", 429: "full"}
_OF_RUNS: Final = {500: "fault of the server", 504: "deadline exceeded"}
_OF_CHANGES: Final = {403: "from another machine"}
# Schemas of other bodies by the end of the path.
_BODIES: Final = (
    ("/index", INDEX),
    ("/systemsharedmemory/region/{region}/register", REGISTER),
    ("/logging", LOGGING),
    ("/setting", TRACE),
    ("/load", LOAD),
    ("/unload", UNLOAD),
    ("", OBJECT),
)
_PARTS: Final[dict[str, Schema]] = {"version": {"schema": VERSION, "example": "1"}}
_NOT_READY: Final = {503: "not ready"}


def v2_paths() -> dict[str, Any]:
    """Return the ``paths`` of the document."""
    paths: dict[str, Any] = {}
    for method, path, endpoint in ROUTES:
        if not path.endswith("/"):
            paths.setdefault(path, {})[method.lower()] = _operation(method, path, endpoint.__doc__ or "")
    return paths


def _operation(method: str, path: str, text: str) -> dict[str, Any]:
    is_run = path.endswith("/infer")
    statuses = {400: "malformed"} | (_OF_MODELS if "{name}" in path else {})
    statuses |= _OF_BODIES if method == "POST" else {}
    statuses |= _OF_RUNS if is_run else {}
    statuses |= _OF_CHANGES if path.endswith(("/logging", "/setting", "/load", "/unload", "register")) else {}
    statuses |= {404: "no such region"} if "{region}" in path else {}
    statuses |= _NOT_READY if path.endswith("/ready") else {}
    operation: dict[str, Any] = {
        "tags": [_TAG],
        "summary": text.splitlines()[0],
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}"),
        "responses": {"200": _answer(path)} | {str(key): _refusal(why) for key, why in statuses.items()},
    }
    names = re.findall(r"{(\w+)}", path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, **_PARTS.get(name, {})}
            for name in names
        ]
    if is_run:
        content = {_JSON: {"schema": REQUEST}, "application/octet-stream": {"schema": _BYTES}}
        operation["requestBody"] = {"required": True, "content": content}
    elif method == "POST":
        operation["requestBody"] = {"required": False, "content": {_JSON: {"schema": _of(path, _BODIES)}}}
    return operation


def _of(path: str, rows: Iterable[tuple[str, T]]) -> T:
    """Return the value of the first row whose text ends the path."""
    return next(what for end, what in rows if path.endswith(end))


def _answer(path: str) -> dict[str, Any]:
    schema = _of(path, ANSWERS)
    if schema is None:
        return {"description": "done"}
    content: dict[str, Any] = {_JSON: {"schema": schema}}
    if path.endswith("/infer"):
        content["application/octet-stream"] = {"schema": _BYTES}
    return {"description": "done", "content": content}


def _refusal(why: str) -> dict[str, Any]:
    return {"description": why, "content": {_JSON: {"schema": ERROR}}}


def install_openapi(app: FastAPI) -> None:
    """Let the app build its document on request, and again when other models are ready, since examples depend on them.

    The bytes are cached, so that repeated requests cost the event loop next to nothing.
    """
    made: dict[tuple[tuple[str, int], ...], tuple[dict[str, Any], bytes]] = {}

    def document() -> tuple[dict[str, Any], bytes]:
        ready = _ready(app.state.dataplane)
        key = tuple((version.name, version.number) for version in ready)
        if key not in made:
            made.clear()
            found = _document(app, ready)
            made[key] = found, dump_json(found)
        return made[key]

    async def answer(_: Request) -> Response:
        return Response(document()[1], media_type="application/json")

    app.openapi = lambda: document()[0]  # type: ignore[method-assign]
    # Before FastAPI's own route, which serialises the document for each request.
    app.router.routes.insert(0, Route(app.openapi_url or "/openapi.json", answer, include_in_schema=False))


def _ready(plane: DataPlane) -> list[Version]:
    """Return the newest version of every model that is loaded."""
    newest = [entry.versions[-1] for entry in plane.store.entries if entry.versions]
    return [version for version in newest if version.model is not None]


def _document(app: FastAPI, ready: list[Version]) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
    )
    document["paths"] |= v2_paths()
    paths = document["paths"]
    _drop_validation_errors(document)
    if app.state.keys is not None:
        add_security(document)
    _add_examples(paths["/infer"], ready[:_MAX_EXAMPLE_MODELS], named=True)
    if ready:
        _add_examples(paths["/models/{name}/infer"], ready[:1], named=False)
        for path, operations in paths.items():
            for operation in operations.values() if "{name}" in path else ():
                operation["parameters"][0]["example"] = ready[0].name
    return document


def _drop_validation_errors(document: dict[str, Any]) -> None:
    """Remove FastAPI's 422 for parameters of the wrong type; here the answer is 400."""
    for path in document["paths"].values():
        for operation in path.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _add_examples(path: dict[str, Any], versions: list[Version], *, named: bool) -> None:
    examples = {
        f"{status} {title}": {"summary": title, "x-status": status, "value": value}
        for version in versions
        if isinstance(version.model, Model)
        for title, status, value in _examples(version.model, named)
    }
    if named:
        unknown = {"model": "no-such-model", "inputs": [[0]]}
        examples["404 unknown model"] = {"summary": "unknown model", "x-status": 404, "value": unknown}
    path["post"]["requestBody"]["content"][JSON]["examples"] = examples


def _examples(model: Model, named: bool) -> Iterator[tuple[str, int, dict[str, Any]]]:
    name = {"model": model.name} if named else {}
    title = f"{model.name}: " if named else ""
    zeros = model.example_inputs()
    if zeros is not None and sum(array.size for array in zeros.values()) <= _MAX_EXAMPLE_ELEMENTS:
        inputs = {key: array.tolist() for key, array in zeros.items()}
        yield f"{title}tensors", 200, {**name, "inputs": inputs}
        flat = {k: {"shape": [*a.shape], "dtype": a.dtype.name, "data": a.ravel().tolist()} for k, a in zeros.items()}
        yield f"{title}flat tensors with shape and dtype", 200, {**name, "inputs": flat}
    takes_any_size = model.preprocessor is not None and model.preprocessor.config.resize != "none"
    if takes_any_size and len(model.signature.inputs) == 1:
        yield f"{title}picture", 200, {**name, "inputs": {"image": PIXEL}}
    yield f"{title}inputs missing", 400, name
    yield (
        f"{title}wrong shape",
        422,
        {**name, "inputs": {port.name: [[[[[[[0]]]]]]] for port in model.signature.inputs}},
    )


def add_security(document: dict[str, Any]) -> None:
    """Document the keys that operations need."""
    document["components"]["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            group = group_of(method.upper(), path)
            if group is not None:
                operation["security"] = [{name: []} for name in _SCHEMES]
                operation["description"] = f"{operation.get('description', '')}\n\nNeeds an {group} key.".strip()
                for status, why in _WHY.items():
                    operation["responses"][status] = {"description": why, "content": _content(operation)}


def _content(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the operation's other errors."""
    others = (answer["content"] for status, answer in operation["responses"].items() if status >= "4")
    return next(others, {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}})
