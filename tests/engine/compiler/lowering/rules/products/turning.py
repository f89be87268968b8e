"""Copies of keys into columns, which depend on the tiles of the machine: tests of other claims leave them out."""

from __future__ import annotations

from collections.abc import Iterable


def without_key_copies(kernels: Iterable[str]) -> list[str]:
    """Return the kernels of a run but those that copy keys into columns."""
    return [kernel for kernel in kernels if kernel != "transpose"]
