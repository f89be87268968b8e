"""Memory budget: how many bytes all requests may hold together, and what caches keep between them.

Everything that a request makes the server hold is charged to its ``Reservation`` first: its body while it arrives, what
decoding makes of it, what the run needs, the answer. All reservations together stay within one ``MemoryBudget``. A
request that can never fit is refused for good (413), one that does not fit now is asked to retry (429).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from app.errors import QueueFullError, RequestTooLargeError
from app.memory.reservation import Answering, Reservation

# Share of the budget for bodies that are still arriving; the rest is enough to answer those that have arrived.
_ARRIVING: Final = 1 / 2
# Share of the budget for caches that outlive a request.
_KEPT: Final = 1 / 2


class MemoryBudget:
    """Bytes that all requests of a server may hold together; thread-safe.

    Args:
        total: in bytes.
        retry_after_s: Retry-After of a request that does not fit now.
        on_large_return: called with the bytes that a request held when it is over.
    """

    def __init__(
        self, total: int, *, retry_after_s: int = 1, on_large_return: Callable[[int], None] = lambda _: None
    ) -> None:
        self.total = total
        self._retry_after_s = retry_after_s
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

    def answering(self, reservation: Reservation | None = None) -> AbstractContextManager[Reservation]:
        """Make a reservation current for a block; release it if the block fails.

        Otherwise the answer owns it and closes it when it was sent.

        reservation: of the request; None for a new one.
        """
        return Answering(self.open() if reservation is None else reservation)

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
                f"other requests hold the memory that this one needs: about {held + count} bytes",
                retry_after_s=self._retry_after_s,
                limit=self.total,
            )

    def take_plain(self, count: int, held: int) -> bool:
        """Count bytes as used if they are free, and return whether they were.

        held: bytes that the request would hold in all.
        """
        with self._lock:
            if held > self.total or self._used + count > self.total:
                return False
            self._used += count
            return True

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
