"""The server process: built from the settings and run, alone or as one of several workers on one socket."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import sys
from functools import partial
from multiprocessing.context import SpawnProcess
from typing import Final

import uvicorn
from starlette.datastructures import State

import engine
from app.access.keys import open_keys
from app.http.connection.admission import Admission, Limits
from app.http.connection.connection import Connection
from app.http.fast_path.fast_path import FastPath
from app.http.fast_path.request import Means
from app.http.main import create_app
from app.http.refusing.gate import Gate
from app.log import configure_logging
from app.memory.machine import keep_heap
from app.metrics.meter import Meter
from app.models.folder.repository import find_models
from app.process.calls import make_calls, reserve_port
from app.process.descriptors import raise_file_limit
from app.process.early_health import EarlyHealth
from app.process.peers import Peers
from app.process.scoreboard import Scoreboard
from app.process.standby import Readiness
from app.process.switchboard import Switchboard
from app.process.team import Team
from app.process.tls import tls_context
from app.process.uvicorn_server import Server
from app.process.workers import detach, supervise
from app.remote.opening import open_store
from app.serving.dataplane import DataPlane
from app.settings import Settings
from app.tracing.spans import check_spans

log = logging.getLogger(__name__)

# A thread that computes in Python lets another one in after so long: the interpreter's own 5 ms are several requests.
_TURN_S: Final = 0.0005


def serve(settings: Settings, early_health: EarlyHealth) -> int:
    """Serve until told to stop, from the socket of early health on; the exit status.

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
    listener = early_health.listener
    held = reserve_port(settings)
    if held is not None:  # it may be one that the system chose
        settings = settings.model_copy(update={"grpc_port": held.getsockname()[1]})
    url = _url(scheme, settings.host, listener.getsockname()[1])
    if settings.workers == 1:
        if held is not None:
            held.close()
        return run(settings, listener, url, early_health=early_health)

    early_health.close()
    exchange, switchboard = engine.Exchange(), Switchboard()
    readiness, scoreboards = Readiness(settings.workers), (Scoreboard(settings.workers), Scoreboard(settings.workers))

    def start(index: int) -> SpawnProcess:
        with exchange.connect() as memory, switchboard.connect(index) as line:
            shown = url if index == 0 else None
            process = multiprocessing.get_context("spawn").Process(
                target=_work,
                args=(settings, listener, shown, memory, (readiness, index), scoreboards, line),
                name=f"worker-{index}",
            )
            process.start()
        return process

    def ended(index: int) -> None:
        readiness.clear(index)
        for scoreboard in scoreboards:
            scoreboard.clear(index)

    status = supervise(settings.workers, start, ended)
    switchboard.close()
    return status


def run(
    settings: Settings,
    listener: socket.socket,
    url: str | None,
    standby: tuple[Readiness, int] | None = None,
    peers: Peers | None = None,
    early_health: EarlyHealth | None = None,
) -> int:
    """One server process on a socket that listens already; url is printed, None prints nothing."""
    keep_heap()
    sys.setswitchinterval(_TURN_S)
    server = build(settings, url, standby, peers)
    server.early_health = early_health
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

    standby: which workers are ready, and the index of this one; None for a single process.
    peers: what this worker shares with the others; None for a single process.
    """
    app = create_app(settings)
    plane: DataPlane = app.state.dataplane
    meter: Meter = app.state.meter
    calls = make_calls(settings, app.state, meter.codes)
    admission = Admission(Limits.of(settings))
    meter.connections, meter.refusals = admission.__len__, admission.refusals
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
        http=partial(Connection, admission=admission, gate=gate, fast_path=_fast_path(settings, app.state, gate)),  # type: ignore[arg-type]  # made by calling it, as a class would be
        backlog=admission.limits.backlog,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # handed to loop.call_later
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,  # type: ignore[arg-type]  # handed to asyncio.wait_for
    )
    # The banner says what uvicorn would log at its info level.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = Server(config, plane, url, meter, standby, calls, settings.grpc_port or 0, peers)
    server.admission = admission
    return server


def _fast_path(settings: Settings, state: State, gate: Gate) -> FastPath | None:
    """The fast path; None where answers need what only the app's layers know: headers of CORS, spans of traces."""
    if settings.cors_origins or state.spans is not None:
        return None
    means = Means(state.dataplane, state.regions, state.changing.trace)
    statuses, access_log = state.meter.statuses, settings.access_log
    return FastPath(means, gate, keys=state.keys, statuses=statuses, access_log=access_log)


def _work(
    settings: Settings,
    listener: socket.socket,
    url: str | None,
    memory: socket.socket,
    standby: tuple[Readiness, int],
    scoreboards: tuple[Scoreboard, Scoreboard],
    line: socket.socket,
) -> None:
    detach()
    engine.share_memory(memory)
    configure_logging(settings.log_level, settings.log_format)
    index = standby[1]
    figures, tallies = (scoreboard.place(index) for scoreboard in scoreboards)
    peers = Peers(index=index, figures=figures, tallies=tallies, team=Team(line))
    sys.exit(run(settings, listener, url, standby, peers))


def _url(scheme: str, host: str, port: int) -> str:
    """An address a person can open: a server on every interface is reached on the local one."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{shown}:{port}"
