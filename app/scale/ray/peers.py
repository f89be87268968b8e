"""Other replicas: their metrics, and commands for all of them."""

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

# Time limit for other replicas' metrics.
_PATIENCE_S: Final = 2.0


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
        from app.metrics.families import to_bytes

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
