"""The listening socket, TLS, and gRPC beside HTTP, which is imported only with ``grpc_port``."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from app.settings import Settings, SettingsError

if TYPE_CHECKING:
    from starlette.datastructures import State

    from app.grpc.server import GrpcServer


# Length of the accept queue; connections in it take no file descriptors.
BACKLOG: Final = 2048
_OTHERS = ("tls_key", "tls_key_password", "tls_client_ca")
# Interval of checks whether the shutdown has become urgent.
_POLL_S = 0.05


def listen(settings: Settings) -> socket.socket:
    """Return a socket that listens at the address of the settings.

    Raises:
        SettingsError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as exc:
        raise SettingsError(f"cannot listen on {settings.host} port {settings.port}: {reason_of(exc)}") from None
    listener.set_inheritable(True)
    return listener


def reason_of(exc: OSError) -> str:
    """Return why an address cannot be listened on, without the address that socket.create_server adds."""
    # Not os.strerror: for an unknown host the errno is one of getaddrinfo's.
    return str(exc.strerror).partition(" (while attempting")[0]


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context, or None without a certificate.

    TLS 1.2 or later. With ``tls_client_ca`` clients need a certificate of their own.

    Raises:
        SettingsError: a file is missing or invalid, or the files do not belong together.
    """
    if settings.tls_certificate is None:
        if unused := [name for name in _OTHERS if getattr(settings, name) is not None]:
            raise SettingsError(f"{unused[0]} needs tls_certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, settings)
    if settings.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except OSError as exc:  # ssl.SSLError is one
            raise SettingsError(f"tls_client_ca '{settings.tls_client_ca}': {_reason(exc)}") from None
    return context


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    assert settings.tls_certificate is not None
    password = settings.tls_key_password
    # Without a callback OpenSSL would ask for the password at the terminal.
    password_text = "" if password is None else password.get_secret_value()
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, lambda: password_text)
    except (OSError, ValueError) as exc:
        names = f"tls_certificate '{settings.tls_certificate}'"
        names += "" if settings.tls_key is None else f" and tls_key '{settings.tls_key}'"
        hint = " (does the key need tls_key_password?)" if password is None and isinstance(exc, ssl.SSLError) else ""
        raise SettingsError(f"{names}: {_reason(exc)}{hint}") from None


def _reason(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return f"cannot be read: {exc.reason or 'not PEM, or a wrong password'}"
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)


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
