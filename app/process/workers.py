"""Several server processes on one socket, supervised by a parent.

Worth it only when HTTP itself is the bottleneck, since one process uses every core for inference. Weights are in memory
that the processes share. The parent takes no requests: it starts children, restarts those that die, and passes on
signals.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Final

log = logging.getLogger(__name__)

# Exit status of a child that cannot start at all, so that it is not restarted.
CANNOT_START: Final = 3


def supervise(count: int, start: Callable[[int], SpawnProcess], ended: Callable[[int], None]) -> int:
    """Keep count children running until SIGTERM, SIGINT or SIGHUP, then let them drain.

    Args:
        count: number of children.
        start: starts the child of an index.
        ended: called when a child has ended, before another one is started.

    Returns:
        The exit status: 0 when all children ended well.
    """
    stopping = threading.Event()
    for number in ending():
        signal.signal(number, lambda *_: stopping.set())
    children = [start(index) for index in range(count)]
    while not stopping.is_set():
        wait([child.sentinel for child in children], timeout=0.2)
        for index, child in enumerate(children):
            if child.is_alive() or stopping.is_set():
                continue
            if child.exitcode == CANNOT_START:
                stopping.set()
                break
            ended(index)
            log.error("worker %d ended with status %s; starting another", index, child.exitcode)
            children[index] = start(index)
    for child in children:
        child.terminate()
    for child in children:
        child.join()
    # A child that is still starting is killed by the signal.
    return max(0 if child.exitcode == -signal.SIGTERM else abs(child.exitcode or 0) for child in children)


def detach() -> None:
    """Detach a child from Ctrl-C, and stop it when its parent has ended; called first in a child."""
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals that end the server: SIGTERM, SIGINT, and SIGHUP unless it is ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    return (signal.SIGTERM, signal.SIGINT) if is_ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
