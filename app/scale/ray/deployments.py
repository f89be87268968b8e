"""Replicas: each is the whole service in a process of Ray's, with those models that it is there for."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ray import serve

from app.scale.ray.options import ModelOptions, Options
from app.serving.commands import Command
from app.settings import Settings
from app.thread_limits import limit_threads
from app.version import version

if TYPE_CHECKING:  # it imports numpy
    from app.scale.ray.wire import Wire


class Replica:
    """What Ray makes of a deployment on a node.

    Args:
        settings: of the server.
        only: the models it is there for; None for all of the store but those of others.
        others: whoever serves models that have replicas of their own, by their names.
        most: how many models it holds, of those that it is asked for; None for all.
        revision: makes no difference but to Ray, which replaces replicas with another one.
    """

    def __init__(
        self, settings: Settings, only: tuple[str, ...] | None, others: dict[str, Any], most: int | None, revision: str
    ) -> None:
        limit_threads(settings.threads or 1)
        from app.log import configure_logging  # these import numpy, whose threads are settled now
        from app.scale.ray.front import Front, check_store
        from app.scale.ray.sharing import share_with_others

        configure_logging(settings.log_level, settings.log_format)
        check_store(settings)
        share_with_others()
        self.front: Any = Front(settings, only, others, most)

    async def call(self, wire: Wire) -> Wire:
        """An answer to a request that another replica passes on."""
        found: Wire = await self.front.call(wire)
        return found

    async def tell(self) -> tuple[str, bytes, bytes]:
        """Figures, for another replica."""
        found: tuple[str, bytes, bytes] = self.front.peers.tell()
        return found

    async def obey(self, asked: str, command: Command) -> None:
        """Do what another replica was told."""
        await self.front.peers.obey(asked, command)

    async def problem(self) -> str | None:
        """Why it is not ready, though it serves; None where it is."""
        found: str | None = self.front.problem
        return found

    async def check_health(self) -> None:
        """
        Raises:
            RuntimeError: it will not serve any more; Ray starts another one.
        """
        self.front.check()


class Store(Replica):
    """Takes requests from Ray's proxy."""

    def __serve_build_asgi_app__(self) -> Any:
        """What answers them, by Ray's name for it."""
        return self.front


class Model(Replica):
    """Takes requests for its model from the store's replicas."""

    async def __init__(self, *args: Any) -> None:  # type: ignore[misc]  # Ray awaits it
        super().__init__(*args)
        await self.front.start()

    async def __del__(self) -> None:
        await self.front.stop()


def front(name: str, settings: Settings, options: Options, told: dict[str, Any], others: dict[str, Any]) -> Any:
    """The deployment that everything comes to, bound."""
    made = serve.deployment(serve.ingress()(Store), name=name, **told)
    most, revision = options.models_per_replica, options.revision
    made._version = _mark(settings, tuple(others), most, revision)
    return made.bind(settings, None, others, most, revision)


def own(name: str, settings: Settings, share: ModelOptions, told: dict[str, Any]) -> Any:
    """The deployment of a model that has its own, bound."""
    threads = max(1, int(share.cpus))
    made = serve.deployment(Model, name=f"model-{name}", **told)
    settings = settings.model_copy(update={"threads": threads})
    made._version = _mark(settings, name, share.revision)
    return made.bind(settings, (name,), {}, None, share.revision)


def _mark(settings: Settings, *more: object) -> str:
    """What tells replicas that are to be replaced, when an application is deployed again, from those that may stay.

    Ray has a name of its own for it, and makes up one where there is none: then all are replaced. From its config file
    it takes that of all that is said there.
    """
    url = getattr(settings.store, "url", "")  # not told of it, and so not in the settings' text
    return hashlib.sha256(repr((version(), settings.model_dump(), url, more)).encode()).hexdigest()
