"""Which version of the program, or of another one, is installed."""

from __future__ import annotations

from importlib import metadata


def version(distribution: str = "pnnx-serve", otherwise: str = "0") -> str:
    """As the installed package says; ``otherwise`` where there is none, as when we run from a folder."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return otherwise
