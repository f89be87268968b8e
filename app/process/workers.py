"""Several server processes on one socket, and a parent that keeps them alive.

Worth it only where HTTP itself is the bottleneck: one process uses every core for inference already. Weights lie in
memory that the processes share. The parent takes no requests: it starts children, starts anew those that die, and
passes on SIGTERM.
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

# A child that ends with this status cannot start at all: starting it again would not help.
CANNOT_START: Final = 3


def supervise(count: int, start: Callable[[int], SpawnProcess], ended: Callable[[int], None]) -> int:
    """Keep count children running until SIGTERM, SIGINT or SIGHUP, then let them drain.

    Args:
        count: how many.
        start: starts the child of that index.
        ended: told of a child that is no more, before another one takes its place.

    Returns:
        The exit status: 0 when all ended well.
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
    # A child that was still starting dies of the signal itself.
    return max(0 if child.exitcode == -signal.SIGTERM else abs(child.exitcode or 0) for child in children)


def detach() -> None:
    """Called first in a child: Ctrl-C is for the parent alone, and a child whose parent is gone stops as well."""
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def ending() -> tuple[signal.Signals, ...]:
    """SIGTERM and SIGINT; and SIGHUP, that of a terminal that is closed, unless whoever started it has it ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    return (signal.SIGTERM, signal.SIGINT) if is_ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
