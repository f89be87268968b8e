"""A request, or an answer, on its way between replicas: a head, and the body as the bytes it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from app.errors import RequestTooLargeError

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class Wire:
    """One of them.

    Args:
        head: of a request method, path and query; of an answer the status.
    """

    head: tuple[Any, ...]
    headers: list[tuple[bytes, bytes]]
    body: bytes = field(repr=False)

    @classmethod
    async def of(cls, scope: Scope, receive: Receive, limit: int) -> Wire:
        """A request with all of its body.

        Raises:
            RequestTooLargeError: the body is larger than the limit.
        """
        body = await read(receive, limit)
        head = scope["method"], scope["path"], scope["query_string"]
        return cls(head, [(bytes(key), bytes(value)) for key, value in scope["headers"]], body)

    def scope(self) -> Scope:
        """Of a request."""
        method, path, query = self.head
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": query, "root_path": "", "headers": self.headers,
            "scheme": "http", "client": None, "server": None, "state": {},
        }  # fmt: skip

    async def send(self, send: Send) -> None:
        """Answer with it."""
        headers = [(key, value) for key, value in self.headers if key != b"content-length"]
        headers.append((b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.head[0], "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    def with_rows(self, others: Mapping[str, Wire], key: str, default: str | None) -> Wire:
        """A list of models with the rows of others in the place of its own.

        key: what the list is called in the answer; empty where the answer is the list.
        default: the model that is meant where none is named: each replica knows those it has.
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
    """The answer of an app of this process to a request."""
    answer, parts, is_read = Wire((500,), [], b""), [], False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # nobody hangs up here: who waits for the answer is cancelled instead
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
    """A body.

    Raises:
        RequestTooLargeError: it is larger than the limit.
        asyncio.CancelledError: the client has gone away.
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


def again(body: bytes, receive: Receive) -> Receive:
    """What receives a body that was read already, and then whatever comes."""
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay
