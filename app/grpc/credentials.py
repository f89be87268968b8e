"""TLS for gRPC: the certificate, and the authorities of clients, that HTTP has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from app.settings import Settings, SettingsError


def server_credentials(settings: Settings) -> Any:
    """What connections are wrapped in; None where they are not. Which files are good says app/process/tls.py.

    Raises:
        SettingsError: the key is encrypted, which gRPC cannot read.
    """
    if settings.tls_certificate is None:
        return None
    if settings.tls_key_password is not None:
        raise SettingsError("grpc_port: gRPC reads no encrypted key, so it goes with no tls_key_password")
    chain = settings.tls_certificate.read_bytes()
    return grpc.ssl_server_credentials(
        [(_read(settings.tls_key) or chain, chain)],
        root_certificates=_read(settings.tls_client_ca),
        require_client_auth=settings.tls_client_ca is not None,
    )


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
