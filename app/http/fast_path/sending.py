"""An answer on the fast path, on its way out: head and body in as few calls of the system as can be."""

from __future__ import annotations

from typing import Any, Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from app.http.fast_path.request import Answered
from app.http.wire.null_cycle import NullCycle

# Up to here a copy of all of it takes less than a list of pieces does.
_JOINED: Final = 1 << 17
# Shorter pieces are put together, which takes less than sending them.
_SHORT: Final = 1 << 14
_PIECE: Final = 1 << 20
_CLOSE: Final = (b"connection", b"close")


class Carrier(Protocol):
    """The connection."""

    transport: Any
    flow: FlowControl
    server_state: ServerState


def send(carrier: Carrier, cycle: NullCycle, answered: Answered) -> None:
    """Send an answer that is not long; nothing where nobody takes it."""
    transport, head = carrier.transport, _head(carrier, cycle, answered)
    if transport.is_closing():
        return
    if sum(map(len, answered.pieces)) <= _JOINED:
        transport.write(b"".join([head, *answered.pieces]))
    else:
        transport.writelines([head, *answered.pieces])
    if not cycle.keep_alive:
        transport.close()


async def send_slowly(carrier: Carrier, cycle: NullCycle, answered: Answered) -> None:
    """Send an answer as its client takes it: what waits for that is in the answer, which is counted."""
    transport, flow = carrier.transport, carrier.flow
    held = _head(carrier, cycle, answered)
    cycle.response_started = True
    for piece in answered.pieces:
        for start in range(0, len(piece), _PIECE):
            part = piece if len(piece) <= _PIECE else memoryview(piece)[start : start + _PIECE]
            if flow.write_paused:
                await flow.drain()
            if cycle.disconnected or transport.is_closing():
                return
            if len(part) < _SHORT:
                held = b"".join((held, part))
            else:
                transport.writelines((held, part) if held else (part,))
                held = b""
    if flow.write_paused:
        await flow.drain()
    if cycle.disconnected or transport.is_closing():
        return
    if held:
        transport.write(held)
    if not cycle.keep_alive:
        transport.close()


def _head(carrier: Carrier, cycle: NullCycle, answered: Answered) -> bytes:
    """An answer's first lines, as uvicorn writes them."""
    headers = [*carrier.server_state.default_headers, *answered.headers]
    lines = [STATUS_LINE[answered.status], *[b"%b: %b\r\n" % header for header in headers]]
    if _CLOSE in answered.headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)
