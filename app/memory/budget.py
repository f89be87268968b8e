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

# Bodies that are still arriving may hold so much of the budget: what has arrived can always be answered.
_ARRIVING: Final = 1 / 2
# The share of the budget that may be kept between requests.
_KEPT: Final = 1 / 2


class MemoryBudget:
    """The bytes all requests of a server may take together; many threads may ask at once.

    Args:
        total: in bytes.
        retry_after_s: what a client is told to wait when its request does not fit now.
        on_large_return: called when a request that held much is over.
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
        # A collection of garbage, which may begin on any line, may close a cache_account.
        self._lock = threading.RLock()

    @property
    def used(self) -> int:
        """Bytes that requests hold now."""
        return self._used - self._kept

    @property
    def kept(self) -> int:
        """Bytes that are held between requests, as long as none needs them."""
        return self._kept

    def open(self) -> Reservation:
        """The reservation of a new request."""
        return Reservation(self)

    def answering(self, reservation: Reservation | None = None) -> AbstractContextManager[Reservation]:
        """The reservation of a request, which is the one at hand in the block; given back if that fails.

        Else it goes on with the answer, which closes it when it is sent.

        reservation: the one it has, where it is not new.
        """
        return Answering(self.open() if reservation is None else reservation)

    def take(self, count: int, held: int, *, arriving: bool = False, is_only_asked: bool = False) -> None:
        """Count bytes as used.

        Args:
            held: what the same request has already.
            arriving: of a body that is not there yet.
            is_only_asked: whether they fit; nothing is counted.

        Raises:
            RequestTooLargeError: with what it has it will never fit.
            QueueFullError: it does not fit now.
        """
        limit = int(self.total * _ARRIVING) if arriving else self.total
        if held + count > limit:
            raise RequestTooLargeError(
                f"the request would take too much memory: found about {held + count} bytes, expected at most {limit}",
                found=held + count,
                limit=limit,
            )
        if self._try(count, limit, arriving, is_only_asked):
            return
        for cache_account in self._caches:
            cache_account.make_room(count)
        if not self._try(count, limit, arriving, is_only_asked):
            raise QueueFullError(
                f"other requests hold the memory this one would take: about {held + count} bytes",
                retry_after_s=self._retry_after_s,
                limit=self.total,
            )

    def take_plain(self, count: int, held: int) -> bool:
        """Count bytes as used, where there is room for them; whether they are.

        held: what the request would have in all.
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
        """Count bytes as free again.

        Args:
            arriving: how many of them, or of others, no longer arrive.
            held: what the request had in all, where it is over.
        """
        with self._lock:
            self._used -= count
            self._arriving -= arriving
        self._on_large_return(held)

    def cache_account(self, make_room: Callable[[], Callable[[int], None] | None]) -> CacheAccount:
        """The account of somebody who keeps things between requests.

        make_room: gives what frees so many bytes of them, where that still exists.
        """
        with self._lock:
            made = CacheAccount(self, make_room)
            self._caches = (*self._caches, made)
            return made

    def keep(self, count: int) -> bool:
        """Count bytes as kept, if half of the budget is left for requests; whether they are."""
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
        """Ask it no more."""
        with self._lock:
            self._caches = tuple(each for each in self._caches if each is not cache_account)


class CacheAccount:
    """What somebody keeps between requests, counted in their budget; who keeps it holds a lock of its own."""

    def __init__(self, budget: MemoryBudget, make_room: Callable[[], Callable[[int], None] | None]) -> None:
        self._budget = budget
        self._make_room = make_room
        self._held = 0

    def hold(self, count: int) -> bool:
        """Count so many bytes more, if there is room; whether they are."""
        if not self._budget.keep(count):
            return False
        self._held += count
        return True

    def release(self, count: int) -> None:
        """Count so many bytes less."""
        self._held -= count
        self._budget.drop(count)

    def make_room(self, count: int) -> None:
        """A request needs so many bytes."""
        free = self._make_room() if self._held else None
        if free is not None:
            free(count)

    def close(self) -> None:
        """Nothing is kept any more."""
        self._budget.forget(self)
        self.release(self._held)
