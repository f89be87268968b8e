"""Memory of requests: the budget that all share, and the reservation of each.

Everything that a request makes the server hold is charged to its ``Reservation`` first: its body while it arrives,
what decoding makes of it, what the run needs, the answer. All reservations together stay within one ``MemoryBudget``.
A request that can never fit is refused for good (413), one that does not fit now is asked to retry (429).

The current reservation is a context variable, which schedulers hand on to their threads: code that decodes calls
``charge(bytes)`` and ``check()`` and knows nothing of servers. Outside of a request nothing is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Final, Self

import engine
from app.errors import DeadlineExceededError, QueueFullError, RequestTooLargeError, ServiceError

# A tensor that is larger than estimated counts twice: itself and what is computed from it.
_TIMES: Final = 2

_current: ContextVar[Reservation | None] = ContextVar("reservation", default=None)
_NOTHING: Final = nullcontext()
_LITTLE: Final = 1 << 28
# Share of the budget for bodies that are still arriving; the rest is enough to answer those that have arrived.
_ARRIVING: Final = 1 / 2
# Share of the budget for caches that outlive a request.
_KEPT: Final = 1 / 2


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
        with self._lock:
            self._budget.take(count, self._held, arriving=arriving)
            self._held += count
            self._most = max(self._most, self._held)
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

    @contextmanager
    def working(self, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Keep the reservation while a thread works for the request, even if the client leaves.

        is_cancelled: whether the work may stop.
        """
        before = self.begin(is_cancelled)
        try:
            yield
        finally:
            self.end(before)

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

    @property
    def is_cancelled(self) -> bool:
        """Return whether the deadline has passed, or the client has left."""
        return self._is_cancelled is not None and self._is_cancelled()

    def check(self) -> None:
        """Stop work whose result is no longer needed.

        Raises:
            DeadlineExceededError: the deadline has passed, or the client has left.
        """
        if self.is_cancelled:
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


# A class: a context manager made from a generator would cost every request several more calls.


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


@contextmanager
def charged(count: int) -> Iterator[None]:
    """Hold so many bytes for a block.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take.
    """
    reservation = _current.get()
    if reservation is None:
        yield
        return
    reservation.charge(count)
    try:
        yield
    finally:
        reservation.return_(count)


def running(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a run, and more if values need larger tensors than the shapes did.

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


class MemoryBudget:
    """Bytes that all requests of a server may hold together; thread-safe.

    Args:
        total: in bytes.
        on_large_return: called with the bytes that a request held when it is over.
    """

    def __init__(self, total: int, *, on_large_return: Callable[[int], None] = lambda _: None) -> None:
        self.total = total
        self._on_large_return = on_large_return
        self._used = 0
        self._arriving = 0
        self._kept = 0
        self._caches: tuple[CacheAccount, ...] = ()
        # Reentrant: a garbage collection, which may begin on any line, may close a cache account.
        self._lock = threading.RLock()

    @property
    def used(self) -> int:
        """Return the bytes that requests hold."""
        return self._used - self._kept

    @property
    def kept(self) -> int:
        """Return the bytes that caches hold until a request needs them."""
        return self._kept

    def open(self) -> Reservation:
        """Return the reservation of a new request."""
        return Reservation(self)

    @contextmanager
    def answering(self, reservation: Reservation | None = None) -> Iterator[Reservation]:
        """Make a reservation current for a block; release it if the block fails.

        Otherwise the answer owns it and closes it when it was sent.

        reservation: of the request; None for a new one.
        """
        reservation = self.open() if reservation is None else reservation
        try:
            with reservation:
                yield reservation
        except BaseException:
            reservation.close()
            raise

    def take(self, count: int, held: int, *, arriving: bool = False, is_only_asked: bool = False) -> None:
        """Count bytes as used.

        Args:
            count: bytes to take.
            held: bytes that the same request already holds.
            arriving: whether they belong to a body that has not arrived yet.
            is_only_asked: check that they fit, but count nothing.

        Raises:
            RequestTooLargeError: the request can never fit.
            QueueFullError: it does not fit now.
        """
        limit = int(self.total * _ARRIVING) if arriving else self.total
        if held + count > limit:
            raise RequestTooLargeError(
                f"the request needs too much memory: found about {held + count} bytes, expected at most {limit}",
                found=held + count,
                limit=limit,
            )
        if self._try(count, limit, arriving, is_only_asked):
            return
        for cache_account in self._caches:
            cache_account.make_room(count)
        if not self._try(count, limit, arriving, is_only_asked):
            raise QueueFullError(
                f"other requests use the memory that this one needs: about {held + count} bytes",
                limit=self.total,
            )

    def _try(self, count: int, limit: int, arriving: bool, is_only_asked: bool) -> bool:
        with self._lock:
            if self._used + count > self.total or (arriving and self._arriving + count > limit):
                return False
            if not is_only_asked:
                self._used += count
                self._arriving += count if arriving else 0
            return True

    def give_back(self, count: int, *, arriving: int = 0, held: int = 0) -> None:
        """Count bytes as free.

        Args:
            count: bytes to free.
            arriving: bytes that no longer count as arriving.
            held: most bytes that the request held, if it is over.
        """
        with self._lock:
            self._used -= count
            self._arriving -= arriving
        self._on_large_return(held)

    def cache_account(self, make_room: Callable[[], Callable[[int], None] | None]) -> CacheAccount:
        """Return the account of a cache that outlives requests.

        make_room: returns a function that evicts so many bytes, or None when the cache no longer exists.
        """
        with self._lock:
            made = CacheAccount(self, make_room)
            self._caches = (*self._caches, made)
            return made

    def keep(self, count: int) -> bool:
        """Count bytes as kept if half of the budget stays free for requests; return whether they are counted."""
        with self._lock:
            if self._kept + count > self.total * _KEPT or self._used + count > self.total:
                return False
            self._kept += count
            self._used += count
            return True

    def drop(self, count: int) -> None:
        """Count bytes as kept no longer."""
        with self._lock:
            self._kept -= count
            self._used -= count

    def forget(self, cache_account: CacheAccount) -> None:
        """Remove an account."""
        with self._lock:
            self._caches = tuple(each for each in self._caches if each is not cache_account)


class CacheAccount:
    """Bytes of a cache, counted in the budget; the cache calls it under a lock of its own."""

    def __init__(self, budget: MemoryBudget, make_room: Callable[[], Callable[[int], None] | None]) -> None:
        self._budget = budget
        self._make_room = make_room
        self._held = 0

    def hold(self, count: int) -> bool:
        """Count so many bytes more if they fit, and return whether they do."""
        if not self._budget.keep(count):
            return False
        self._held += count
        return True

    def release(self, count: int) -> None:
        """Count so many bytes less."""
        self._held -= count
        self._budget.drop(count)

    def make_room(self, count: int) -> None:
        """Evict so many bytes for a request."""
        free = self._make_room() if self._held else None
        if free is not None:
            free(count)

    def close(self) -> None:
        """Release all bytes and remove the account."""
        self._budget.forget(self)
        self.release(self._held)
