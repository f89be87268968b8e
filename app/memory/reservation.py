"""Reservation of one request in the memory budget, and access to that of the current request.

The current reservation is a context variable, which executors hand on to their threads: code that decodes calls
``charge(bytes)`` and ``check()`` and knows nothing of servers. Outside of a request nothing is bounded.
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

# A tensor that is larger than estimated counts twice: itself and what is computed from it.
_TIMES: Final = 2

_current: ContextVar[Reservation | None] = ContextVar("reservation", default=None)


class Reservation:
    """Bytes that one request holds until it is over and no thread works for it."""

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
        """Return the bytes it holds now."""
        return self._held

    def cache_account(self, make_room: Callable[[], Callable[[int], None] | None]) -> CacheAccount:
        """Return an account as MemoryBudget.cache_account does."""
        return self._budget.cache_account(make_room)

    def would_fit(self, count: int, *, arriving: bool = False) -> None:
        """Refuse early what would be refused later.

        Args:
            count: further bytes.
            arriving: whether they belong to a body.

        Raises:
            RequestTooLargeError, QueueFullError: as MemoryBudget.take.
        """
        self._budget.take(count, self._held, arriving=arriving, is_only_asked=True)

    def charge(self, count: int, *, arriving: bool = False) -> None:
        """Hold so many bytes more until the request is over.

        Raises:
            RequestTooLargeError, QueueFullError: as MemoryBudget.take.
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
        """Count the bytes of the body as arrived."""
        with self._lock:
            arriving, self._arriving = self._arriving, 0
        self._budget.give_back(0, arriving=arriving)

    def share(self) -> None:
        """Add a user, which must close the reservation once; it is released after the last one has."""
        with self._lock:
            self._users += 1

    def working(self, is_cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
        """Keep the reservation while a thread works for the request, even if the client leaves.

        is_cancelled: whether the work may stop.
        """
        return _Work(self, is_cancelled)

    def begin(self, is_cancelled: Callable[[], bool]) -> Callable[[], bool] | None:
        """Enter ``working`` and return the previous is_cancelled."""
        with self._lock:
            self._users += 1
            before, self._is_cancelled = self._is_cancelled, is_cancelled
        return before

    def end(self, before: Callable[[], bool] | None) -> None:
        """Leave ``working`` and restore the previous is_cancelled."""
        self._is_cancelled = before
        self.close()

    def check(self) -> None:
        """Stop work whose result is no longer needed.

        Raises:
            DeadlineExceededError: the deadline has passed, or the client has left.
        """
        if self._is_cancelled is not None and self._is_cancelled():
            raise DeadlineExceededError("the request was not answered within its time")

    def close(self) -> None:
        """Remove a user: the request's handler calls it once, as every other user does. The last releases all bytes."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            held, self._held = self._held, 0
            arriving, self._arriving = self._arriving, 0
        self._budget.give_back(held, arriving=arriving, held=self._most)


# Classes: context managers made from generators would cost every request several more calls.


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
    """Makes the reservation of a new request current for a block, and releases it if the block fails."""

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
    """Memory of a run: the estimate, and more when values ask for larger tensors."""

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
        del self._asking  # breaks a reference cycle, which every request would leave to the garbage collector
        self._reservation.return_(self._held)
        if self._refusal is not None and isinstance(exc[1], engine.EngineError):
            raise self._refusal from None  # it also counts what other requests hold, as the engine's error does not

    def _need(self, count: int) -> None:
        """Charge a tensor and what is computed from it."""
        more = _TIMES * count - self._held
        if more > 0:
            try:
                self._reservation.charge(more)
            except ServiceError as refusal:
                self._refusal = refusal
                raise engine.ShapeError("out of memory for a tensor", found=f"{count:,} bytes") from None
            self._held += more


_NOTHING: Final = nullcontext()
_LITTLE: Final = 1 << 28


def bounded(most: int) -> AbstractContextManager[None]:
    """Refuse tensors of more than so many bytes, but at least _LITTLE, outside of a request."""
    most = max(most, _LITTLE)

    def room(count: int) -> None:
        if count > most:
            found, expected = f"{count:,} bytes", f"at most {most:,} (max_bytes_in_flight)"
            raise engine.ShapeError("out of memory for a tensor", found=found, expected=expected)

    return engine.asking_for_room(room)


def current() -> Reservation | None:
    """Return the reservation of the current request, or None."""
    return _current.get()


def charge(count: int) -> None:
    """Hold so many bytes more for the current request.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take.
    """
    reservation = _current.get()
    if reservation is not None:
        reservation.charge(count)


def cache_account(make_room: Callable[[], Callable[[int], None] | None]) -> CacheAccount | None:
    """Return an account with the budget of the current request, or None without a request."""
    reservation = _current.get()
    return None if reservation is None else reservation.cache_account(make_room)


def would_fit(count: int) -> None:
    """Check that the current request may hold so many bytes more later.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take.
    """
    reservation = _current.get()
    if reservation is not None:
        reservation.would_fit(count)


def charged(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a block.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take.
    """
    reservation = _current.get()
    return _NOTHING if reservation is None else _Charge(reservation, count)


def running(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a run, and more if values need larger tensors than shapes told.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take.
    """
    reservation = _current.get()
    return _NOTHING if reservation is None else _Run(reservation, count)


def check() -> None:
    """Stop if the result of the current request is no longer needed.

    Raises:
        DeadlineExceededError: the deadline has passed, or the client has left.
    """
    reservation = _current.get()
    if reservation is not None:
        reservation.check()
