"""Requests and answers passed between replicas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote

import orjson

from app.errors import RequestTooLargeError

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
_PATH: Final = re.compile(r"(?:/v2(?:/repository)?)?/models/([^/]+)(?:/.*)?")
# Paths that look as if they named a model.
_NONE: Final = ("/v2/models/stats",)
_BY_QUERY: Final = {"/infer": ("POST", "PUT"), "/graph": ("GET", "HEAD")}


@dataclass(slots=True)
class Wire:
    """Request or answer.

    Args:
        head: method, path and query of a request; status of an answer.
        headers: headers.
        body: body.
    """

    head: tuple[Any, ...]
    headers: list[tuple[bytes, bytes]]
    body: bytes = field(repr=False)

    @classmethod
    async def of(cls, scope: Scope, receive: Receive, limit: int) -> Wire:
        """Read a request with its body.

        Raises:
            RequestTooLargeError: the body exceeds the limit.
        """
        body = await read(receive, limit)
        head = scope["method"], scope["path"], scope["query_string"]
        return cls(head, [(bytes(key), bytes(value)) for key, value in scope["headers"]], body)

    def scope(self) -> Scope:
        """Return the ASGI scope of a request."""
        method, path, query = self.head
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": query, "root_path": "", "headers": self.headers,
            "scheme": "http", "client": None, "server": None, "state": {},
        }  # fmt: skip

    async def send(self, send: Send) -> None:
        """Send an answer."""
        headers = [(key, value) for key, value in self.headers if key != b"content-length"]
        headers.append((b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.head[0], "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    def with_rows(self, others: Mapping[str, Wire], key: str, default: str | None) -> Wire:
        """Return a list of models with other replicas' rows in place of this one's.

        Args:
            others: answers of other replicas by model.
            key: key of the list in the answer; empty if the answer is the list.
            default: default model of the whole store.
        """
        if self.head != (200,):
            return self
        found = orjson.loads(self.body)
        rows = [row for row in (found[key] if key else found) if row["name"] not in others]
        for name, wire in others.items():
            theirs = orjson.loads(wire.body)
            rows += [row for row in (theirs[key] if key else theirs) if row["name"] == name]
        for row in rows:
            if "default" in row:
                row["default"] = row["name"] == default
        rows.sort(key=lambda row: str(row["name"]))
        return Wire(self.head, self.headers, orjson.dumps({**found, key: rows} if key else rows))


async def passed(app: App, wire: Wire) -> Wire:
    """Return the answer of an app of this process to a request."""
    answer, parts, is_read = Wire((500,), [], b""), [], False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # never disconnects; waiting is cancelled instead
        is_read = True
        return {"type": "http.request", "body": wire.body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.head, answer.headers = (message["status"],), list(message["headers"])
        else:
            parts.append(bytes(message.get("body", b"")))

    await app(wire.scope(), receive, send)
    answer.body = b"".join(parts)
    return answer


async def read(receive: Receive, limit: int) -> bytes:
    """Read a body.

    Raises:
        RequestTooLargeError: it exceeds the limit.
        asyncio.CancelledError: the client has disconnected.
    """
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise asyncio.CancelledError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise RequestTooLargeError(f"the body is larger than {limit:,} bytes", found=size, limit=limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that replays a body and then continues."""
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay


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
        receive = replay(body, receive)
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
