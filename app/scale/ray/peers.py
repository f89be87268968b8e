"""The other replicas: their figures, and what is to be done by all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ray import serve

from app.errors import ModelNotReadyError
from app.metrics.collector import MetricsCollector
from app.serving.commands import Command
from app.serving.dataplane import DataPlane

log = logging.getLogger(__name__)

# How long others may take to tell their figures.
_PATIENCE_S: Final = 2.0


class Peers:
    """What a replica has of the others of its deployment, and of those of models that have their own."""

    def __init__(self, plane: DataPlane, metrics: MetricsCollector, others: Mapping[str, Any]) -> None:
        self._plane = plane
        self._metrics = metrics
        self._handles = list(others.values())
        self._own: Any = None
        self._tag = ""
        self._figures: list[tuple[bytes, bool]] = []
        self._counters: list[tuple[bytes, bool]] = []

    def join(self) -> None:
        """Be one of them: count under a label of one's own, and tell of all."""
        context = serve.get_replica_context()
        self._tag = context.replica_id.unique_id
        self._own = serve.get_deployment_handle(context.deployment, context.app_name)
        self._metrics.join(_Board(self._figures), self._tag)
        self._plane.store.counters.others = lambda: self._counters
        self._plane.commands.join(self, ())

    def tell(self) -> tuple[str, bytes, bytes]:
        """Who this is, and its figures."""
        from app.metrics.families import to_bytes

        counters = self._plane.store.counters
        return self._tag, to_bytes(self._metrics.publish()), counters.to_bytes(self._plane.store.entries)

    async def look(self) -> None:
        """Ask the others for their figures. Who does not answer in time is left out."""
        found: dict[str, tuple[bytes, bytes]] = {}
        for handle in [self._own, *self._handles]:
            try:
                rows = await handle.broadcast("tell").results_async(timeout_s=_PATIENCE_S, return_exceptions=True)
            except Exception as exc:  # of Ray
                log.warning("other replicas do not tell their figures (%s)", type(exc).__name__)
                continue
            found |= {row[0]: (row[1], row[2]) for row in rows if isinstance(row, tuple) and row[0] != self._tag}
        self._figures[:] = [(figures, True) for figures, _ in found.values()]
        self._counters[:] = [(counters, True) for _, counters in found.values()]

    async def send(self, command: Command) -> None:
        """Have a command done by all replicas, this one first.

        Raises:
            ServiceError: what this one says, or that another one did not do it.
        """
        await self._plane.commands.do(command)
        try:
            await self._own.broadcast("obey", self._tag, command).results_async(timeout_s=command.limit_s)
        except Exception as exc:  # of Ray, with what the replica raised in it
            log.error("another replica could not do '%s' of %s: %s", command.verb, command.subject, exc)
            raise ModelNotReadyError(
                f"another replica could not {command.verb}; the call may be repeated",
                retry_after_s=self._plane.settings.retry_after_s,
            ) from None

    async def obey(self, asked: str, command: Command) -> None:
        """Do what another replica was told."""
        if asked != self._tag:
            await self._plane.commands.do(command)


class _Board:
    """Where others' figures are, once they were asked for."""

    def __init__(self, found: list[tuple[bytes, bool]]) -> None:
        self._found = found

    def write(self, data: bytes) -> None:
        """Whoever wants it asks."""

    def own(self) -> bytes:
        """A replica begins with nothing."""
        return b""

    def others(self) -> Sequence[tuple[bytes, bool]]:
        """As they were told last."""
        return self._found
