"""The socket that the server listens on, bound before anything that takes long is imported."""

from __future__ import annotations

import socket
from typing import Final

from app.settings import Settings, SettingsError

_BACKLOG: Final = 2048


def listen(settings: Settings) -> socket.socket:
    """Return a socket that listens where the settings say.

    Raises:
        SettingsError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as exc:
        raise SettingsError(f"cannot listen on {settings.host} port {settings.port}: {reason_of(exc)}") from None
    listener.set_inheritable(True)
    return listener


def reason_of(exc: OSError) -> str:
    """Return why an address cannot be listened on, without the address, which socket.create_server adds."""
    # Not os.strerror: for an unknown host the errno is one of getaddrinfo's.
    return str(exc.strerror).partition(" (while attempting")[0]
