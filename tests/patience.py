"""How long tests wait for what another thread, process or machine under load does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# No test waits this long, unless what it waits for never comes.
PATIENCE_S: Final = 120.0


def until(condition: Callable[[], object]) -> None:
    """Waits until it holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
