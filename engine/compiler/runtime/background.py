"""The one thread of the process that compiles while others run.

A shape that is met becomes a wish. Met a second time, it is worth compiling: shapes that come once, as the sizes of
pictures do, cost nothing but a note. So do those that are made in no time when they come: only what somebody had to do
without is made. The thread takes what is wanted most, and of that what was met last; a wish that nobody repeats is
forgotten. What is made goes to the shelf, which may decline it; then it is not made again unless it is wanted more
often.
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

from engine.compiler.runtime.shelf import MOST_USES, SHELF
from engine.errors import RunCancelledError
from engine.figures import METER
from engine.progress import Progress
from engine.stopping import cancelling
from engine.tensor import TensorSpec

Key: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]
# A step of something that takes long: told how to let others run, it says whether there is more to do.
Errand: TypeAlias = Callable[[Progress], bool]

# How often a shape must be met before it is worth a compile.
WORTH: Final = 2
# Wishes that are remembered, and for how long one that is not repeated may wait to be made.
MAX_WISHES: Final = 1024
PATIENCE_S: Final = 60.0
# Time one compile may take.
LIMIT_S: Final = 120.0
# Uses are halved when there are more of them than so many for each shape; looked at once in so many wishes.
MEAN_USES: Final = 64
_LOOK_AFTER: Final = 64
# A thread that computes in Python lets others in after so long, and sleeps as long after every kernel it makes.
_TURN_S: Final = 0.0005
_PAUSE_S: Final = 0.0002
_END_S: Final = 5.0

_log = logging.getLogger("pnnx_serve.engine")


class Maker(Protocol):
    """Who has instances made: told to make one in the background."""

    limit: int

    def make(self, wish: Wish, progress: Progress) -> None:
        """Make an instance and keep it; says in the wish what it weighs where it is not kept.

        Raises:
            RunCancelledError: nobody wants it any more.
        """

    @property
    def typical_bytes(self) -> int:
        """What one of its instances takes, as far as it knows."""


@dataclass(slots=True, eq=False)
class Wish:
    """A shape that was met and has no instance.

    Args:
        times: how often it was met lately.
        bytes: what an instance takes; None while that is not known.
        is_hopeless: it cannot be made.
        is_urgent: it is made even if it was met once.
        is_missed: somebody had to do without it since it was tried last.
    """

    maker: weakref.ref[Maker]
    key: Key
    specs: tuple[TensorSpec, ...]
    times: int = 0
    bytes: int | None = None
    is_hopeless: bool = False
    is_urgent: bool = False
    is_missed: bool = False
    met_s: float = field(default_factory=time.monotonic)

    def give_up(self, reason: str) -> None:
        """Never try it again."""
        self.is_hopeless = True
        shapes = ", ".join(map(str, self.specs))
        _log.warning("not compiled for %s, which runs on the reference layers: %s", shapes, reason)


class Background:
    """Wishes, and the thread that fulfils them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wishes: OrderedDict[tuple[int, Key], Wish] = OrderedDict()
        self._errands: deque[Errand] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._since_look = 0

    def wish(
        self,
        maker: Maker,
        key: Key,
        specs: Sequence[TensorSpec],
        *,
        times: int = 1,
        now: bool = True,
        is_urgent: bool = False,
    ) -> Wish:
        """Note that a shape was met, and have it made if it is worth it.

        Args:
            times: how often it was met.
            now: False to note it only: nobody has to do without it.
            is_urgent: whether it is worth it however seldom it was met.
        """
        with self._lock:
            wish = self._note(maker, key, specs)
            wish.is_urgent |= is_urgent
            wish.is_missed |= now
            wish.times = min(wish.times + times, MOST_USES)
            wish.met_s = time.monotonic()
            self._fade()
            if now and self._thread is None and not self._is_closed and self._is_due(wish):
                self._start()
            return wish

    def send(self, errand: Errand) -> None:
        """Have an errand done, step by step, when no wish is due."""
        with self._lock:
            self._errands.append(errand)
            if self._thread is None and not self._is_closed:
                self._start()

    def forget(self, maker: Maker, key: Key) -> None:
        """Drop the wish for code that was made, or is not wanted any more."""
        with self._lock:
            self._wishes.pop((id(maker), key), None)

    def close(self) -> None:
        """Stop: the interpreter ends, and LLVM must not be at work when it does."""
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            thread.join(_END_S)

    @property
    def _is_ending(self) -> bool:
        """Whether the interpreter ends; before it says so to whoever asked for it, it has no more threads to give."""
        return self._is_closed or not threading.main_thread().is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None

    @property
    def wishes(self) -> int:
        """How many shapes were met and are not made."""
        return len(self._wishes)

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True, name="compile")
        with suppress(RuntimeError):  # the system has no more threads; the next wish tries again
            thread.start()
            self._thread = thread

    def _note(self, maker: Maker, key: Key, specs: Sequence[TensorSpec]) -> Wish:
        place = id(maker), key
        wish = self._wishes.get(place)
        if wish is None or wish.maker() is not maker:
            wish = self._wishes[place] = Wish(weakref.ref(maker), key, tuple(specs))
        self._wishes.move_to_end(place)
        while len(self._wishes) > MAX_WISHES:
            self._wishes.popitem(last=False)
        return wish

    def _is_due(self, wish: Wish) -> bool:
        maker = wish.maker()
        if maker is None or wish.is_hopeless or time.monotonic() - wish.met_s > PATIENCE_S:
            return False
        if not wish.is_missed or (wish.times < WORTH and not wish.is_urgent):
            return False
        return SHELF.admits(maker.typical_bytes if wish.bytes is None else wish.bytes, wish.times, maker.limit)

    def _fade(self) -> None:
        """Halve all uses from time to time: what was popular once makes room in the end."""
        self._since_look += 1
        if self._since_look < _LOOK_AFTER:
            return
        self._since_look = 0
        total, count = SHELF.uses
        if total + sum(wish.times for wish in self._wishes.values()) > MEAN_USES * (count + len(self._wishes)):
            SHELF.fade()
            for wish in self._wishes.values():
                wish.times //= 2

    def _next(self) -> Wish | None:
        due = [wish for wish in self._wishes.values() if self._is_due(wish)]
        return max(due, key=lambda wish: (wish.times, wish.met_s), default=None)

    def _work(self) -> None:
        """The thread's life: until nothing is due."""
        while True:
            with self._lock:
                wish = None if self._is_ending else self._next()
                errand = self._errands.popleft() if wish is None and self._errands and not self._is_ending else None
                if wish is None and errand is None:
                    self._thread = None
                    return
            if wish is not None:
                self._fulfil(wish)
            elif errand is not None and self._go_on(errand):
                with self._lock:
                    self._errands.append(errand)

    def _go_on(self, errand: Errand) -> bool:
        """Whether there is more to do of it after its next step."""
        try:
            with self._bounded():
                return errand(_pause)
        except RunCancelledError:
            return False
        except Exception:  # whatever it is, others wait
            if not self._is_ending:
                _log.exception("in the background")
            return False

    @contextmanager
    def _bounded(self) -> Iterator[float]:
        """While something is made that may not take for ever, nor keep those waiting who answer somebody.

        Gives when it has taken too long.
        """
        end = time.monotonic() + LIMIT_S
        usual = sys.getswitchinterval()
        sys.setswitchinterval(min(usual, _TURN_S))
        try:
            with cancelling(lambda: self._is_ending or time.monotonic() > end):
                yield end
        finally:
            sys.setswitchinterval(usual)

    def _fulfil(self, wish: Wish) -> None:
        maker, wish.is_missed = wish.maker(), False
        if maker is None:
            return
        end = 0.0
        try:
            with self._bounded() as end:
                maker.make(wish, _pause)
        except RunCancelledError:
            if not self._is_ending and time.monotonic() > end:
                wish.give_up(f"it takes more than {LIMIT_S:g} seconds")
        except Exception as error:  # whatever it is, the reference answers
            if not self._is_ending:
                _log.exception("compiling in the background")
                wish.give_up(type(error).__name__)
        with self._lock:
            place = id(maker), wish.key
            # Declined, it must be wanted more often before it is tried again; else it is there.
            if not wish.is_hopeless and wish.bytes is None and self._wishes.get(place) is wish:
                del self._wishes[place]


def _pause(doing: str, done: int, of: int) -> None:
    """Let those run who answer somebody."""
    time.sleep(_PAUSE_S)


BACKGROUND: Final = Background()
METER.wished = lambda: (BACKGROUND.wishes, BACKGROUND.is_busy)
atexit.register(BACKGROUND.close)
# A child has the wishes, but neither the thread nor anybody who would open a lock that was closed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BACKGROUND.__init__)  # type: ignore[misc]
