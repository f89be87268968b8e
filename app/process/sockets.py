"""The listening socket and TLS."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from app.settings import Settings, SettingsError

# Length of the accept queue; connections in it take no file descriptors.
BACKLOG: Final = 2048


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


_OTHERS = ("tls_key", "tls_key_password", "tls_client_ca")


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
