"""How long tests wait for what another thread, process or machine under load does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

# No test waits this long, unless what it waits for never comes.
PATIENCE_S: Final = 120.0


def limits(first_s: float) -> Iterator[float]:
    """Ever longer times for what has to begin before its time is up: how long that takes, a busy machine decides."""
    while first_s < PATIENCE_S:
        yield first_s
        first_s *= 4


def until(condition: Callable[[], object]) -> None:
    """Waits until it holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
