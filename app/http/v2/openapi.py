"""The protocol's part of the OpenAPI document, from its table of routes."""

from __future__ import annotations

import re
from typing import Any, Final

from app.http.v2.table import ROUTES

_TAG: Final = "open inference protocol v2"
_ERROR: Final = {
    "type": "object", "required": ["error"], "properties": {"error": {"type": "string"}},
}  # fmt: skip
_TENSOR: Final = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string", "example": "FP32"},
        "parameters": {"type": "object"},
        "data": {"type": "array", "items": {}, "description": "flat or nested; left out where the bytes follow"},
    },
}
_WANTED: Final = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
}
_REQUEST: Final = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object"},
        "inputs": {"type": "array", "items": _TENSOR, "minItems": 1},
        "outputs": {"type": "array", "items": _WANTED},
    },
}
_OBJECT: Final = {"type": "object"}
# Statuses besides 200, of every route that names a model, of those that read a body, and of inference.
_OF_MODELS: Final = {404: "no such model or version", 503: "the model is not ready"}
_OF_BODIES: Final = {400: "malformed", 408: "too slow", 413: "too large", 415: "unknown Content-Encoding", 429: "full"}
_OF_RUNS: Final = {500: "our fault", 504: "too late"}
_OF_SETTINGS: Final = {403: "from another machine"}
_EXAMPLES: Final = {"version": {"example": "1"}}
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
    statuses |= _OF_SETTINGS if path.endswith(("/logging", "/setting")) else {}
    statuses |= {404: "no such region"} if "{region}" in path else {}
    statuses |= _NOT_READY if path.endswith("/ready") else {}
    operation: dict[str, Any] = {
        "tags": [_TAG],
        "summary": text.splitlines()[0],
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}"),
        "responses": {"200": {"description": "done"}} | {str(key): _refusal(why) for key, why in statuses.items()},
    }
    names = re.findall(r"{(\w+)}", path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, **_EXAMPLES.get(name, {})}
            for name in names
        ]
    if is_run:
        content = {
            "application/json": {"schema": _REQUEST},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        }
        operation["requestBody"] = {"required": True, "content": content}
    elif method == "POST":
        operation["requestBody"] = {"required": False, "content": {"application/json": {"schema": _OBJECT}}}
    return operation


def _refusal(why: str) -> dict[str, Any]:
    return {"description": why, "content": {"application/json": {"schema": _ERROR}}}
