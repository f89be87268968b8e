"""Replicas: each is the whole service in a Ray process, with a subset of the models."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ray import serve

from app.scale.ray.options import ModelOptions, Options
from app.settings import Settings
from app.thread_limits import limit_threads
from app.version import version

if TYPE_CHECKING:  # import numpy
    from app.scale.ray.wire import Wire
    from app.serving.control import Command


class Replica:
    """Replica of a deployment.

    Args:
        settings: settings of the server.
        only: models to serve; None for all of the store except those of other deployments.
        others: handles of deployments with models of their own, by model.
        most: maximum number of models held at once, loaded on demand; None for all.
        revision: a new value makes Ray replace the replicas.
    """

    def __init__(
        self, settings: Settings, only: tuple[str, ...] | None, others: dict[str, Any], most: int | None, revision: str
    ) -> None:
        limit_threads(settings.threads or 1)
        from app.log import configure_logging  # these import numpy, which must wait for the thread limit
        from app.scale.ray.front import Front, check_store, share_with_others

        configure_logging(settings.log_level, settings.log_format)
        check_store(settings)
        share_with_others()
        self.front: Any = Front(settings, only, others, most)

    async def call(self, wire: Wire) -> Wire:
        """Answer a request forwarded by another replica."""
        found: Wire = await self.front.call(wire)
        return found

    async def tell(self) -> tuple[str, bytes, bytes]:
        """Return the metrics and counters for another replica."""
        found: tuple[str, bytes, bytes] = self.front.peers.tell()
        return found

    async def obey(self, asked: str, command: Command) -> None:
        """Execute a command given to another replica."""
        await self.front.peers.obey(asked, command)

    async def problem(self) -> str | None:
        """Return why it is not ready although it serves, or None."""
        found: str | None = self.front.problem
        return found

    async def check_health(self) -> None:
        """Raise if the replica has stopped; Ray then starts another one.

        Raises:
            RuntimeError: it has stopped.
        """
        self.front.check()


class Store(Replica):
    """Replica that receives requests from Ray's proxy."""

    def __serve_build_asgi_app__(self) -> Any:
        """Return the ASGI app, under Ray's name for it."""
        return self.front


class Model(Replica):
    """Replica of one model, which receives requests from the store's replicas."""

    async def __init__(self, *args: Any) -> None:  # type: ignore[misc]  # Ray awaits it
        super().__init__(*args)
        await self.front.start()

    async def __del__(self) -> None:
        await self.front.stop()


def store_deployment(
    name: str, settings: Settings, options: Options, placed: dict[str, Any], others: dict[str, Any]
) -> Any:
    """Return the bound deployment that receives all requests."""
    made = serve.deployment(serve.ingress()(Store), name=name, **placed)
    most, revision = options.models_per_replica, options.revision
    made._version = _mark(settings, tuple(others), most, revision)
    return made.bind(settings, None, others, most, revision)


def model_deployment(name: str, settings: Settings, share: ModelOptions, placed: dict[str, Any]) -> Any:
    """Return the bound deployment of a model with its own options."""
    threads = max(1, int(share.cpus))
    made = serve.deployment(Model, name=f"model-{name}", **placed)
    settings = settings.model_copy(update={"threads": threads})
    made._version = _mark(settings, name, share.revision)
    return made.bind(settings, (name,), {}, None, share.revision)


def _mark(settings: Settings, *more: object) -> str:
    """Return the version of a deployment: replicas with another version are replaced on redeployment.

    Without it Ray makes up a version, and replaces all replicas. For its config file Ray derives one from the contents.
    """
    url = getattr(settings.store, "url", "")  # not part of the settings' repr
    return hashlib.sha256(repr((version(), settings.model_dump(), url, more)).encode()).hexdigest()
