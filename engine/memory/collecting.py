"""The collector of garbage, kept away from what has none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Do not look for cycles while very many objects are made that have none.

    The search takes longer than they do; and whatever is there when the collector looks counts as something that stays,
    so that it soon looks through all there is. Several threads may do so at once: it is on again when the first of them
    is done.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
