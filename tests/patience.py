"""Time limits of tests that wait for another thread, process or machine under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

# No test waits this long, unless what it waits for never comes.
PATIENCE_S: Final = 120.0


def limits(first_s: float) -> Iterator[float]:
    """Yield growing time limits for work that must begin in time: a busy machine may need longer."""
    while first_s < PATIENCE_S:
        yield first_s
        first_s *= 4


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.01)
