"""The gRPC server: lifecycle, port, limits, and gRPC's health protocol."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc

from app.errors import ModelNotReadyError
from app.grpc.call import Call
from app.keys import Group
from app.protocol.grpc.schema import HEALTH, SERVICE, methods, parse
from app.protocol.v2.operations import find
from app.serving.dataplane import DataPlane
from app.settings import Settings, SettingsError

# By default gRPC writes a line to stderr for every client that disconnects. Read when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc.aio

from app.grpc.call import CallHandlers
from app.grpc.methods import Inference, Methods
from app.keys import Keys
from app.protocol.v2.runtime_settings import RuntimeSettings
from app.protocol.v2.shared_memory import MemoryRegions
from app.tracing.request import Spans

log = logging.getLogger(__name__)

_LARGEST: Final = 2**31 - 1
# Bytes beyond the body limit that gRPC accepts, so that a slightly too large message gets our own error.
_ENVELOPE: Final = 1 << 16
# Streams of one connection; more are reset without an explanation. The number of calls is bounded elsewhere.
_STREAMS: Final = 128
# A connection without calls is closed; clients reconnect by themselves.
_IDLE_MS: Final = 300_000
# Keep-alive: a silent peer is pinged.
_PING_MS: Final = 60_000
_PONG_MS: Final = 20_000
_MAX_BYTES: Final = 1 << 12


class GrpcServer:
    """Server on the running event loop.

    Args:
        plane: the models.
        keys: None without keys.
        runtime_settings: settings that clients may change, shared with HTTP.
        regions: shared-memory regions, shared with HTTP, or None.
        codes: counts calls by status code.
        spans: recorder of spans, or None.
    """

    def __init__(
        self,
        plane: DataPlane,
        keys: Keys | None,
        runtime_settings: RuntimeSettings,
        regions: MemoryRegions | None,
        codes: Counter[str],
        spans: Spans | None = None,
    ) -> None:
        self._settings = plane.settings
        self.handlers = CallHandlers(plane.settings, keys, codes, spans)
        self._handlers = _handlers(plane, runtime_settings, regions, self.handlers)
        self._server: Any = None

    async def start(self, port: int, *, is_shared: bool = False) -> int:
        """Listen and return the port; 0 lets the system choose one.

        Args:
            port: to listen on.
            is_shared: whether other processes listen on it too, each getting some of the connections.

        Raises:
            SettingsError: the port is taken.
        """
        server = grpc.aio.server(options=_options(self._settings, is_shared))
        server.add_generic_rpc_handlers(self._handlers)
        host = self._settings.host
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        credentials = server_credentials(self._settings)
        try:
            bound = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError:
            bound = 0
        if not bound:
            raise SettingsError(f"cannot listen on {host} port {port} (grpc_port), expected a free port")
        await server.start()
        self._server = server
        return int(bound)

    async def stop(self, grace_s: float | None) -> None:
        """Refuse new calls; those in progress are cancelled after so much time."""
        if self._server is not None:
            await self._server.stop(grace_s)


def _handlers(
    plane: DataPlane, runtime_settings: RuntimeSettings, regions: MemoryRegions | None, handlers: CallHandlers
) -> tuple[Any, ...]:
    inference = Inference(plane, runtime_settings, regions)
    others = Methods(plane, runtime_settings, regions, handlers.check)

    def handler(name: str, classes: tuple[Any, Any]) -> Any:
        path = f"/{SERVICE}/{name}"
        if name == "ModelInfer":
            return handlers.handler(path, [Group.INFER], inference.one)
        if name == "ModelStreamInfer":
            return handlers.handler(path, [Group.INFER], inference.stream, is_stream=True)
        return handlers.handler(path, others.rows[name], others.answer(name, classes))

    table = {name: handler(name, classes) for name, classes in methods(SERVICE).items()}
    health = Health(plane, handlers.check)
    check = handlers.handler(f"/{HEALTH}/Check", [], health.check)
    return (
        grpc.method_handlers_generic_handler(SERVICE, table),
        grpc.method_handlers_generic_handler(HEALTH, {"Check": check}),
    )


def _options(settings: Settings, is_shared: bool) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", int(is_shared)),
        ("grpc.max_receive_message_length", min(settings.max_body_bytes + _ENVELOPE, _LARGEST)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", max(_STREAMS, 2 * settings.grpc_max_calls)),
        ("grpc.max_metadata_size", settings.max_header_bytes),
        ("grpc.absolute_max_metadata_size", settings.max_header_bytes),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", int(settings.header_timeout_s * 1e3)),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PONG_MS),
    ]


def server_credentials(settings: Settings) -> Any:
    """Return the TLS credentials, or None without TLS. app/process/sockets.py checks the files.

    Raises:
        SettingsError: the key is encrypted, which gRPC cannot read.
    """
    if settings.tls_certificate is None:
        return None
    if settings.tls_key_password is not None:
        raise SettingsError("grpc_port: gRPC cannot read an encrypted key, expected no tls_key_password")
    chain = settings.tls_certificate.read_bytes()
    return grpc.ssl_server_credentials(
        [(_read(settings.tls_key) or chain, chain)],
        root_certificates=_read(settings.tls_client_ca),
        require_client_auth=settings.tls_client_ca is not None,
    )


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


class Health:
    """Implementation of gRPC's health protocol: the service "" is the server, the name of a model is that model.

    Args:
        plane: the models.
        check: raises if a call lacks a right.
    """

    def __init__(self, plane: DataPlane, check: Callable[[Call, Group], None]) -> None:
        self._plane = plane
        self._check = check
        self._taken, self._given = methods(HEALTH)["Check"]

    async def check(self, call: Call) -> bytes:
        """Return whether the server or a model is serving. Only the question for a model needs a right."""
        service = parse(self._taken, await call.read_one(_MAX_BYTES)).service
        if service in ("", SERVICE):
            is_serving = self._plane.unready_reason() is None
        else:
            self._check(call, Group.METADATA)
            is_serving = self._serves(service)
        return bytes(self._given(status="SERVING" if is_serving else "NOT_SERVING").SerializeToString())

    def _serves(self, model: str) -> bool:
        try:
            find(self._plane.store, model, None)
        except ModelNotReadyError:
            return False
        return True
