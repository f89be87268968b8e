"""ASGI app that is the floor of the measurement: it answers as many bytes as the request's header asks for."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

_SIZE = b"x-answer-bytes"


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Read the whole body and answer zeros."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = bytearray()
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    size = next((int(value) for name, value in scope["headers"] if name == _SIZE), 0)
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(size)})


if __name__ == "__main__":
    from app.memory.machine import keep_heap

    keep_heap()  # the same heap as the server's: a floor that maps every body anew would be too high
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
