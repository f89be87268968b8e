"""Telling whoever waits how far compiling is, and asking whether anybody still waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from engine.stopping import check_wanted

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done (``passes``, ``lowering``, ``assembling``), how many parts of it are done and how many
there are."""


def silent(doing: str, done: int, of: int) -> None:
    """Tell nobody."""


def asking(progress: Progress) -> Progress:
    """The same, which then asks whether what is being made is still wanted.

    Raises:
        RunCancelledError: when called, and nobody wants it any more.
    """

    def tell(doing: str, done: int, of: int) -> None:
        progress(doing, done, of)
        check_wanted(doing, "compiling was cancelled")

    return tell
