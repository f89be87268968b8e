"""Telling whoever waits how far compiling is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done (``passes``, ``lowering``, ``assembling``), how many parts of it are done and how many
there are."""


def silent(doing: str, done: int, of: int) -> None:
    """Tell nobody."""
