"""Connections that were refused, and asked again at once: they are left alone, all of them together.

Each refusal has the next request for an answer where clients do not wait, and what refusals cost is what models have no
processor for. So the event loop does not read such a connection. Some times in a hundredth of a second the system is
asked which have sent something: where there is room those are read, and go their usual way, so that nobody who is
answered has waited. Of the others nothing is looked at until their refusals were held back for long enough; then each
is read and told in one go, one after the other. An event of the loop for each would take as long again; and before each
the loop waits for threads that compute in Python to let go of the interpreter, so that a hundred refusals would hold up
everybody who is answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from app.http.refusing.syscalls import Syscalls
from app.http.refusing.visits import Closed, Target

log = logging.getLogger(__name__)

# How long a refusal is held back, about at least, and at most as long as the loop comes round as it did before; and how
# often some are told, and others heard of.
HELD_S: Final = (0.040, 0.046)
_STEP_S: Final = 0.004
# Who asks nothing for so long is read by the loop again.
_LEFT_S: Final = 0.1
# For how long at a time: a thread that waits for the interpreter has it after this. A few have their turn in any case.
_TURN_S: Final = 0.0005
_FEW: Final = 4


class Left(Protocol):
    """A connection that is left alone.

    Attributes:
        is_aside: whether it is, still.
        descriptor: of its socket.
    """

    is_aside: bool
    descriptor: int

    @property
    def target(self) -> Target | None:
        """What it asked for when it was refused."""
        ...

    def asks(self) -> Closed | None:
        """What it is refused with, in a while, if what has come is what came before; None where there is room."""
        ...

    def look(self, calls: Syscalls, now: float, closed: Closed | None = None) -> None:
        """Read what has come: it is refused, or the connection's, which is read by the loop again."""
        ...

    def come_back(self) -> None:
        """Be read by the loop again, as others are."""
        ...

    def cut_off(self) -> None:
        """End the connection at once."""
        ...


class Sideline:
    """Of one event loop, whose clock it goes by.

    Args:
        count: called with what some have been told.
    """

    def __init__(self, count: Callable[[Closed], None]) -> None:
        self._count = count
        # By their descriptors: those that have not asked yet, and since when. One that was closed meanwhile may have
        # left its descriptor to another connection.
        self._quiet: dict[int, tuple[float, Left]] = {}
        # Those that have asked: since when at most, and what they will be told.
        self._held: deque[tuple[float, Left, Closed]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stepped_at = 0.0
        self._poll: select.epoll | None = None
        self._calls: Syscalls | None = None

    def __len__(self) -> int:
        return len(self._quiet) + len(self._held)

    def take(self, one: Left) -> None:
        """Leave one alone that has been told all that it asked."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._poll is None or self._calls is None:
            self._poll, self._calls = select.epoll(), Syscalls()
        self._poll.register(one.descriptor, select.EPOLLIN | select.EPOLLET)
        self._quiet[one.descriptor] = now, one
        if self._timer is None:
            self._timer, self._stepped_at = loop.call_later(_STEP_S, self._step), now

    def forget(self, descriptor: int) -> None:
        """One comes back whose socket is open, and was taken."""
        if self._poll is not None:
            self._poll.unregister(descriptor)

    def _step(self) -> None:
        assert self._poll is not None and self._calls is not None  # somebody was taken
        loop = asyncio.get_running_loop()
        now = loop.time()
        before, self._stepped_at = self._stepped_at, now
        self._tell(self._calls, now, before)
        self._hear(self._calls, self._poll.poll(0), now, before)
        self._let_go(now - _LEFT_S)
        self._timer = loop.call_later(_STEP_S, self._step) if self._quiet or self._held else None

    def _tell(self, calls: Syscalls, now: float, before: float) -> None:
        """Tell as many as come while one is held back, so that they come evenly; of those for whom it is time all."""
        held, took_s, end = self._held, now - before, time.thread_time() + _TURN_S
        even = math.ceil(len(held) * took_s / HELD_S[1])
        # The next step may come as late as this one, and is too late for those who wait for longer than they may then.
        soon, late = now - HELD_S[0], now + took_s - HELD_S[1]
        closed = None
        while held and held[0][0] <= (soon if even > 0 else late):
            _, one, its = held.popleft()
            if closed is not its and closed is not None:
                self._count(closed)
            closed, even = its, even - 1
            try:
                one.look(calls, now, its)
            except Exception:
                _break_off(one)
            if one.is_aside:
                self._quiet[one.descriptor] = now, one
            if not even % _FEW and time.thread_time() > end:
                break
        if closed is not None:
            self._count(closed)

    def _hear(self, calls: Syscalls, asking: Sequence[tuple[int, int]], now: float, before: float) -> None:
        """Find out for whom there is room of those that have asked, and hold the others back."""
        quiet, held, target, closed = self._quiet, self._held, None, None
        for descriptor, _ in asking:
            found = quiet.pop(descriptor, None)
            if found is None:  # it was closed, or has sent more than it may before it is answered
                continue
            one = found[1]
            try:
                if closed is None or one.target is not target:
                    closed, target = one.asks(), one.target
                if closed is None:
                    one.look(calls, now)
                else:
                    held.append((before, one, closed))
                    continue
            except Exception:
                _break_off(one)
            if one.is_aside:
                quiet[descriptor] = now, one

    def _let_go(self, since: float) -> None:
        """Have those read by the loop that have asked nothing since then."""
        quiet = self._quiet
        while quiet:
            descriptor, (at, one) = next(iter(quiet.items()))
            if at > since:
                return
            del quiet[descriptor]
            try:
                one.come_back()
            except Exception:
                _break_off(one)


def _break_off(one: Left) -> None:
    """A fault of ours with one must not leave the others alone for ever; within ``except``."""
    log.exception("looking at a connection")
    one.is_aside = False
    one.cut_off()
