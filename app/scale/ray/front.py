"""The service's app as a replica runs it: loaded before it is asked, and with what others serve passed on to them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import engine
from app.codec.answers import dump_json
from app.errors import ConfigError, ModelNotReadyError, RequestTooLargeError, ServiceError
from app.http.main import create_app
from app.location import stores_folder
from app.remote.opening import open_store
from app.scale.ray.aim import model_of
from app.scale.ray.holding import Holding
from app.scale.ray.peers import Peers
from app.scale.ray.wire import Message, Receive, Scope, Send, Wire, passed
from app.settings import Settings

log = logging.getLogger(__name__)

# Paths that tell of all models: what others serve is asked of them.
_LISTS: Final = {"/models": "models", "/v2/repository/index": ""}
_TOLD: Final = ("/metrics", "/models", "/v2/models")
_READY: Final = ("/health/ready", "/v2/health/ready")
_LOOK_S: Final = 0.1
_HAS_ID: Final = b"x-request-id"
_TURN_LOOK_S: Final = 0.05


class Front:
    """An ASGI app around the service's.

    Args:
        only: the models it is there for; None for all of the store but those of others.
        others: handles of the deployments that serve the models of these names.
        most: how many models it holds, of those that it is asked for; None for all.
    """

    def __init__(
        self, settings: Settings, only: tuple[str, ...] | None, others: Mapping[str, Any], most: int | None
    ) -> None:
        is_part = only is not None or bool(others) or most is not None
        # What a part of a store is made of, somebody has to say: the folder names models of others as well.
        more: dict[str, Any] = {"model_control": "explicit", "load_model": ()} if is_part else {}
        self._settings = settings.model_copy(update=more)
        self._app = create_app(self._settings)
        self._plane = self._app.state.dataplane
        self._others = others
        self._holding = Holding(self._plane, settings, only, frozenset(others), most) if is_part else None
        self._is_asked = most is not None
        self.peers = Peers(self._plane, self._app.state.metrics, others)
        self._is_alive = False
        self._lifespan: Any = None
        self._settling: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _for_ray(send))

    async def start(self) -> None:
        """Load the models; until they are."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turn(self._settings))
            self._lifespan = self._app.router.lifespan_context(self._app)
            await self._lifespan.__aenter__()
            await self._plane.loaded.wait()
            if self._holding is not None:
                await self._holding.start()
            # It serves before all is compiled; those that start beside it wait for that, and it does not.
            self._settling = asyncio.create_task(_settle(stack.pop_all(), self._settings.load_timeout_s))
        self.peers.join()
        self._is_alive = True
        if self.problem is not None:
            log.error("this replica serves, but: %s", self.problem)

    async def stop(self) -> None:
        """End all work."""
        self._is_alive = False
        if self._settling is not None:
            self._settling.cancel()
        if self._holding is not None:
            self._holding.close()
        if self._lifespan is not None:
            lifespan, self._lifespan = self._lifespan, None
            await lifespan.__aexit__(None, None, None)

    @property
    def problem(self) -> str | None:
        """Why it is not ready; None where it is."""
        found: str | None = self._plane.unready_reason()
        return found

    def check(self) -> None:
        """
        Raises:
            RuntimeError: it has ended.
        """
        if not self._is_alive:
            raise RuntimeError("this replica has ended")

    async def call(self, wire: Wire) -> Wire:
        """The answer to a request that another replica passes on."""
        return await passed(self._serve, wire)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(_TOLD) and scope["method"] in ("GET", "HEAD"):
            await self.peers.look()
        if self._holding is None:
            await self._app(scope, receive, send)
            return
        try:
            if path in _LISTS or (path in _READY and self._others):
                await self._answer_of_all(scope, receive, send)
                return
            limit = self._settings.max_body_bytes
            name, receive = await model_of(scope, receive, limit, self._holding.default)
            if name is not None and name in self._others:
                wire = await Wire.of(scope, receive, limit)
                await (await self._ask(name, wire)).send(send)
            else:
                await self._serve(scope, receive, send, name)
        except ServiceError as error:
            await _refuse(error, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, name: str | None = None) -> None:
        """Answer here; a model that has to be loaded for it is not let go before the end."""
        if self._holding is None or not self._is_asked:
            await self._app(scope, receive, send)
            return
        async with self._holding.held(name):
            await self._app(scope, receive, send)

    async def _ask(self, name: str, wire: Wire) -> Wire:
        """The answer of whoever serves a model.

        Raises:
            ModelNotReadyError: there is nobody just now.
        """
        try:
            async with asyncio.timeout(self._settings.request_timeout_s + self._settings.answer_timeout_s):
                found: Wire = await self._others[name].call.remote(wire)
                return found
        except asyncio.CancelledError:
            raise
        except Exception as exc:  # of Ray: the replica has died, none is there, too many wait
            log.warning("model '%s': its replica gave no answer (%s)", name, type(exc).__name__)
            raise ModelNotReadyError(
                f"model '{name}': its replica gave no answer", retry_after_s=self._settings.retry_after_s
            ) from None

    async def _answer_of_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = await Wire.of(scope, receive, self._settings.max_body_bytes)
        answers = await asyncio.gather(
            passed(self._app, wire), *(self._ask(name, wire) for name in self._others), return_exceptions=True
        )
        assert self._holding is not None  # nobody else asks others
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
        await own.with_rows(known, _LISTS[scope["path"]], self._holding.default_name).send(send)

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
    """Give the next one its turn once nothing is compiled any more."""
    async with turn:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while engine.compile_metrics().is_compiling:
                    await asyncio.sleep(_LOOK_S)


def _for_ray(send: Send) -> Send:
    """Answers as Ray passes them on: bodies that can be pickled, and without a request's id, which it adds itself."""

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
    """Be the only one of this machine, or of all that share the cache's folder, that loads models.

    Where there is no such folder nobody waits: each compiles for itself anyway.
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
    """See that there is a store. Blocks.

    On one machine a server that has no store yet waits for it. Behind Ray requests would go to a replica that waits, or
    a deployment would be waited for without end: here it fails with the reason, and Ray tries again.

    Raises:
        ConfigError: it is not on this node, cannot be reached, or is not what it should be. Of a store that was
            fetched before no look is needed: it serves on.
        SettingsError: the extra is not installed on this node.
    """
    keeper = open_store(settings)
    if keeper is not None:
        if not keeper.has_files:
            keeper.fetch()
        return
    folder = settings.store_folder
    if not folder.is_dir():
        raise ConfigError(
            f"node {socket.gethostname()} has no folder '{folder}': a store must be in the same place on every node, "
            "or at an address (s3://, gs://, https://)"
        )
