"""The server process, built from the settings and run alone or as one of several workers on one socket."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import socket
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.context import SpawnProcess
from typing import Any, Final

import uvicorn

import engine
from app.http.main import create_app
from app.http.server.connection import Connection
from app.http.server.connections import Connections
from app.http.server.inference import Service
from app.keys import open_keys
from app.log import configure_logging
from app.memory.machine import configure_malloc
from app.metrics.collector import MetricsCollector
from app.models.folder.repository import find_models
from app.process.sockets import BACKLOG, make_grpc_server, reserve_port, tls_context
from app.process.uvicorn_server import Server
from app.process.worker_ipc import WorkerBroadcast, WorkerChannel, WorkerIpc
from app.process.workers import Readiness, Scoreboard, detach, supervise
from app.remote import open_store
from app.serving.dataplane import DataPlane
from app.settings import Settings
from app.tracing import check_spans

log = logging.getLogger(__name__)

# Interval at which threads hand over the GIL: in Python's default of 5 ms several requests could be answered.
_SWITCH_INTERVAL_S: Final = 0.0005
# A higher limit would only slow down programs that iterate over all possible descriptors.
MAX_FILES: Final = 1 << 20


def serve(settings: Settings, listener: socket.socket) -> int:
    """Serve on a listening socket until a signal ends the server; return the exit status.

    Raises:
        ConfigError: there is no such store.
        SettingsError: keys or certificates cannot be read, or the gRPC port cannot be used.
    """
    if open_store(settings) is None:
        find_models(settings.store_folder, settings.model_name)
    configure_logging(settings.log_level, settings.log_format)
    raise_file_limit()
    # Errors in their files are reported here once, not by every worker.
    open_keys(settings)
    check_spans(settings)
    scheme = "http" if tls_context(settings) is None else "https"
    held = reserve_port(settings)
    if held is not None:  # the system may have chosen the port
        settings = settings.model_copy(update={"grpc_port": held.getsockname()[1]})
    url = _url(scheme, settings.host, listener.getsockname()[1])
    if settings.workers == 1:
        if held is not None:
            held.close()
        return run(settings, listener, url)

    shared_blocks, broadcast = engine.SharedBlockServer(), WorkerBroadcast()
    readiness, scoreboards = Readiness(settings.workers), (Scoreboard(settings.workers), Scoreboard(settings.workers))

    def start(index: int) -> SpawnProcess:
        line, begun = broadcast.connect(index)
        with shared_blocks.connect() as memory, line:
            shown = url if index == 0 else None
            process = multiprocessing.get_context("spawn").Process(
                target=_work,
                args=(settings, listener, shown, memory, (readiness, index), scoreboards, line, begun),
                name=f"worker-{index}",
            )
            process.start()
        return process

    def ended(index: int) -> None:
        readiness.clear(index)
        for scoreboard in scoreboards:
            scoreboard.clear(index)

    status = supervise(settings.workers, start, ended)
    broadcast.close()
    return status


def run(
    settings: Settings,
    listener: socket.socket,
    url: str | None,
    readiness_of: tuple[Readiness, int] | None = None,
    ipc: WorkerIpc | None = None,
) -> int:
    """Run one server process on a listening socket; url is printed unless it is None."""
    configure_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    server = build(settings, url, readiness_of, ipc)
    server.run(sockets=[listener])
    is_cut_off = server.force_exit or server.plane.is_busy
    if is_cut_off:
        log.error("stopped before all requests were answered")
    if is_cut_off or server.plane.is_loading:
        # Running threads would keep the interpreter from ending.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(int(is_cut_off))
    return 0


def build(
    settings: Settings,
    url: str | None,
    readiness_of: tuple[Readiness, int] | None = None,
    ipc: WorkerIpc | None = None,
) -> Server:
    """Return a server that is ready to run.

    readiness_of: readiness of all workers, and the index of this one; None for a single process.
    ipc: connection to the other workers; None for a single process.
    """
    app = create_app(settings)
    plane: DataPlane = app.state.dataplane
    metrics: MetricsCollector = app.state.metrics
    grpc_server = make_grpc_server(settings, app.state, metrics.codes)
    connections = Connections(settings)
    metrics.connections, metrics.refusals = connections.__len__, connections.refusals
    if ipc is not None:
        ipc.join(plane, metrics)
    config = uvicorn.Config(
        app,
        http=partial(Connection, connections=connections, service=Service(app.state)),  # type: ignore[arg-type]  # made by calling it, as a class would be
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # handed to loop.call_later
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,  # type: ignore[arg-type]  # handed to asyncio.wait_for
    )
    # The banner replaces what uvicorn logs at its info level.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = Server(config, plane, url, metrics, readiness_of, grpc_server, settings.grpc_port or 0, ipc)
    server.connections = connections
    return server


def _work(
    settings: Settings,
    listener: socket.socket,
    url: str | None,
    memory: socket.socket,
    readiness_of: tuple[Readiness, int],
    scoreboards: tuple[Scoreboard, Scoreboard],
    line: socket.socket,
    begun: list[dict[str, Any]],
) -> None:
    detach()
    engine.share_memory(memory)
    configure_logging(settings.log_level, settings.log_format)
    index = readiness_of[1]
    figures, counters = (scoreboard.slot(index) for scoreboard in scoreboards)
    ipc = WorkerIpc(index=index, figures=figures, counters=counters, channel=WorkerChannel(line, begun))
    sys.exit(run(settings, listener, url, readiness_of, ipc))


def _url(scheme: str, host: str, port: int) -> str:
    """Return a URL to open; a server on every interface is reached on the local one."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{shown}:{port}"


def raise_file_limit() -> int:
    """Raise the limit of open files and connections as far as the system allows; return the limit.

    Processes that are started afterwards inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
