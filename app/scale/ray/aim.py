"""Target model of a request, determined before it is answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, unquote

import orjson

from app.scale.ray.wire import Receive, Scope, again, read

_PATH: Final = re.compile(r"(?:/v2(?:/repository)?)?/models/([^/]+)(?:/.*)?")
# Paths that look as if they named a model.
_NONE: Final = ("/v2/models/stats",)
_BY_QUERY: Final = {"/infer": ("POST", "PUT"), "/graph": ("GET", "HEAD")}


async def model_of(
    scope: Scope, receive: Receive, limit: int, default: Callable[[], str | None]
) -> tuple[str | None, Receive]:
    """Return the model's name or None, and the function that receives the body from now on.

    Args:
        scope, receive: of the request.
        limit: maximum size of a body that must be read.
        default: returns the default model.

    Raises:
        ServiceError: the body is too large, or no model is named and there is no default.
    """
    path: str = scope["path"]
    if (match := _PATH.fullmatch(path)) is not None and path not in _NONE:
        return unquote(match[1]), receive
    if scope["method"] not in _BY_QUERY.get(path, ()):
        return None, receive
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    name = query["model"][0] if "model" in query else None
    if name is None and path == "/infer" and b"json" in _content_type(scope):
        body = await read(receive, limit)
        receive = again(body, receive)
        name = _named(body)
    return (default() if name is None else name), receive


def _content_type(scope: Scope) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == b"content-type"), b"json")


def _named(body: bytes) -> str | None:
    """Return the model named in a JSON body; None for invalid JSON, which the service rejects."""
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    name = found.get("model") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
