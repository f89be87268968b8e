"""Models held by a replica that does not serve the whole store.

Either a fixed set, or models loaded on demand up to a limit, with LRU eviction. Files are polled as for any store:
changed ones are loaded beside what serves and then replace it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from app.errors import ConfigError, ModelNotFoundError, ServiceError
from app.messages import quoted
from app.models.folder.identity import mark_of
from app.models.folder.repository import find_models, read_model
from app.serving.control import Command, in_thread
from app.serving.dataplane import DataPlane
from app.settings import Settings

log = logging.getLogger(__name__)


class HeldModels:
    """Loading and unloading of a replica's models.

    Args:
        plane: data plane of the replica.
        settings: settings of the server.
        only: models to serve; None for all except ``others``.
        others: models of other deployments.
        most: maximum number of models held at once, loaded on demand; None for all.
    """

    def __init__(
        self,
        plane: DataPlane,
        settings: Settings,
        only: tuple[str, ...] | None,
        others: frozenset[str],
        most: int | None,
    ) -> None:
        self._plane = plane
        self._settings = settings
        self._only = only
        self._others = others
        self._most = most
        self._there: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._defaults: tuple[str, ...] = ()
        self._defaults_by_mark: dict[str, tuple[str, bool]] = {}
        self._held: OrderedDict[str, int] = OrderedDict()
        self._loading = asyncio.Lock()
        self._released = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the initial models and start polling."""
        await self._look()
        self._watch = asyncio.create_task(self._go_on())

    def close(self) -> None:
        """Stop polling."""
        if self._watch is not None:
            self._watch.cancel()

    @property
    def default_name(self) -> str | None:
        """Return the default model of the whole store, whatever this replica holds."""
        if self._settings.default_model is not None:
            return self._settings.default_model
        candidates = tuple(self._there) if len(self._there) == 1 else self._defaults
        return candidates[0] if len(candidates) == 1 else None

    def default(self) -> str:
        """Return the default model.

        Raises:
            ModelNotFoundError: there is none; the request must name a model.
        """
        if (name := self.default_name) is not None:
            return name
        names = sorted(self._there)
        raise ModelNotFoundError(f"the request names no model: expected ?model= one of {quoted(names)}", known=names)

    @asynccontextmanager
    async def held(self, name: str | None) -> AsyncIterator[None]:
        """Keep a model loaded while the context is open. Unknown models are left for the service to reject.

        Raises:
            ServiceError: it cannot be served.
        """
        if name is None or self._most is None or name not in self._there:
            yield
            return
        await self._hold(name)
        try:
            yield
        finally:
            self._held[name] -= 1
            self._released.set()

    async def _hold(self, name: str) -> None:
        """Count a request of a model, loading it first if needed."""
        while name not in self._held:
            async with self._loading:
                if name not in self._held:
                    await self._make_room()
                    await self._load(name)
                    self._held[name] = 0
                    announce(self._held)
        # No await since the check above, so it is still loaded.
        self._held[name] += 1
        self._held.move_to_end(name)

    async def _make_room(self) -> None:
        """Evict the least recently used model without requests."""
        assert self._most is not None
        while len(self._held) >= self._most:
            idle = next((name for name, count in self._held.items() if not count), None)
            if idle is None:
                self._released.clear()
                await self._released.wait()
                continue
            del self._held[idle]
            self._marks.pop(idle, None)
            await self._do("unload", idle)

    async def _load(self, name: str) -> None:
        self._marks[name] = self._there.get(name, "")
        await self._do("load", name)

    async def _do(self, verb: str, name: str) -> None:
        """Load or unload a model in this replica only."""
        arguments = {"name": name, "config": None}
        await self._plane.commands.do(
            Command(verb=verb, subject=f"model/{name}", arguments=arguments, limit_s=self._settings.load_timeout_s)
        )

    async def _go_on(self) -> None:
        while self._settings.reload_interval_s > 0:
            await asyncio.sleep(self._settings.reload_interval_s)
            try:
                await self._look()
            except Exception:  # a defect of ours must not end the task
                log.exception("failed to poll the store")

    async def _look(self) -> None:
        """Poll the store, and load what is new or has changed and settled."""
        try:
            found, defaults = await in_thread(self._read)
        except ConfigError as exc:
            log.error("%s", exc)
            return
        before, self._there, self._defaults = self._there, found, defaults
        await self._plane.control.discover()
        wanted = self._held if self._most is not None else [name for name in found if self._is_mine(name)]
        for name in tuple(wanted):
            is_at_rest = not before or before.get(name) == found.get(name)
            if name in found and is_at_rest and self._marks.get(name) != found[name]:
                try:
                    await self._load(name)
                except ServiceError as error:  # also reported in answers
                    log.error("model '%s': %s", name, error.message)
        for name in [name for name in self._marks if name not in found]:
            self._marks.pop(name)
            await self._do("unload", name)

    def _is_mine(self, name: str) -> bool:
        return name in self._only if self._only is not None else name not in self._others

    def _read(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return digests of all models by name, and the models marked as default."""
        models: list[Any] = find_models(self._settings.store_folder, self._settings.model_name)
        marks = {each.name: mark_of(each) for each in models}
        known = self._defaults_by_mark
        for each in models:
            if known.get(each.name, ("", False))[0] != marks[each.name]:
                known[each.name] = marks[each.name], read_model(each).config.default
        return marks, tuple(name for name in marks if known[name][1])


def announce(names: Iterable[str]) -> None:
    """Report the held models to Ray, which then routes requests whose header names one.

    Without it Ray chooses any replica.
    """
    try:
        from ray.serve._private.common import RequestRoutingInfo
        from ray.serve.context import _get_global_client, _get_internal_replica_context

        context = _get_internal_replica_context()
        info = RequestRoutingInfo(replica_id=context.replica_id, multiplexed_model_ids=list(names))
        _get_global_client().record_request_routing_info(info)
    except Exception as exc:  # private names of Ray, which other versions may lack
        log.debug("this replica's models could not be reported to Ray (%s)", type(exc).__name__)
