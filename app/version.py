"""Installed versions of this program and of others."""

from __future__ import annotations

from importlib import metadata


def version(distribution: str = "pnnx-serve", otherwise: str = "0") -> str:
    """Return the version of an installed package, or ``otherwise`` if it is not installed (a source folder)."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return otherwise
