"""What one request holds of the budget, and the request at hand.

The reservation of the request at hand is found through a context variable, which lanes hand on to their threads: code
that decodes says ``charge(bytes)`` and ``check()``, and does not know of servers. Without a request nothing is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Final, Self

import engine
from app.errors import DeadlineExceededError, ServiceError

if TYPE_CHECKING:
    from app.memory.budget import CacheAccount, MemoryBudget

# A tensor that turns out larger than was estimated, and what is computed from it.
_TIMES: Final = 2

_current: ContextVar[Reservation | None] = ContextVar("reservation", default=None)


class Reservation:
    """What one request holds of the budget, until it is over and no thread works for it any more."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0
        self._most = 0
        self._arriving = 0
        self._users = 1
        self._lock = threading.Lock()
        self._is_cancelled: Callable[[], bool] | None = None
        self._tokens: list[Token[Reservation | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._tokens.pop())

    @property
    def held(self) -> int:
        """Bytes it holds now."""
        return self._held

    def cache_account(self, make_room: Callable[[], Callable[[int], None] | None]) -> CacheAccount:
        """As MemoryBudget.cache_account."""
        return self._budget.cache_account(make_room)

    def would_fit(self, count: int, *, arriving: bool = False) -> None:
        """Refuse early what would be refused anyway: so many bytes more; arriving: of a body.

        Raises:
            RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
        """
        self._budget.take(count, self._held, arriving=arriving, is_only_asked=True)

    def charge(self, count: int, *, arriving: bool = False) -> None:
        """Hold so many bytes more, until it is over.

        Raises:
            RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
        """
        budget = self._budget
        with self._lock:
            held = self._held + count
            if arriving or not budget.take_plain(count, held):
                budget.take(count, self._held, arriving=arriving)
            self._held = held
            if held > self._most:
                self._most = held
            if arriving:
                self._arriving += count

    def return_(self, count: int) -> None:
        """Hold so many bytes less."""
        with self._lock:
            self._held -= count
        self._budget.give_back(count)

    def arrived(self) -> None:
        """The body is there: its bytes count as every other's."""
        with self._lock:
            arriving, self._arriving = self._arriving, 0
        self._budget.give_back(0, arriving=arriving)

    def share(self) -> None:
        """One more user, who closes it once: what the request holds stays counted until then."""
        with self._lock:
            self._users += 1

    def working(self, is_cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
        """A thread works for the request: what it holds stays counted until the thread is done, whoever went away.

        is_cancelled: whether the work may stop.
        """
        return _Work(self, is_cancelled)

    def begin(self, is_cancelled: Callable[[], bool]) -> Callable[[], bool] | None:
        """What ``working`` does first; gives what was asked before."""
        with self._lock:
            self._users += 1
            before, self._is_cancelled = self._is_cancelled, is_cancelled
        return before

    def end(self, before: Callable[[], bool] | None) -> None:
        """End a piece of work: what follows has a time of its own."""
        self._is_cancelled = before
        self.close()

    def check(self) -> None:
        """Stop the work of a request that nobody waits for.

        Raises:
            DeadlineExceededError: its time is up, or its client is gone.
        """
        if self._is_cancelled is not None and self._is_cancelled():
            raise DeadlineExceededError("the request was not answered within its time")

    def close(self) -> None:
        """Called once by the request's handler at its end, and by every other user: the last gives everything back."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            held, self._held = self._held, 0
            arriving, self._arriving = self._arriving, 0
        self._budget.give_back(held, arriving=arriving, held=self._most)


# Classes, for generators would cost every request several calls more.


class _Work:
    __slots__ = ("_reservation", "_before", "_is_cancelled")

    def __init__(self, reservation: Reservation, is_cancelled: Callable[[], bool]) -> None:
        self._reservation = reservation
        self._is_cancelled = is_cancelled

    def __enter__(self) -> None:
        self._before = self._reservation.begin(self._is_cancelled)

    def __exit__(self, *exc: object) -> None:
        self._reservation.end(self._before)


class Answering:
    """Opens the reservation of a new request for a block, and gives it back if that fails."""

    __slots__ = ("_reservation",)

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation

    def __enter__(self) -> Reservation:
        return self._reservation.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._reservation.__exit__(kind, *exc)
        if kind is not None:
            self._reservation.close()


class _Charge:
    __slots__ = ("_reservation", "_count")

    def __init__(self, reservation: Reservation, count: int) -> None:
        self._reservation = reservation
        self._count = count

    def __enter__(self) -> None:
        self._reservation.charge(self._count)

    def __exit__(self, *exc: object) -> None:
        self._reservation.return_(self._count)


class _Run:
    """Memory for a run: what was estimated, and what values turn out to ask for."""

    __slots__ = ("_reservation", "_asking", "_held", "_refusal")

    def __init__(self, reservation: Reservation, count: int) -> None:
        self._reservation = reservation
        self._held = count
        self._refusal: ServiceError | None = None
        self._asking = engine.asking_for_room(self._need)

    def __enter__(self) -> None:
        self._reservation.charge(self._held)
        self._asking.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._asking.__exit__(None, None, None)
        del self._asking  # which refers to this: every request would leave that to the collector of cyclic garbage
        self._reservation.return_(self._held)
        if self._refusal is not None and isinstance(exc[1], engine.EngineError):
            raise self._refusal from None  # the engine speaks of shapes, and this of what others hold as well

    def _need(self, count: int) -> None:
        """A tensor, and what is made of it."""
        more = _TIMES * count - self._held
        if more > 0:
            try:
                self._reservation.charge(more)
            except ServiceError as refusal:
                self._refusal = refusal
                raise engine.ShapeError("there is no memory for it now", found=f"{count:,} bytes") from None
            self._held += more


_NOTHING: Final = nullcontext()
_LITTLE: Final = 1 << 28


def bounded(most: int) -> AbstractContextManager[None]:
    """Refuse tensors beyond so many bytes, or what is little for any machine, where no request's reservation does."""
    most = max(most, _LITTLE)

    def room(count: int) -> None:
        if count > most:
            found, expected = f"{count:,} bytes", f"at most {most:,} (max_bytes_in_flight)"
            raise engine.ShapeError("there is no memory for a tensor", found=found, expected=expected)

    return engine.asking_for_room(room)


def current() -> Reservation | None:
    """The reservation of the request at hand; None where there is no request."""
    return _current.get()


def charge(count: int) -> None:
    """Hold so many bytes more for the request at hand.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    reservation = _current.get()
    if reservation is not None:
        reservation.charge(count)


def cache_account(make_room: Callable[[], Callable[[int], None] | None]) -> CacheAccount | None:
    """An account with the budget of the request at hand, for what is to outlive it; None where there is no request."""
    reservation = _current.get()
    return None if reservation is None else reservation.cache_account(make_room)


def would_fit(count: int) -> None:
    """Go on only if the request at hand may hold so many bytes more later.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    reservation = _current.get()
    if reservation is not None:
        reservation.would_fit(count)


def charged(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a while.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    reservation = _current.get()
    return _NOTHING if reservation is None else _Charge(reservation, count)


def running(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a run, and more where values decide on larger tensors than shapes told of.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    reservation = _current.get()
    return _NOTHING if reservation is None else _Run(reservation, count)


def check() -> None:
    """Stop if nobody waits for the request at hand.

    Raises:
        DeadlineExceededError: its time is up, or its client is gone.
    """
    reservation = _current.get()
    if reservation is not None:
        reservation.check()
