"""Threads that load models side by side, so that one that takes for ever holds up neither the others nor the end.

A job is asked to stop when its time is up. One that does not heed it is left behind: its place is long taken by the
next, for a place is free again after PATIENCE_S, and what it still makes is thrown away. Where it is stuck in Python an
exception ends its thread; one that is stuck in native code goes on as a daemon.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

log = logging.getLogger(__name__)

# A job that takes longer than most no longer counts as one of those that run side by side...
PATIENCE_S: Final = 10.0
# ... as long as no more than this many run.
MAX_THREADS: Final = 16
# What was given up may heed it by itself for so long.
GRACE_S: Final = 2.0
# Whoever is in there may be about to hold a lock that others need, and would not open it again.
_OUTERMOST: Final = ("_bootstrap", "_bootstrap_inner", "run")
_NOT_IN: Final = ("llvmlite", "importlib", "<frozen importlib", "threading.py", "logging")


class LoadingStoppedError(BaseException):
    """A load is no longer wanted, or its time is up; no fault of an operator, which is why it is no Exception."""


class Stop:
    """What a job asks whether it should go on.

    Args:
        limit_s: its time, counted from when it begins.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._end = float("inf")
        self._is_given_up = False

    def begin(self) -> None:
        """Start the clock of its time limit."""
        self._end = time.monotonic() + self._limit_s

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._is_given_up = True

    def is_cancelled(self) -> bool:
        """Whether its time is over, or nobody wants it any more."""
        return self._is_given_up or time.monotonic() > self._end

    @property
    def left_s(self) -> float:
        """Seconds until its time is up."""
        return self._end - time.monotonic()

    def check(self) -> None:
        """Go on only if somebody waits for it.

        Raises:
            LoadingStoppedError: nobody does.
        """
        if self.is_cancelled():
            raise LoadingStoppedError


@dataclass(slots=True, eq=False)
class Job:
    """Something to load.

    Args:
        work: does it, and says so itself; told when to stop.
        gave_up: called once instead, from another thread, when its time is up and it has not ended.
        needs_bytes: memory it will take, about.
    """

    name: str
    work: Callable[[Stop], None]
    gave_up: Callable[[], None]
    stop: Stop
    began: float = field(default=0.0)
    thread: threading.Thread | None = field(default=None)
    needs_bytes: int = 0


class LoaderPool:
    """Runs jobs in threads of their own, some at once.

    Args:
        size: how many at once, those aside that take longer than PATIENCE_S.
        free_bytes: tells how much memory there is that nobody has taken.
    """

    def __init__(self, size: int, free_bytes: Callable[[], int] = lambda: sys.maxsize) -> None:
        self._size = size
        self._free_bytes = free_bytes
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._later: list[Callable[[], None]] = []
        self._abandoned = 0
        self._is_watched = False
        self._is_closed = False

    def submit(self, job: Job) -> None:
        """Have a job done, unless the pool is closed."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(job)
            self._see_to_it()

    def when_idle(self, work: Callable[[], None]) -> None:
        """Have something done once no job is left, but those that take longer than PATIENCE_S: it would delay them."""
        with self._changed:
            if not self._is_closed:
                self._later.append(work)
                self._see_to_it()

    def _see_to_it(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._watch, name="loading", daemon=True).start()
        self._changed.notify_all()

    def wait(self) -> None:
        """Until every job has ended or was given up, those included that jobs have submitted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._running)

    def close(self) -> None:
        """Drop what waits, and ask what runs to stop."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._later.clear()
            for job in self._running:
                job.stop.give_up()
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether a thread still works, given up or not."""
        return bool(self._running) or self._abandoned > 0

    def _watch(self) -> None:
        """A thread's life: starts jobs while there is room, and gives up those whose time is up."""
        with self._changed:
            while self._waiting or self._running or self._later:
                while (job := self._next()) is not None:
                    self._start(job)
                if self._later and not self._waiting and not self._fresh():
                    self._do_later()
                    continue
                self._changed.wait(self._until_next())
                for job in [job for job in self._running if job.stop.left_s <= 0]:
                    self._give_up(job)
            self._is_watched = False
            self._changed.notify_all()

    def _next(self) -> Job | None:
        """The first that waits and whose memory is there, no longer waiting; any where nothing else runs.

        What those that run will take is counted in full, though some of it is taken already: too little at once costs
        time, too much the process.
        """
        if not self._waiting or not self._has_room():
            return None
        if not self._running:
            return self._waiting.popleft()
        promised = sum(job.needs_bytes for job in self._running)
        free = self._free_bytes() if any(job.needs_bytes for job in self._waiting) else sys.maxsize
        found = next((job for job in self._waiting if not job.needs_bytes or promised + job.needs_bytes <= free), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def _has_room(self) -> bool:
        return self._fresh() < self._size and len(self._running) < MAX_THREADS

    def _fresh(self) -> int:
        """How many run that have not taken longer than most."""
        now = time.monotonic()
        return sum(now - job.began < PATIENCE_S for job in self._running)

    def _do_later(self) -> None:
        """Do what was to be done when nothing is loaded, beside this thread."""
        works, self._later = self._later, []
        with suppress(RuntimeError):  # the system has no more threads
            threading.Thread(target=_do_all, args=(works,), name="after-loading", daemon=True).start()

    def _until_next(self) -> float | None:
        """Seconds until a job has had its time, or its place becomes free; None while nothing runs."""
        now = time.monotonic()
        moments = [job.stop.left_s for job in self._running]
        moments += [left for job in self._running if (left := job.began + PATIENCE_S - now) > 0]
        return max(0.001, min(moments)) if moments else None

    def _start(self, job: Job) -> None:
        job.began = time.monotonic()
        job.stop.begin()
        self._running.append(job)
        try:
            job.thread = threading.Thread(target=self._run, args=(job,), name=f"load-{job.name}", daemon=True)
            job.thread.start()
        except RuntimeError:  # the system has no more threads for us
            self._running.remove(job)
            job.gave_up()

    def _give_up(self, job: Job) -> None:
        self._running.remove(job)
        self._abandoned += 1
        job.stop.give_up()
        job.gave_up()
        timer = threading.Timer(GRACE_S, _interrupt, (job.thread,))
        timer.daemon = True
        timer.start()

    def _run(self, job: Job) -> None:
        try:
            job.work(job.stop)
        except LoadingStoppedError:
            pass
        except BaseException:  # a thread that ends must leave its place, whatever the job has raised
            log.exception("loading '%s'", job.name)
        with self._changed:
            if job in self._running:
                self._running.remove(job)
            else:
                self._abandoned -= 1
            self._changed.notify_all()


def _do_all(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        try:
            work()
        except Exception:  # one of them does not keep the others waiting
            log.exception("after loading")


def _interrupt(thread: threading.Thread | None) -> None:
    """Raise LoadingStoppedError in a thread that computes in Python for ever."""
    if thread is None or not thread.is_alive() or thread.ident is None:
        return
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _NOT_IN) and frame.f_code.co_name not in _OUTERMOST:
            return
        frame = frame.f_back
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(LoadingStoppedError))
