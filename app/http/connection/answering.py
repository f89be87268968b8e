"""One answer on its way out, as uvicorn sends it, but for this: its head leaves together with what comes next.

Each piece that is sent by itself is a call of the system, a packet, and the client woken once more.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

# Shorter pieces are put together, which takes less than sending them.
_SHORT: Final = 1 << 14


class Wire(Protocol):
    """The connection that an answer is sent on."""

    flow: FlowControl
    transport: Any


class Answering:
    """ASGI's ``send`` for one request."""

    __slots__ = ("_cycle", "_held", "_wire")

    def __init__(self, wire: Wire, cycle: RequestResponseCycle) -> None:
        self._wire = wire
        self._cycle = cycle
        # What was not sent yet: the head, and what came after it and is short as well.
        self._held: bytes | None = None

    async def __call__(self, message: Any) -> None:
        """Send a message, or hold it until the next."""
        wire, cycle = self._wire, self._cycle
        # Its end is told a turn of the loop after the connection has ended, and it must not be written to before.
        if wire.flow.write_paused:
            await wire.flow.drain()
        cycle.disconnected = cycle.disconnected or wire.transport.is_closing()
        if cycle.disconnected:
            return
        if self._held is not None and message["type"] == "http.response.body":
            self._go_on(self._held, message.get("body", b""), message.get("more_body", False))
        elif cycle.response_started or message["type"] != "http.response.start" or not self._begin(message):
            await cycle.send(message)

    def _begin(self, message: Any) -> bool:
        """Hold the head, as uvicorn would send it; not where it is for uvicorn to say what is wrong, or to do more."""
        cycle = self._cycle
        headers = [*cycle.default_headers, *((name.lower(), value) for name, value in message["headers"])]
        names, values = b"".join([name for name, _ in headers]), b"".join([value for _, value in headers])
        if HEADER_RE.search(names) or HEADER_VALUE_RE.search(values) or cycle.scope["method"] == "HEAD":
            return False
        given = dict(headers)
        length = given.get(b"content-length", b"")
        if not length.isdigit() or b"transfer-encoding" in given:
            return False
        lines = [STATUS_LINE[message["status"]]]
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
        if given.get(b"connection") == b"close":
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        cycle.chunked_encoding, cycle.expected_content_length = False, int(length)
        self._held = b"".join(lines)
        return True

    def _go_on(self, held: bytes, body: bytes | memoryview, has_more: bool) -> None:
        """Send what is held with a piece of the body, or hold both."""
        cycle, transport = self._cycle, self._wire.transport
        cycle.expected_content_length -= len(body)
        if cycle.expected_content_length < 0 or (cycle.expected_content_length and not has_more):
            raise RuntimeError("the answer is not as long as its Content-Length says")
        if len(body) < _SHORT:
            held = b"".join((held, body))
            if has_more and len(held) < _SHORT:
                self._held = held
                return
            transport.write(held)
        else:
            transport.writelines((held, body))
        self._held = None
        if not has_more:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                transport.close()
            cycle.on_response()
