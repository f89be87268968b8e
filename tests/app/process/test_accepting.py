"""Tests that connections are accepted quickly even if iterations of the event loop are long."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop

from app.process.server import build
from app.settings import Settings
from tests.patience import PATIENCE_S, until

CLIENTS = 96
# Eight connections in a turn, and some turns until the first is there.
TURNS = CLIENTS // 8 + 8


# Where Linux tells of them in struct tcp_info: segments that were sent again; of a listener, those that wait there.
RETRANSMITTED, WAITING = 100, 24


def told_by_tcp(connection: socket.socket, where: int) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[where : where + 4], sys.byteorder)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_crowd_is_let_in_within_a_few_turns_of_the_loop_and_none_is_sent_away_by_the_kernel(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 256))
    server = build(Settings(store=tmp_path), None)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)

    async def let_in() -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        await server.startup([listener])
        with ExitStack() as crowd:
            for _ in range(
                CLIENTS
            ):  # while the loop stands still; one the kernel drops would come again after a second
                client = crowd.enter_context(socket.create_connection(listener.getsockname(), timeout=PATIENCE_S))
                assert told_by_tcp(client, RETRANSMITTED) == 0
            until(lambda: told_by_tcp(listener, WAITING) == CLIENTS)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            found = len(server.server_state.connections)
        await server.shutdown([listener])
        return found

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(let_in()) == CLIENTS
