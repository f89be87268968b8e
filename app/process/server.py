"""The server process: uvicorn around the app, with a banner at the start and a drain at the end.

SIGTERM or SIGINT: not ready any more, go on serving for drain_delay_s so that load balancers notice, every answer the
last one of its connection, close the port, finish what is in flight within shutdown_timeout_s, exit with status 0. A
second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import socket
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final

import uvicorn
from starlette.datastructures import State

import engine
from app.access.keys import open_keys
from app.http.connection import Connection
from app.http.door import Door, Limits
from app.http.gate import Gate
from app.http.main import create_app
from app.http.wire.request import Means
from app.http.wire.way import ShortWay
from app.log import configure_logging
from app.memory.collector import set_aside, set_aside_when_due
from app.memory.machine import keep_heap
from app.metrics.meter import Meter
from app.models.folder.repository import find_models
from app.process.banner import banner
from app.process.board import Board
from app.process.calls import Calls, make_calls, reserve_port, stop_calls
from app.process.descriptors import raise_file_limit
from app.process.peers import Peers
from app.process.porch import Porch
from app.process.standby import Readiness, Standing
from app.process.switchboard import Switchboard
from app.process.team import Team
from app.process.tls import tls_context
from app.process.workers import detach, supervise
from app.remote.opening import open_store
from app.serving.dataplane import DataPlane
from app.settings import Settings
from app.tracing.spans import check_spans

log = logging.getLogger(__name__)

# Models that take longer to load are shown as they are then.
ANNOUNCE_S: Final = 60.0
# libuv accepts one connection in a turn of the loop for each handle of the listening socket. Turns are long where much
# is to be done, and what finds the kernel's queue full is dropped, and comes again after 1, 3, 7 seconds.
ACCEPTED_AT_ONCE: Final = 8
# How often a worker looks whether it should listen.
_LOOK_S: Final = 0.05
# A thread that computes in Python lets another one in after so long: the interpreter's own 5 ms are several requests.
_TURN_S: Final = 0.0005
# How often it leaves its figures for the others.
_PUBLISH_S: Final = 1.0
# How often somebody looks whether what was loaded since is due to be set aside.
_LOOK_AT_GARBAGE_S: Final = 10.0


class Server(uvicorn.Server):
    """uvicorn's server with our own way to start and to stop."""

    def __init__(
        self,
        config: uvicorn.Config,
        plane: DataPlane,
        url: str | None,
        meter: Meter,
        standby: tuple[Readiness, int] | None = None,
        calls: Calls | None = None,
        calls_port: int = 0,
        peers: Peers | None = None,
    ) -> None:
        super().__init__(config)
        self.porch: Porch | None = None
        self.door: Door | None = None
        self.calls = calls
        self.calls_port = calls_port
        self._peers = peers
        self._meter = meter
        self._standby = standby
        self.plane = plane
        self._url = url
        self._tls = tls_context(plane.settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._announcement: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the banner once the models are loaded, or when that takes long."""
        self._loop = asyncio.get_running_loop()
        if not sockets:
            await super().startup(sockets)
        else:
            await super().startup([])
            if self.porch is not None:  # it has answered until now
                await asyncio.to_thread(self.porch.close)
            if self._standby is None:
                await self._listen(sockets[0], ACCEPTED_AT_ONCE)
            else:
                self._watch = asyncio.create_task(self._stand_by(sockets[0], *self._standby))
        if self._peers is not None:
            await self._peers.team.start(self.plane.commands, partial(self._peers.publish, self.plane, self._meter))
            self._publishing = asyncio.create_task(self._publish(self._peers))
        if self.calls is not None and self._standby is None:
            await self._take_calls(self.calls)
        elif self.calls is not None:
            self._calling = asyncio.create_task(self._take_calls(self.calls))
        self._announcement = asyncio.create_task(self._announce())
        self._settling = asyncio.create_task(self._set_aside())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close both ports, and let what is in flight on them finish, before the models go."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.calls is not None:
            grace_s = self.plane.settings.shutdown_timeout_s
            await stop_calls(self.calls, grace_s, lambda: self.force_exit)
        await super().shutdown(sockets)
        if self._peers is not None:
            await self._peers.team.close()

    async def _take_calls(self, calls: Calls) -> None:
        """Listen for gRPC; of several workers each once its models are loaded, for it cannot stop listening."""
        if self._standby is not None:
            await self.plane.loaded.wait()
        self.calls_port = await calls.start(self.calls_port, is_shared=self._standby is not None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second one ends it. Unlike uvicorn's, the signal is not raised again."""
        if self.plane.is_draining or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self.plane.is_draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        log.info("stopping: finishing what is in flight")
        if self.door is not None:
            self.door.is_emptying = True
        asyncio.get_running_loop().call_later(self.plane.settings.drain_delay_s, self._stop)

    def _stop(self) -> None:
        self.should_exit = True

    async def _stand_by(self, listener: socket.socket, readiness: Readiness, index: int) -> None:
        """Listen while no other worker has come further than this one."""
        while not self.should_exit:
            readiness.set(index, self._standing())
            if not self.servers:
                if readiness.open(index):
                    await self._listen(listener, 1)  # the others shall have some of a crowd too
            elif not readiness.may_accept(index):
                while self.servers:
                    self.servers.pop().close()
                for connection in list(self.server_state.connections):
                    connection.shutdown()  # its client's next request goes to a worker that is ready
                readiness.close(index)
            await asyncio.sleep(_LOOK_S)

    async def _publish(self, peers: Peers) -> None:
        """Let the other workers tell what this one counts."""
        while not self.should_exit:
            peers.publish(self.plane, self._meter)
            await asyncio.sleep(_PUBLISH_S)

    def _standing(self) -> Standing:
        if self.plane.unready_reason() is None:
            return Standing.READY
        return Standing.LOADED if self.plane.loaded.is_set() and not self.plane.is_draining else Standing.LOADING

    async def _listen(self, listener: socket.socket, at_once: int) -> None:
        def connection() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn does
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        tls_limit_s = None if self._tls is None else self.plane.settings.header_timeout_s
        for _ in range(at_once):
            # Handles of its own: closing a server closes its socket.
            self.servers.append(
                await asyncio.get_running_loop().create_server(
                    connection,
                    sock=listener.dup(),
                    backlog=self.config.backlog,
                    ssl=self._tls,
                    ssl_handshake_timeout=tls_limit_s,
                    ssl_shutdown_timeout=tls_limit_s,
                )
            )

    async def _set_aside(self) -> None:
        await self.plane.loaded.wait()
        await asyncio.to_thread(set_aside)
        while not self.should_exit:
            await asyncio.sleep(_LOOK_AT_GARBAGE_S)
            await asyncio.to_thread(set_aside_when_due)

    async def _announce(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settle(), ANNOUNCE_S)
        if self._url is not None and not self.plane.is_draining:
            print(banner(self.plane, self._url, self.calls_port if self.calls is not None else None), flush=True)

    async def _settle(self) -> None:
        """Until the models are loaded here, and no worker that still loads its own takes connections."""
        await self.plane.loaded.wait()
        if self._standby is None:
            return
        readiness, index = self._standby
        # Said before it is asked: as long as nobody knows of this one, those that still load may all listen.
        readiness.set(index, self._standing())
        while not (readiness.may_accept(index) and self.servers and readiness.is_settled()):
            await asyncio.sleep(_LOOK_S)
            readiness.set(index, self._standing())


def serve(settings: Settings, porch: Porch) -> int:
    """Serve until told to stop, from the porch on; the exit status.

    Raises:
        ConfigError: there is no such store.
        SettingsError: keys or certificates cannot be read; the address for gRPC cannot be listened on.
    """
    if open_store(settings) is None:
        find_models(settings.store_folder, settings.model_name)
    configure_logging(settings.log_level, settings.log_format)
    raise_file_limit()
    # What is wrong with their files is told once, and not by every worker.
    open_keys(settings)
    check_spans(settings)
    scheme = "http" if tls_context(settings) is None else "https"
    listener = porch.listener
    held = reserve_port(settings)
    if held is not None:  # it may be one that the system chose
        settings = settings.model_copy(update={"grpc_port": held.getsockname()[1]})
    url = _url(scheme, settings.host, listener.getsockname()[1])
    if settings.workers == 1:
        if held is not None:
            held.close()
        return run(settings, listener, url, porch=porch)

    porch.close()
    exchange, switchboard = engine.Exchange(), Switchboard()
    readiness, boards = Readiness(settings.workers), (Board(settings.workers), Board(settings.workers))

    def start(index: int) -> SpawnProcess:
        with exchange.connect() as memory, switchboard.connect(index) as line:
            shown = url if index == 0 else None
            process = multiprocessing.get_context("spawn").Process(
                target=_work,
                args=(settings, listener, shown, memory, (readiness, index), boards, line),
                name=f"worker-{index}",
            )
            process.start()
        return process

    def ended(index: int) -> None:
        readiness.clear(index)
        for board in boards:
            board.clear(index)

    status = supervise(settings.workers, start, ended)
    switchboard.close()
    return status


def run(
    settings: Settings,
    listener: socket.socket,
    url: str | None,
    standby: tuple[Readiness, int] | None = None,
    peers: Peers | None = None,
    porch: Porch | None = None,
) -> int:
    """One server process on a socket that listens already; url is printed, None prints nothing."""
    keep_heap()
    sys.setswitchinterval(_TURN_S)
    server = build(settings, url, standby, peers)
    server.porch = porch
    server.run(sockets=[listener])
    is_cut_off = server.force_exit or server.plane.is_busy
    if is_cut_off:
        log.error("stopped with work in flight")
    if is_cut_off or server.plane.is_loading:
        # Threads that still run would keep the interpreter from ending.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(int(is_cut_off))
    return 0


def build(
    settings: Settings,
    url: str | None,
    standby: tuple[Readiness, int] | None = None,
    peers: Peers | None = None,
) -> Server:
    """A server that has yet to be run.

    standby: who of several workers is ready, and which of them this one is; None for one that is alone.
    peers: what it has of the others.
    """
    app = create_app(settings)
    plane: DataPlane = app.state.dataplane
    meter: Meter = app.state.meter
    calls = make_calls(settings, app.state, meter.codes)
    door = Door(Limits.of(settings))
    meter.connections, meter.refusals = door.__len__, door.refusals
    gate = Gate(
        plane,
        keys=app.state.keys,
        statuses=meter.statuses,
        is_off=app.state.spans is not None,
        access_log=settings.access_log,
        has_origins=bool(settings.cors_origins),
    )
    if peers is not None:
        peers.join(plane, meter)
    config = uvicorn.Config(
        app,
        http=partial(Connection, door=door, gate=gate, way=_short_way(settings, app.state, gate)),  # type: ignore[arg-type]  # made by calling it, as a class would be
        backlog=door.limits.backlog,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # handed to loop.call_later
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,  # type: ignore[arg-type]  # handed to asyncio.wait_for
    )
    # What uvicorn says at its info level, the banner says better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = Server(config, plane, url, meter, standby, calls, settings.grpc_port or 0, peers)
    server.door = door
    return server


def _short_way(settings: Settings, state: State, gate: Gate) -> ShortWay | None:
    """None where answers have headers that are known on the long way only, or somebody wants to be told of each."""
    if settings.cors_origins or state.spans is not None:
        return None
    means = Means(state.dataplane, state.regions, state.changing.trace)
    statuses, access_log = state.meter.statuses, settings.access_log
    return ShortWay(means, gate, keys=state.keys, statuses=statuses, access_log=access_log)


def _work(
    settings: Settings,
    listener: socket.socket,
    url: str | None,
    memory: socket.socket,
    standby: tuple[Readiness, int],
    boards: tuple[Board, Board],
    line: socket.socket,
) -> None:
    detach()
    engine.share_memory(memory)
    configure_logging(settings.log_level, settings.log_format)
    index = standby[1]
    figures, tallies = (board.place(index) for board in boards)
    peers = Peers(index=index, figures=figures, tallies=tallies, team=Team(line))
    sys.exit(run(settings, listener, url, standby, peers))


def _url(scheme: str, host: str, port: int) -> str:
    """An address a person can open: a server on every interface is reached on the local one."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{shown}:{port}"
