"""The protocol's part of the OpenAPI document, from its routes and the schemas of its messages.

Nothing is validated against the schemas at run time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from app.http.v2.app import ROUTES
from app.protocol.v2.ports import NAMES

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
