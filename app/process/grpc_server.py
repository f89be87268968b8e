"""gRPC beside HTTP: its port, its start, its end. Without ``grpc_port`` nothing of it is loaded."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from starlette.datastructures import State

from app.process.sockets import reason_of
from app.settings import Settings, SettingsError

# How often it is looked whether nobody wants to wait any longer.
_LOOK_S = 0.05


class GrpcPort(Protocol):
    """A gRPC server; app/grpc/server.py."""

    async def start(self, port: int, *, is_shared: bool = False) -> int:
        """Listen; the port."""
        ...

    async def stop(self, grace_s: float | None) -> None:
        """Take no more calls; those that are open have so much time."""
        ...


def make_grpc_server(settings: Settings, state: State, codes: Counter[str]) -> GrpcPort | None:
    """The gRPC server of an app; None where the settings name no port for it."""
    if settings.grpc_port is None:
        return None
    from app.grpc.server import GrpcServer

    return GrpcServer(state.dataplane, state.keys, state.changing, state.regions, codes, state.spans)


def reserve_port(settings: Settings) -> socket.socket | None:
    """A socket that holds the port for all workers, and does not listen; None where there is no gRPC.

    Raises:
        SettingsError: the port is taken, gRPC is not installed, or reads no key that is encrypted.
    """
    if settings.grpc_port is None:
        return None
    try:
        from app.grpc.server import server_credentials
    except ModuleNotFoundError as exc:
        raise SettingsError(
            f"grpc_port needs an extra that is not installed ({exc.name}): pip install 'pnnx-serve[grpc]'"
        ) from None
    server_credentials(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        # Alone first: sockets that share a port would share it with those of another server, too.
        with socket.create_server((settings.host, settings.grpc_port), family=family) as alone:
            address = alone.getsockname()
        held = socket.socket(family)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
        return held
    except OSError as exc:
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.grpc_port} (grpc_port): {reason_of(exc)}"
        ) from None


async def stop_grpc_server(grpc_server: GrpcPort, grace_s: float, is_urgent: Callable[[], bool]) -> None:
    """Let open calls finish within so much time, or until it is urgent."""
    stopping = asyncio.create_task(grpc_server.stop(grace_s))
    while not is_urgent() and not stopping.done():
        await asyncio.wait((stopping,), timeout=_LOOK_S)
    if not stopping.done():
        await grpc_server.stop(None)
    await stopping
