"""The protocol's part of the OpenAPI document, from its table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from app.http.v2.app import ROUTES
from app.http.v2.shapes import (
    ANSWERS,
    ERROR,
    INDEX,
    LOAD,
    LOGGING,
    OBJECT,
    REGISTER,
    REQUEST,
    TRACE,
    UNLOAD,
    VERSION,
    Schema,
)

T = TypeVar("T")

_TAG: Final = "open inference protocol v2"
_JSON: Final = "application/json"
_BYTES: Final[Schema] = {"type": "string", "format": "binary"}
# Statuses besides 200, of every route that names a model, of those that read a body, and of inference.
_OF_MODELS: Final = {404: "no such model or version", 503: "the model is not ready"}
_OF_BODIES: Final = {400: "malformed", 408: "too slow", 413: "too large", 415: "unknown Content-Encoding", 429: "full"}
_OF_RUNS: Final = {500: "our fault", 504: "too late"}
_OF_CHANGES: Final = {403: "from another machine"}
# What is read of other bodies, by the end of the path.
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
    """``paths`` of the document."""
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
    """The row whose text the path ends with."""
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
