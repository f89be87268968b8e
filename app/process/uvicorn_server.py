"""uvicorn's server, with a banner at the start and a drain at the end.

At SIGTERM, SIGINT or SIGHUP the server reports not ready, serves for drain_delay_s so that load balancers notice,
closes connections with their next answer, closes the port, finishes requests within shutdown_timeout_s, and exits with
status 0. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import uvicorn

from app.codec.answers import dump_json
from app.http.server.connections import Connections
from app.memory.machine import freeze_heap, freeze_heap_when_due
from app.metrics.collector import MetricsCollector
from app.models.model import Model
from app.models.registry.version import Entry, State, Version
from app.process.sockets import stop_grpc_server, tls_context
from app.process.worker_ipc import WorkerIpc
from app.process.workers import Progress, Readiness, ending
from app.render.table import aligned
from app.serving.dataplane import DataPlane
from app.signature import describe

if TYPE_CHECKING:
    from app.grpc.server import GrpcServer

_PICTURES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
_MAX_ELEMENTS: Final = 64
log = logging.getLogger(__name__)
# The banner is printed after this time at the latest, even if models are still loading.
ANNOUNCE_S: Final = 60.0
# libuv accepts one connection per handle of the listening socket in an iteration of the event loop. Iterations are long
# under load, and when the kernel's queue is full a connection is dropped: its client retries after 1, 3, 7 seconds.
ACCEPTED_AT_ONCE: Final = 8
# Interval at which a worker checks whether it should listen.
_POLL_S: Final = 0.05
# Interval at which a worker publishes its metrics for the others.
_PUBLISH_S: Final = 1.0
# Interval of checks whether newly loaded objects should be frozen.
_FREEZE_CHECK_S: Final = 10.0


def banner(plane: DataPlane, url: str, grpc_port: int | None = None) -> str:
    """Return the text; every model has a row, a failed one with its reason.

    Args:
        plane: models and settings of the server.
        url: address of the server.
        grpc_port: port of gRPC, or None.
    """
    lines = ["", f"  console    {url}/", f"  try        {example(plane, url)}"]
    if grpc_port is not None:
        lines.append(f"  grpc       {urlsplit(url).hostname}:{grpc_port}")
    if (state := plane.unready_reason()) is not None:
        lines.append(f"  not ready  {state}")
    if failed := [entry.name for entry in plane.store.entries if entry.state is State.FAILED]:
        store = shlex.quote(str(plane.settings.store))
        lines.append(f"  next       pnnx-serve check {shlex.join(failed)} --store {store}")
    rows = [("MODEL", "VERSION", "STATE", "TASK", "INPUTS"), *_rows(plane)]
    return "\n".join([*lines, "", *(f"  {line}" for line in aligned(rows)), "", f"  {plane.budget}", ""])


def example(plane: DataPlane, url: str) -> str:
    """Return a curl command that works as pasted: an example picture, a tensor of zeros, or the list of models."""
    lines = [line for entry in _by_preference(plane) for line in _lines(entry, plane, url)]
    return lines[0] if lines else f"curl -s{_key(plane)} {url}/models"


def _by_preference(plane: DataPlane) -> list[Entry]:
    ready = [entry for entry in plane.store.entries if entry.state is State.READY]
    default = plane.store.default_name
    return sorted(ready, key=lambda entry: entry.name != default)


def _lines(entry: Entry, plane: DataPlane, url: str) -> Iterator[str]:
    model = entry.versions[-1].model
    key = _key(plane)
    query = "" if entry.name == plane.store.default_name else f"?model={entry.name}"
    target = shlex.quote(f"{url}/infer{query}") if query else f"{url}/infer"
    picture = _example_picture(entry.files.folder / "examples")
    if model is None:
        return
    if picture is not None and model.signature.takes("picture") is not None:
        kind = _PICTURES[picture.suffix.lower()]
        yield f"curl -s --data-binary {shlex.quote(f'@{picture}')} -H 'content-type: {kind}'{key} {target}"
    zeros = model.example_inputs() if isinstance(model, Model) else None
    if zeros is not None and sum(array.size for array in zeros.values()) <= _MAX_ELEMENTS:
        body = dump_json({"inputs": {name: array.tolist() for name, array in zeros.items()}}).decode()
        yield f"curl -s -H 'content-type: application/json' -d {shlex.quote(body)}{key} {target}"


def _key(plane: DataPlane) -> str:
    """Return the header for a key if the server requires one."""
    return " -H 'authorization: Bearer KEY'" if plane.settings.has_keys else ""


def _example_picture(folder: Path) -> Path | None:
    pictures = sorted(path for path in folder.glob("*") if path.suffix.lower() in _PICTURES)
    return pictures[len(pictures) // 3] if pictures else None


def _rows(plane: DataPlane) -> Iterator[tuple[str, ...]]:
    for entry in plane.store.entries:
        task = entry.files.config.task
        if not entry.versions:
            yield (entry.name, "-", entry.state.value, task, entry.reason or "")
        for version in entry.versions:
            yield (entry.name, str(version.number), version.state.value, task, _inputs(version))


def _inputs(version: Version) -> str:
    if version.model is None:
        return version.reason or ""
    return ", ".join(f"{port.name} {describe(port)}" for port in version.model.signature.inputs)


class Server(uvicorn.Server):
    """uvicorn's server with another start and stop.

    Args:
        url: printed in the banner; None prints no banner.
        readiness_of: readiness of all workers, and the index of this one; None for a single process.
        grpc_server, grpc_port: gRPC, and its port.
        ipc: connection to the other workers; None for a single process.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        plane: DataPlane,
        url: str | None,
        metrics: MetricsCollector,
        readiness_of: tuple[Readiness, int] | None = None,
        grpc_server: GrpcServer | None = None,
        grpc_port: int = 0,
        ipc: WorkerIpc | None = None,
    ) -> None:
        super().__init__(config)
        self.connections: Connections | None = None
        self.grpc_server = grpc_server
        self.grpc_port = grpc_port
        self._ipc = ipc
        self._metrics = metrics
        self._readiness_of = readiness_of
        self.plane = plane
        self._url = url
        self._tls = tls_context(plane.settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._announcement: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the banner when the models are loaded or after ANNOUNCE_S."""
        self._loop = asyncio.get_running_loop()
        if not sockets:
            await super().startup(sockets)
        else:
            await super().startup([])
            if self._readiness_of is None:
                await self._listen(sockets[0], ACCEPTED_AT_ONCE)
            else:
                self._watch = asyncio.create_task(self._listen_when_ready(sockets[0], *self._readiness_of))
        if self._ipc is not None:
            await self._ipc.channel.start(self.plane.commands, partial(self._ipc.publish, self.plane, self._metrics))
            self._publishing = asyncio.create_task(self._publish(self._ipc))
        if self.grpc_server is not None and self._readiness_of is None:
            await self._start_grpc(self.grpc_server)
        elif self.grpc_server is not None:
            self._calling = asyncio.create_task(self._start_grpc(self.grpc_server))
        self._announcement = asyncio.create_task(self._announce())
        self._settling = asyncio.create_task(self._freeze_heap())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close both ports and finish the requests in progress before the models are closed."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.grpc_server is not None:
            grace_s = self.plane.settings.shutdown_timeout_s
            await stop_grpc_server(self.grpc_server, grace_s, lambda: self.force_exit)
        await super().shutdown(sockets)
        if self._ipc is not None:
            await self._ipc.channel.close()

    async def _start_grpc(self, grpc_server: GrpcServer) -> None:
        """Listen for gRPC; as one of several workers only once models are loaded, since gRPC cannot stop listening."""
        if self._readiness_of is not None:
            await self.plane.loaded.wait()
        self.grpc_port = await grpc_server.start(self.grpc_port, is_shared=self._readiness_of is not None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture signals as uvicorn does, and SIGHUP unless it is ignored."""
        with super().capture_signals():
            is_ours = threading.current_thread() is threading.main_thread() and signal.SIGHUP in ending()
            before = signal.signal(signal.SIGHUP, self.handle_exit) if is_ours else None
            try:
                yield
            finally:
                if is_ours:
                    signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, end at the second. Unlike uvicorn, do not raise the signal again."""
        if sig == signal.SIGHUP and self.plane.is_draining:
            return  # closing a terminal may send two, from the terminal and from the shell
        if self.plane.is_draining or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self.plane.is_draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Report not ready, and go on serving until load balancers have noticed."""
        log.info("stopping: finishing requests in progress")
        if self.connections is not None:
            self.connections.is_draining = True
        asyncio.get_running_loop().call_later(self.plane.settings.drain_delay_s, self._stop)

    def _stop(self) -> None:
        self.should_exit = True

    async def _listen_when_ready(self, listener: socket.socket, readiness: Readiness, index: int) -> None:
        """Listen while no other worker has made more progress than this one."""
        while not self.should_exit:
            readiness.set(index, self._progress())
            if not self.servers:
                if readiness.open(index):
                    await self._listen(listener, 1)  # so that a burst of connections is spread over the workers
            elif not readiness.may_accept(index):
                while self.servers:
                    self.servers.pop().close()
                for connection in list(self.server_state.connections):
                    connection.shutdown()  # its client's next request goes to a worker that is ready
                readiness.close(index)
            await asyncio.sleep(_POLL_S)

    async def _publish(self, ipc: WorkerIpc) -> None:
        """Publish this worker's metrics for the others at intervals."""
        while not self.should_exit:
            await ipc.publish(self.plane, self._metrics)
            await asyncio.sleep(_PUBLISH_S)

    def _progress(self) -> Progress:
        # A server that requires only some models is ready before it can answer for all.
        if self.plane.unready_reason() is None and self.plane.store.is_loaded:
            return Progress.READY
        return Progress.LOADED if self.plane.loaded.is_set() and not self.plane.is_draining else Progress.LOADING

    async def _listen(self, listener: socket.socket, at_once: int) -> None:
        """Accept connections, so many in an iteration of the event loop."""

        def connection() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn does
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        tls_limit_s = None if self._tls is None else self.plane.settings.header_timeout_s
        for _ in range(at_once):
            # A duplicate, because closing a server closes its socket.
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

    async def _freeze_heap(self) -> None:
        """Exempt objects that live as long as the server from garbage collections."""
        await self.plane.loaded.wait()
        await asyncio.to_thread(freeze_heap)
        while not self.should_exit:
            await asyncio.sleep(_FREEZE_CHECK_S)
            await asyncio.to_thread(freeze_heap_when_due)

    async def _announce(self) -> None:
        """Print the banner."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settle(), ANNOUNCE_S)
        if self._url is not None and not self.plane.is_draining:
            print(banner(self.plane, self._url, self.grpc_port if self.grpc_server is not None else None), flush=True)

    async def _settle(self) -> None:
        """Wait until the models are loaded, and no worker that is still loading takes connections."""
        await self.plane.loaded.wait()
        if self._readiness_of is None:
            return
        readiness, index = self._readiness_of
        # Set before the check: until this worker is known, workers that are still loading may listen.
        readiness.set(index, self._progress())
        while not (readiness.may_accept(index) and self.servers and readiness.is_settled()):
            await asyncio.sleep(_POLL_S)
            readiness.set(index, self._progress())
