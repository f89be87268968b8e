"""Ports for servers that are told where to listen before they do."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path


def unused_port() -> int:
    """Return a port that has no listener and is outside the system's ephemeral range."""
    least, most = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    choice = [*range(10_000, least), *range(most + 1, 1 << 16)] or [*range(least, most + 1)]
    while True:
        port = secrets.choice(choice)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("", port))
            except OSError:
                continue
            return port
