"""Something that is best measured when nobody works: looked for from time to time, and done then.

A thread that runs beside nobody: it waits for a while, sees whether the machine is quiet, and does it with the lowest
priority there is.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from engine.compiler.measuring.others import OtherWork
from engine.compiler.runtime.priority import give_way

# Until it is first looked whether the machine is quiet; twice as long after every time that it is not, up to so long.
_FIRST_S: Final = 20.0
_LONGEST_S: Final = 600.0
# How long a look takes, and what may go on meanwhile, of all cores.
_LOOK_S: Final = 2.0
_IDLE: Final = 0.03
_LOWEST: Final = 19
_END_S: Final = 5.0

_ending = threading.Event()
_threads: list[threading.Thread] = []


def when_quiet(do: Callable[[], bool], wait: Callable[[float], bool] = _ending.wait) -> threading.Thread:
    """Have something done while the machine is quiet, until it says that it need not be done again.

    Args:
        wait: lets so many seconds pass; whether the process ends.
    """
    thread = threading.Thread(target=_look, args=(do, wait), daemon=True, name="measure")
    with suppress(RuntimeError):  # the system has no more threads
        thread.start()
        _threads.append(thread)
    return thread


def _look(do: Callable[[], bool], wait: Callable[[float], bool]) -> None:
    give_way(_LOWEST)
    pause_s = _FIRST_S
    while not wait(pause_s):
        others = OtherWork()
        if wait(_LOOK_S):
            return
        if others.share(0.0) < _IDLE and not do():
            return
        pause_s = min(2 * pause_s, _LONGEST_S)


def _end() -> None:
    """The interpreter ends, and machine code must not be at work when it does."""
    _ending.set()
    for thread in _threads:
        thread.join(_END_S)


atexit.register(_end)
