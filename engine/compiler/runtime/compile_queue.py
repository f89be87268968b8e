"""Compile queue: one thread of the process that compiles in the background.

A shape without a program becomes a request. It is compiled when it recurs: shapes that occur once, such as image sizes,
cost only a note. The thread takes the request with the highest count, and of those the latest. A request that does not
recur within a minute is not compiled.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from engine.cancellation import Progress, cancelling
from engine.compile_metrics import METER
from engine.errors import RunCancelledError
from engine.limits import MEMORY_RETRY_S
from engine.tensor import DType, TensorSpec

Key: TypeAlias = tuple[tuple[tuple[int | None, ...], DType], ...]
# Step of a long job: called with a function that lets other threads run, returns whether there is more to do.
Job: TypeAlias = Callable[[Progress], bool]

# Occurrences of a shape before it is compiled.
WORTH: Final = 2
# Most requests, and the time that one that does not recur may wait.
MAX_REQUESTS: Final = 1024
PATIENCE_S: Final = 60.0
# Time limit of one compile.
LIMIT_S: Final = 120.0
# While compiling: switch interval of the interpreter, and sleep after every kernel.
_TURN_S: Final = 0.0005
_PAUSE_S: Final = 0.0002
_END_S: Final = 5.0

_log = logging.getLogger("pnnx_serve.engine")


class Owner(Protocol):
    """Instances of a graph, of which some are made in the background."""

    def make(self, request: Request, progress: Progress) -> None:
        """Make an instance and keep it, or decline the request.

        Raises:
            RunCancelledError: it takes too long, or the interpreter ends.
        """

    def has_room(self, size: int | None) -> bool:
        """Return whether an instance of this size would be kept; None where the size is not known."""


@dataclass(slots=True, eq=False)
class Request:
    """Shape without an instance.

    Args:
        count: occurrences since the last attempt.
        bytes: memory of its instance; None while unknown.
        has_failed: whether it cannot be compiled.
        retry_after: time of the next attempt after there was not enough memory.
        is_urgent: whether it is compiled at its first occurrence.
    """

    owner: weakref.ref[Owner]
    key: Key
    specs: tuple[TensorSpec, ...]
    count: int = 0
    bytes: int | None = None
    has_failed: bool = False
    is_urgent: bool = False
    retry_after: float = 0.0
    met_s: float = field(default_factory=time.monotonic)

    def fail(self, reason: str) -> None:
        """Never try it again."""
        self.has_failed = True
        shapes = ", ".join(map(str, self.specs))
        _log.warning("no program for %s, the reference layers run instead: %s", shapes, reason)

    def defer(self, reason: str) -> None:
        """Try it again later: there was not enough memory."""
        self.retry_after = time.monotonic() + MEMORY_RETRY_S
        _log.warning("no program for %s for now: %s", ", ".join(map(str, self.specs)), reason)

    @property
    def is_deferred(self) -> bool:
        """Return whether it is too early to try it again."""
        return time.monotonic() < self.retry_after

    def decline(self, size: int) -> None:
        """Try it again when the shape recurs and there is room for so many bytes."""
        self.bytes, self.count, self.is_urgent = size, 0, False

    @property
    def is_due(self) -> bool:
        """Return whether it is worth a compile now."""
        owner = self.owner()
        if owner is None or self.has_failed or self.is_deferred or time.monotonic() - self.met_s > PATIENCE_S:
            return False
        return (self.is_urgent or self.count >= WORTH) and owner.has_room(self.bytes)


class CompileQueue:
    """Requests and background jobs, and the thread that works on them; many threads may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: OrderedDict[tuple[int, Key], Request] = OrderedDict()
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def request(self, owner: Owner, key: Key, specs: Sequence[TensorSpec], *, is_urgent: bool = False) -> None:
        """Count an occurrence of a shape, and compile it if it is due.

        Args:
            is_urgent: whether it is due at its first occurrence.
        """
        with self._lock:
            place = id(owner), key
            request = self._requests.get(place)
            if request is None or request.owner() is not owner:
                request = self._requests[place] = Request(weakref.ref(owner), key, tuple(specs))
            self._requests.move_to_end(place)
            while len(self._requests) > MAX_REQUESTS:
                self._requests.popitem(last=False)
            request.count += 1
            request.is_urgent |= is_urgent
            request.met_s = time.monotonic()
            if self._thread is None and not self._is_closed and request.is_due:
                self._start()

    def forget(self, owner: Owner, key: Key) -> None:
        """Drop the request of an instance that exists."""
        with self._lock:
            self._requests.pop((id(owner), key), None)

    def submit(self, job: Job) -> None:
        """Run a job in the background, step by step, while no request is due."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None and not self._is_closed:
                self._start()

    def close(self) -> None:
        """Stop: LLVM must not run while the interpreter ends."""
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            thread.join(_END_S)

    @property
    def is_busy(self) -> bool:
        """Return whether the thread is running."""
        return self._thread is not None

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def _is_ending(self) -> bool:
        """Return whether the interpreter ends; it refuses new threads before it runs exit handlers."""
        return self._is_closed or not threading.main_thread().is_alive()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True, name="compile")
        with suppress(RuntimeError):  # the system has no more threads; the next request tries again
            thread.start()
            self._thread = thread

    def _next(self) -> Request | None:
        due = [request for request in self._requests.values() if request.is_due]
        return max(due, key=lambda request: (request.count, request.met_s), default=None)

    def _work(self) -> None:
        """Work until nothing is due."""
        while True:
            with self._lock:
                request = None if self._is_ending else self._next()
                job = self._jobs.popleft() if request is None and self._jobs and not self._is_ending else None
                if request is None and job is None:
                    self._thread = None
                    return
            if request is not None:
                self._compile(request)
            elif job is not None and self._has_more(job):
                with self._lock:
                    self._jobs.append(job)

    def _has_more(self, job: Job) -> bool:
        """Do the next step of a job; return whether there is more to do."""
        try:
            with self._bounded():
                return job(_pause)
        except RunCancelledError:
            return False
        except Exception:  # other jobs continue after any error
            if not self._is_ending:
                _log.exception("a background job failed")
            return False

    def _compile(self, request: Request) -> None:
        owner, end = request.owner(), 0.0
        if owner is None:
            return
        request.count, request.is_urgent, request.bytes = 0, False, None
        try:
            with self._bounded() as end:
                owner.make(request, _pause)
        except RunCancelledError:
            if not self._is_ending and time.monotonic() > end:
                request.fail(f"compilation takes more than {LIMIT_S:g} seconds")
        except MemoryError:
            request.defer("there is not enough memory")
        except Exception as error:  # the reference answers after any error
            if not self._is_ending:
                _log.exception("a background compile failed")
                request.fail(type(error).__name__)
        with self._lock:
            place = id(owner), request.key
            # Requests that failed or were declined are kept; the others have their instance.
            is_made = not request.has_failed and not request.is_deferred and request.bytes is None
            if is_made and self._requests.get(place) is request:
                del self._requests[place]

    @contextmanager
    def _bounded(self) -> Iterator[float]:
        """Limit the time of a step, and let request threads run; yield the time at which it ends."""
        end = time.monotonic() + LIMIT_S
        usual = sys.getswitchinterval()
        sys.setswitchinterval(min(usual, _TURN_S))
        try:
            with cancelling(lambda: self._is_ending or time.monotonic() > end):
                yield end
        finally:
            sys.setswitchinterval(usual)


def _pause(doing: str, done: int, of: int) -> None:
    """Let request threads run."""
    time.sleep(_PAUSE_S)


QUEUE: Final = CompileQueue()
METER.read_queue = lambda: (len(QUEUE), QUEUE.is_busy)
atexit.register(QUEUE.close)
# A forked child has neither the thread nor a thread that would release a held lock.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=QUEUE.__init__)  # type: ignore[misc]
