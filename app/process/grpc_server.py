"""gRPC beside HTTP: its port, start and end. Without ``grpc_port`` gRPC is not imported."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.datastructures import State

from app.process.sockets import reason_of
from app.settings import Settings, SettingsError

if TYPE_CHECKING:
    from app.grpc.server import GrpcServer

# Interval of checks whether the shutdown has become urgent.
_POLL_S = 0.05


def make_grpc_server(settings: Settings, state: State, codes: Counter[str]) -> GrpcServer | None:
    """Return the gRPC server of an app, or None when the settings name no port."""
    if settings.grpc_port is None:
        return None
    from app.grpc.server import GrpcServer

    return GrpcServer(state.dataplane, state.keys, state.runtime_settings, state.shared_memory, codes, state.spans)


def reserve_port(settings: Settings) -> socket.socket | None:
    """Return a socket that reserves the port for all workers without listening; None without gRPC.

    Raises:
        SettingsError: the port is taken, gRPC is not installed, or the key is encrypted.
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
        # Bound exclusively first: a shared port would also be shared with another server.
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


async def stop_grpc_server(grpc_server: GrpcServer, grace_s: float, is_urgent: Callable[[], bool]) -> None:
    """Let calls in progress finish within so much time, or until it is urgent."""
    stopping = asyncio.create_task(grpc_server.stop(grace_s))
    while not is_urgent() and not stopping.done():
        await asyncio.wait((stopping,), timeout=_POLL_S)
    if not stopping.done():
        await grpc_server.stop(None)
    await stopping
