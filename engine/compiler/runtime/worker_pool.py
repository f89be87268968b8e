"""Worker pool: kernel threads that wait between runs, for all instances of the process.

The threads of an instance start with its first run and then wait for the next. Only a limited number may wait: beyond
that, the threads of the least recently run instance end, and are started again when it runs, in some tens of µs a
thread.
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

# Most waiting threads, and instances that always keep theirs.
MAX_WAITING: Final = 16
MIN_TEAMS: Final = 2

_STOP = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Workers:
    """Threads of an instance, and the block of memory on which they wait; they never wait on another block.

    Args:
        count: number of threads; fewer are started if the system refuses more.
    """

    def __init__(self, program: Program, tables: Tables, count: int) -> None:
        self._program = program
        self._block = tables.make_team()
        self.address = self._block.ctypes.data
        self.is_dismissed = False
        self.count = 0
        worker = _WORKER(program.code.address("worker"))
        # A thread keeps the program, whose code it runs, and the memory it walks alive.
        held = (self._block, tables, program)
        for number in range(1, count + 1):
            try:
                threading.Thread(
                    target=_run_worker, args=(worker, self.address, number, *held), daemon=True, name=f"kernel-{number}"
                ).start()
            except RuntimeError:  # no more threads: the others and the caller do all the work
                break
            self.count += 1

    def dismiss(self) -> None:
        """Let the threads end; a current run continues without them, and must repeat this at its end."""
        self.is_dismissed = True
        if self.count:
            _STOP(self._program.code.address("stop"))(self.address, STOP, None)


class WorkerPool:
    """Teams of workers that may wait, the least recently run first."""

    def __init__(self) -> None:
        self._teams: OrderedDict[Workers, None] = OrderedDict()
        self._lock = threading.Lock()

    def enter(self, workers: Workers) -> None:
        """Register threads that are about to run, and dismiss the least recently run if there are too many."""
        dismissed: list[Workers] = []
        with self._lock:
            is_new = workers not in self._teams
            if is_new:
                self._drop_dismissed()
            self._teams[workers] = None
            self._teams.move_to_end(workers)
            while is_new and len(self._teams) > MIN_TEAMS and sum(each.count for each in self._teams) > MAX_WAITING:
                dismissed.append(self._teams.popitem(last=False)[0])
        for each in dismissed:
            each.dismiss()

    def leave(self, workers: Workers) -> None:
        """Dismiss threads for good.

        The garbage collector may call this while the same thread holds the lock, so it must not wait for the lock. The
        next new team then removes these threads from the pool.
        """
        workers.dismiss()
        if self._lock.acquire(blocking=False):
            try:
                self._drop_dismissed()
            finally:
                self._lock.release()

    def _drop_dismissed(self) -> None:
        for each in [each for each in self._teams if each.is_dismissed]:
            del self._teams[each]


def _run_worker(worker: Callable[[int, int, int], None], address: int, number: int, *held: object) -> None:
    """Run the worker's code until it is dismissed."""
    worker(address, 0, number)
    del held


POOL: Final = WorkerPool()
