"""Which version of the program this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """As the installed package says."""
    try:
        return metadata.version("pnnx-serve")
    except metadata.PackageNotFoundError:  # run from a folder that is not installed
        return "0"
