"""ASGI app of a replica: loads models before serving, and forwards requests for other deployments' models.

Replicas of a machine share weights: the first one owns the blocks. It is found through an abstract Unix socket. Both
sides verify that the other is a process of the same user. When the owner ends, running replicas keep their weights, and
the next one to start becomes the owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from ray import serve

import engine
from app.codec.answers import dump_json
from app.errors import ConfigError, ModelNotReadyError, RequestTooLargeError, ServiceError
from app.http.main import create_app
from app.location import stores_folder
from app.metrics.collector import MetricsCollector
from app.remote import open_store
from app.scale.ray.held_models import HeldModels
from app.scale.ray.wire import Message, Receive, Scope, Send, Wire, model_of, passed
from app.serving.control import Command
from app.serving.dataplane import DataPlane
from app.settings import Settings

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of <sys/socket.h>
_BACKLOG: Final = 64
# Time limit for other replicas' metrics.
_PATIENCE_S: Final = 2.0
log = logging.getLogger(__name__)
# Paths that list all models, including those of other deployments.
_LISTS: Final = {"/models": "models", "/v2/repository/index": ""}
_TOLD: Final = ("/metrics", "/models", "/v2/models")
_READY: Final = ("/health/ready", "/v2/health/ready")
_LOOK_S: Final = 0.1
_HAS_ID: Final = b"x-request-id"
_TURN_LOOK_S: Final = 0.05


def share_with_others() -> bool:
    """Share weights with other replicas of this machine; return whether this one is the owner."""
    is_first = _host()
    child = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        child.connect(_name())
        if _user(child) == os.geteuid():
            engine.share_memory(child)
            return is_first
        log.warning("weights are not shared: another user has taken the name")
    except OSError as exc:
        log.warning("weights are not shared with other replicas: %s", exc.strerror)
    child.close()
    return False


def _host() -> bool:
    """Become the owner if there is none."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(_name())
    except OSError:
        listener.close()
        return False
    listener.listen(_BACKLOG)
    threading.Thread(target=_welcome, args=(listener,), daemon=True, name="weights").start()
    return True


def _welcome(listener: socket.socket) -> None:
    shared_blocks = engine.SharedBlockServer()
    while True:
        with suppress(OSError):
            child, _ = listener.accept()
            if _user(child) == os.geteuid():
                shared_blocks.adopt(child)
            else:
                child.close()


def _user(peer: socket.socket) -> int:
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(found)[1]
    return user


def _name() -> str:
    return f"\0pnnx-serve-weights-{os.geteuid()}"


class Peers:
    """Connections of a replica to the others of its deployment, and to deployments of single models."""

    def __init__(self, plane: DataPlane, metrics: MetricsCollector, others: Mapping[str, Any]) -> None:
        self._plane = plane
        self._metrics = metrics
        self._handles = list(others.values())
        self._own: Any = None
        self._tag = ""
        self._figures: list[tuple[bytes, bool]] = []
        self._counters: list[tuple[bytes, bool]] = []

    def join(self) -> None:
        """Label the metrics of this replica, and report on all replicas."""
        context = serve.get_replica_context()
        self._tag = context.replica_id.unique_id
        self._own = serve.get_deployment_handle(context.deployment, context.app_name)
        self._metrics.join(_Board(self._figures), self._tag)
        self._plane.store.counters.peers = lambda: self._counters
        self._plane.commands.join(self, ())

    def tell(self) -> tuple[str, bytes, bytes]:
        """Return the tag, metrics and counters of this replica."""
        from app.metrics.collector import to_bytes

        counters = self._plane.store.counters
        return self._tag, to_bytes(self._metrics.publish()), counters.to_bytes(self._plane.store.entries)

    async def look(self) -> None:
        """Collect the metrics of other replicas; skip those that do not answer in time."""
        found: dict[str, tuple[bytes, bytes]] = {}
        for handle in [self._own, *self._handles]:
            try:
                rows = await handle.broadcast("tell").results_async(timeout_s=_PATIENCE_S, return_exceptions=True)
            except Exception as exc:  # Ray errors
                log.warning("other replicas did not return their metrics (%s)", type(exc).__name__)
                continue
            found |= {row[0]: (row[1], row[2]) for row in rows if isinstance(row, tuple) and row[0] != self._tag}
        self._figures[:] = [(figures, True) for figures, _ in found.values()]
        self._counters[:] = [(counters, True) for _, counters in found.values()]

    async def send(self, command: Command) -> None:
        """Execute a command on all replicas, this one first.

        Raises:
            ServiceError: this replica's error, or the failure of another one.
        """
        await self._plane.commands.do(command)
        try:
            await self._own.broadcast("obey", self._tag, command).results_async(timeout_s=command.limit_s)
        except Exception as exc:  # Ray errors, which include those raised in the replica
            log.error("another replica could not do '%s' of %s: %s", command.verb, command.subject, exc)
            raise ModelNotReadyError(
                f"another replica could not {command.verb}; the call may be repeated",
            ) from None

    async def obey(self, asked: str, command: Command) -> None:
        """Execute a command given to another replica."""
        if asked != self._tag:
            await self._plane.commands.do(command)


class _Board:
    """Collected metrics of other replicas."""

    def __init__(self, found: list[tuple[bytes, bool]]) -> None:
        self._found = found

    def write(self, data: bytes) -> None:
        """Do nothing: metrics are pulled."""

    def previous(self) -> bytes:
        """Return nothing: a replica has no predecessor."""
        return b""

    def peers(self) -> Sequence[tuple[bytes, bool]]:
        """Return the metrics collected last."""
        return self._found


class Front:
    """ASGI app around the service's.

    Args:
        settings: settings of the server.
        only: models to serve; None for all of the store except those of other deployments.
        others: handles of the deployments of other models, by model.
        most: maximum number of models held at once, loaded on demand; None for all.
    """

    def __init__(
        self, settings: Settings, only: tuple[str, ...] | None, others: Mapping[str, Any], most: int | None
    ) -> None:
        is_part = only is not None or bool(others) or most is not None
        # A partial store loads explicitly: the folder also has other deployments' models.
        more: dict[str, Any] = {"model_control": "explicit", "load_model": ()} if is_part else {}
        self._settings = settings.model_copy(update=more)
        self._app = create_app(self._settings)
        self._plane = self._app.state.dataplane
        self._others = others
        self._held_models = HeldModels(self._plane, settings, only, frozenset(others), most) if is_part else None
        self._is_asked = most is not None
        self.peers = Peers(self._plane, self._app.state.metrics, others)
        self._is_alive = False
        self._lifespan: Any = None
        self._settling: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _for_ray(send))

    async def start(self) -> None:
        """Load the models and wait until they are ready."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turn(self._settings))
            self._lifespan = self._app.router.lifespan_context(self._app)
            await self._lifespan.__aenter__()
            await self._plane.loaded.wait()
            if self._held_models is not None:
                await self._held_models.start()
            # It serves before background compiling ends; replicas that start beside it wait for that.
            self._settling = asyncio.create_task(_settle(stack.pop_all(), self._settings.load_timeout_s))
        self.peers.join()
        self._is_alive = True
        if self.problem is not None:
            log.error("this replica serves but is not ready: %s", self.problem)

    async def stop(self) -> None:
        """Stop all work."""
        self._is_alive = False
        if self._settling is not None:
            self._settling.cancel()
        if self._held_models is not None:
            self._held_models.close()
        if self._lifespan is not None:
            lifespan, self._lifespan = self._lifespan, None
            await lifespan.__aexit__(None, None, None)

    @property
    def problem(self) -> str | None:
        """Return why it is not ready, or None."""
        found: str | None = self._plane.unready_reason()
        return found

    def check(self) -> None:
        """Raise if it has stopped.

        Raises:
            RuntimeError: it has.
        """
        if not self._is_alive:
            raise RuntimeError("this replica has ended")

    async def call(self, wire: Wire) -> Wire:
        """Answer a request forwarded by another replica."""
        return await passed(self._serve, wire)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(_TOLD) and scope["method"] in ("GET", "HEAD"):
            await self.peers.look()
        if self._held_models is None:
            await self._app(scope, receive, send)
            return
        try:
            if path in _LISTS or (path in _READY and self._others):
                await self._answer_of_all(scope, receive, send)
                return
            limit = self._settings.max_body_bytes
            name, receive = await model_of(scope, receive, limit, self._held_models.default)
            if name is not None and name in self._others:
                wire = await Wire.of(scope, receive, limit)
                await (await self._ask(name, wire)).send(send)
            else:
                await self._serve(scope, receive, send, name)
        except ServiceError as error:
            await _refuse(error, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, name: str | None = None) -> None:
        """Answer here; keep a model loaded on demand until the end."""
        if self._held_models is None or not self._is_asked:
            await self._app(scope, receive, send)
            return
        async with self._held_models.held(name):
            await self._app(scope, receive, send)

    async def _ask(self, name: str, wire: Wire) -> Wire:
        """Return the answer of the deployment that serves a model.

        Raises:
            ModelNotReadyError: it gave no answer.
        """
        try:
            async with asyncio.timeout(self._settings.request_timeout_s + self._settings.answer_timeout_s):
                found: Wire = await self._others[name].call.remote(wire)
                return found
        except asyncio.CancelledError:
            raise
        except Exception as exc:  # Ray errors: the replica died, none exists, or too many requests wait
            log.warning("model '%s': its replica gave no answer (%s)", name, type(exc).__name__)
            raise ModelNotReadyError(f"model '{name}': its replica gave no answer") from None

    async def _answer_of_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = await Wire.of(scope, receive, self._settings.max_body_bytes)
        answers = await asyncio.gather(
            passed(self._app, wire), *(self._ask(name, wire) for name in self._others), return_exceptions=True
        )
        assert self._held_models is not None  # only such replicas ask others
        own = answers[0]
        if isinstance(own, BaseException):
            raise own
        lacking = [each for each in answers if isinstance(each, BaseException) or each.head != (200,)]
        if scope["path"] in _READY:
            first = lacking[0] if lacking else own
            if isinstance(first, ServiceError):
                raise first
            await (own if isinstance(first, BaseException) else first).send(send)
            return
        rows = dict(zip(self._others, answers[1:], strict=True))
        known = {name: each for name, each in rows.items() if isinstance(each, Wire) and each.head == (200,)}
        await own.with_rows(known, _LISTS[scope["path"]], self._held_models.default_name).send(send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as exc:
            log.exception("this replica cannot start")
            await send({"type": "lifespan.startup.failed", "message": f"{type(exc).__name__}: {exc}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def _settle(turn: AsyncExitStack, limit_s: float) -> None:
    """Release the lock once background compiling has ended."""
    async with turn:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while engine.compile_metrics().is_compiling:
                    await asyncio.sleep(_LOOK_S)


def _for_ray(send: Send) -> Send:
    """Adapt answers for Ray: picklable bodies, and no request id, which Ray adds itself."""

    async def fitting(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(key, value) for key, value in message["headers"] if key != _HAS_ID]
            message = {**message, "headers": headers}
        elif not isinstance(message.get("body", b""), bytes):
            message = {**message, "body": bytes(message["body"])}
        await send(message)

    return fitting


async def _refuse(error: ServiceError, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
    headers += [(key.lower().encode(), value.encode()) for key, value in error.headers.items()]
    if isinstance(error, RequestTooLargeError):
        headers.append((b"connection", b"close"))
    await Wire((error.status,), headers, dump_json(error.body())).send(send)


@asynccontextmanager
async def turn(settings: Settings) -> AsyncIterator[None]:
    """Hold the lock for loading models on this machine (or all that share the cache folder).

    Without a cache folder there is no lock, because each process compiles for itself.
    """
    descriptor = _open(settings) if settings.cache else None
    end = asyncio.get_running_loop().time() + settings.load_timeout_s
    try:
        while descriptor is not None and not _locked(descriptor) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_TURN_LOOK_S)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(settings: Settings) -> int | None:
    folder = stores_folder(None, settings.cache_dir).parent
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / "loading.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def check_store(settings: Settings) -> None:
    """Raise if there is no store. Blocks.

    A standalone server without a store waits for it. Behind Ray, requests would reach a waiting replica, or the
    deployment would never finish; failing with the reason makes Ray retry.

    Raises:
        ConfigError: the store is not on this node, unreachable or invalid. A store fetched before is not checked.
        SettingsError: the extra is not installed on this node.
    """
    store_sync = open_store(settings)
    if store_sync is not None:
        if not store_sync.has_files:
            store_sync.fetch()
        return
    folder = settings.store_folder
    if not folder.is_dir():
        raise ConfigError(
            f"node {socket.gethostname()} has no folder '{folder}': a store must be in the same place on every node, "
            "or at an address (s3://, gs://, https://)"
        )
