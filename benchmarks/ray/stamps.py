"""Time stamps of a request and its answer in a process: a header with a clock that all processes share."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]


class Stamps:
    """ASGI app that stamps the requests of another.

    Its header has the process, and seconds: when the last of the body was there, and when the answer began.
    """

    def __init__(self, app: Any, name: str) -> None:
        self._app = app
        self._header = f"x-stamps-{name}".encode()

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Stamp one request; pass everything else on."""
        heard_at = time.perf_counter()

        async def hearing() -> Message:
            nonlocal heard_at
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                heard_at = time.perf_counter()
            return message

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                stamps = f"{os.getpid()} {heard_at!r} {time.perf_counter()!r}".encode()
                message = {**message, "headers": [*message["headers"], (self._header, stamps)]}
            await send(message)

        await (self._app(scope, hearing, answering) if scope["type"] == "http" else self._app(scope, receive, send))


def of_the_proxy() -> list[Any]:
    """Return the middleware that Ray puts around its proxy if the environment names this function."""
    from starlette.middleware import Middleware

    return [Middleware(Stamps, name="proxy")]


def cpu_s(pids: set[int]) -> float:
    """Return the processor time of all threads of processes."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(path.read_text().split()[0])
            except OSError:  # it has just ended
                continue
    return total / 1e9


def named(name: str) -> set[int]:
    """Return the processes of a name."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                if (path / "comm").read_text().strip() == name:
                    found.add(int(path.name))
            except OSError:
                continue
    return found
