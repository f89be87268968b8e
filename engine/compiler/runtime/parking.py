"""The threads that wait between runs, for all instances of the process together.

An instance gets its threads when it first runs, and they stay parked for its next run. Only so many may be parked: then
the threads of the instance that did not run for longest go home, and it gets new ones when it runs again. That takes
some tens of µs a thread, so nothing is lost where many shapes take turns.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from engine.compiler.runtime.program import Program
from engine.compiler.runtime.protocol import STOP
from engine.compiler.runtime.tables import Tables

# Threads that may be parked, and instances that keep theirs however many those are.
MAX_PARKED: Final = 16
MIN_TEAMS: Final = 2

_STOP = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Workers:
    """Threads of an instance, and the block of memory on which they wait. They never wait on another one.

    Args:
        count: of threads; a system that has fewer for us gives fewer.
    """

    def __init__(self, program: Program, tables: Tables, count: int) -> None:
        self._program = program
        self._block = tables.make_team()
        self.address = self._block.ctypes.data
        self.is_dismissed = False
        self.count = 0
        worker = _WORKER(program.code.address("worker"))
        # A thread holds the program, whose code it is in, and the memory it walks through.
        held = (self._block, tables, program)
        for number in range(1, count + 1):
            try:
                threading.Thread(
                    target=_park, args=(worker, self.address, number, *held), daemon=True, name=f"kernel-{number}"
                ).start()
            except RuntimeError:  # the system has no more: those there are, and the caller, do all the work
                break
            self.count += 1

    def dismiss(self) -> None:
        """Send them home; a run that is under way does without them, and must say it once more at its end."""
        self.is_dismissed = True
        if self.count:
            _STOP(self._program.code.address("stop"))(self.address, STOP, None)


class Parking:
    """Who may keep threads; those that ran last."""

    def __init__(self) -> None:
        self._teams: OrderedDict[Workers, None] = OrderedDict()
        self._parked = 0
        self._lock = threading.Lock()

    def enter(self, workers: Workers) -> None:
        """Count threads that are about to run, and send home those that waited for longest where there are too many."""
        if not workers.count:
            return
        gone: list[Workers] = []
        with self._lock:
            if workers in self._teams:
                self._teams.move_to_end(workers)
                return
            self._teams[workers] = None
            self._parked += workers.count
            while self._parked > MAX_PARKED and len(self._teams) > MIN_TEAMS:
                gone.append(self._teams.popitem(last=False)[0])
                self._parked -= gone[-1].count
        for each in gone:
            each.dismiss()

    def leave(self, workers: Workers) -> None:
        """Send threads home for good."""
        with self._lock:
            if workers in self._teams:
                del self._teams[workers]
                self._parked -= workers.count
        workers.dismiss()


def _park(worker: Callable[[int, int, int], None], address: int, number: int, *held: object) -> None:
    """A thread's whole life."""
    worker(address, 0, number)
    del held


PARKING: Final = Parking()
