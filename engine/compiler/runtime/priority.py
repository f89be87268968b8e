"""Which threads the system lets run first."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


def give_way(steps: int) -> None:
    """Let others run before this thread, from now on: most users may not take that back.

    Only for threads that compute without the interpreter's lock: who waits for the lock waits for them.

    Args:
        steps: how far; 5 leaves a third of a core that somebody else wants as well, 19 almost nothing.
    """
    with suppress(OSError, AttributeError):  # a system that knows no priority of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), steps)
