"""How much memory requests may take together, and what each of them has of it.

Everything a request makes the server hold is charged to its ``Allowance`` before it is made: its body while it arrives,
what decoding will make of it, what the run will need, the answer. All allowances together stay within one
``MemoryBudget``. What can never fit is refused for good (413); what does not fit now is told to come again (429).

The allowance of the request at hand is found through a context variable, which lanes hand on to their threads: code
that decodes says ``charge(bytes)`` and ``check()``, and does not know of servers. Without a request nothing is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import Final, Self

import engine
from app.errors import DeadlineExceededError, QueueFullError, RequestTooLargeError, ServiceError

# A tensor that turns out larger than was estimated, and what is computed from it.
_TIMES: Final = 2
# Bodies that are still arriving may hold so much of the budget: what has arrived can always be answered.
_ARRIVING: Final = 1 / 2
# What is kept between requests may hold so much of it.
_KEPT: Final = 1 / 2

_current: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


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
        self._keepers: tuple[Keeper, ...] = ()
        # A collection of garbage, which may begin on any line, may close a keeper.
        self._lock = threading.RLock()

    @property
    def used(self) -> int:
        """Bytes that requests hold now."""
        return self._used - self._kept

    @property
    def kept(self) -> int:
        """Bytes that are held between requests, as long as none needs them."""
        return self._kept

    def open(self) -> Allowance:
        """The allowance of a new request."""
        return Allowance(self)

    def answering(self) -> AbstractContextManager[Allowance]:
        """The allowance of a new request, which is the one at hand in the block; given back if that fails.

        Else it goes on with the answer, which closes it when it is sent.
        """
        return _Answering(self.open())

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
        for keeper in self._keepers:
            keeper.give_way(count)
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

    def take_arrived(self, count: int, held: int) -> bool:
        """Count bytes as used, where there is room for them among those that arrive; whether they are."""
        limit = int(self.total * _ARRIVING)
        with self._lock:
            if held + count > limit or self._used + count > self.total or self._arriving + count > limit:
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

    def keeper(self, give_way: Callable[[], Callable[[int], None] | None]) -> Keeper:
        """The account of somebody who keeps things between requests.

        give_way: gives what frees so many bytes of them, where that still exists.
        """
        with self._lock:
            made = Keeper(self, give_way)
            self._keepers = (*self._keepers, made)
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

    def forget(self, keeper: Keeper) -> None:
        """Ask it no more."""
        with self._lock:
            self._keepers = tuple(each for each in self._keepers if each is not keeper)


class Keeper:
    """What somebody keeps between requests, counted in their budget; who keeps it holds a lock of its own."""

    def __init__(self, budget: MemoryBudget, give_way: Callable[[], Callable[[int], None] | None]) -> None:
        self._budget = budget
        self._give_way = give_way
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

    def give_way(self, count: int) -> None:
        """A request needs so many bytes."""
        free = self._give_way() if self._held else None
        if free is not None:
            free(count)

    def close(self) -> None:
        """Nothing is kept any more."""
        self._budget.forget(self)
        self.release(self._held)


class Allowance:
    """What one request holds of the budget, until it is over and no thread works for it any more."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0
        self._most = 0
        self._arriving = 0
        self._users = 1
        self._lock = threading.Lock()
        self._is_void: Callable[[], bool] | None = None
        self._tokens: list[Token[Allowance | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._tokens.pop())

    @property
    def held(self) -> int:
        """Bytes it holds now."""
        return self._held

    def keeper(self, give_way: Callable[[], Callable[[int], None] | None]) -> Keeper:
        """As MemoryBudget.keeper."""
        return self._budget.keeper(give_way)

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

    def charge_arrived(self, count: int) -> bool:
        """Hold the bytes of a body that is there; whether there was room for them as for one that arrives."""
        with self._lock:
            if not self._budget.take_arrived(count, self._held):
                return False
            self._held += count
            self._most = max(self._most, self._held)
            return True

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

    def working(self, is_void: Callable[[], bool]) -> AbstractContextManager[None]:
        """A thread works for the request: what it holds stays counted until the thread is done, whoever went away.

        is_void: whether the work may stop.
        """
        return _Work(self, is_void)

    def begin(self, is_void: Callable[[], bool]) -> Callable[[], bool] | None:
        """What ``working`` does first; gives what was asked before."""
        self.share()
        before, self._is_void = self._is_void, is_void
        return before

    def end(self, before: Callable[[], bool] | None) -> None:
        """What it does last: what comes next has a time of its own."""
        self._is_void = before
        self.close()

    def check(self) -> None:
        """Stop the work of a request that nobody waits for.

        Raises:
            DeadlineExceededError: its time is up, or its client is gone.
        """
        if self._is_void is not None and self._is_void():
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
    __slots__ = ("_allowance", "_before", "_is_void")

    def __init__(self, allowance: Allowance, is_void: Callable[[], bool]) -> None:
        self._allowance = allowance
        self._is_void = is_void

    def __enter__(self) -> None:
        self._before = self._allowance.begin(self._is_void)

    def __exit__(self, *exc: object) -> None:
        self._allowance.end(self._before)


class _Answering:
    __slots__ = ("_allowance",)

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance

    def __enter__(self) -> Allowance:
        return self._allowance.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._allowance.__exit__(kind, *exc)
        if kind is not None:
            self._allowance.close()


class _Charge:
    __slots__ = ("_allowance", "_count")

    def __init__(self, allowance: Allowance, count: int) -> None:
        self._allowance = allowance
        self._count = count

    def __enter__(self) -> None:
        self._allowance.charge(self._count)

    def __exit__(self, *exc: object) -> None:
        self._allowance.return_(self._count)


class _Run:
    """Memory for a run: what was estimated, and what values turn out to ask for."""

    __slots__ = ("_allowance", "_asking", "_held", "_refusal")

    def __init__(self, allowance: Allowance, count: int) -> None:
        self._allowance = allowance
        self._held = count
        self._refusal: ServiceError | None = None
        self._asking = engine.asking_for_room(self._need)

    def __enter__(self) -> None:
        self._allowance.charge(self._held)
        self._asking.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._asking.__exit__(None, None, None)
        del self._asking  # which refers to this: every request would leave that to the collector of cyclic garbage
        self._allowance.return_(self._held)
        if self._refusal is not None and isinstance(exc[1], engine.EngineError):
            raise self._refusal from None  # the engine speaks of shapes, and this of what others hold as well

    def _need(self, count: int) -> None:
        """A tensor, and what is made of it."""
        more = _TIMES * count - self._held
        if more > 0:
            try:
                self._allowance.charge(more)
            except ServiceError as refusal:
                self._refusal = refusal
                raise engine.ShapeError("there is no memory for it now", found=f"{count:,} bytes") from None
            self._held += more


_NOTHING: Final = nullcontext()


def current() -> Allowance | None:
    """The allowance of the request at hand; None where there is no request."""
    return _current.get()


def charge(count: int) -> None:
    """Hold so many bytes more for the request at hand.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    allowance = _current.get()
    if allowance is not None:
        allowance.charge(count)


def keeper(give_way: Callable[[], Callable[[int], None] | None]) -> Keeper | None:
    """An account with the budget of the request at hand, for what is to outlive it; None where there is no request."""
    allowance = _current.get()
    return None if allowance is None else allowance.keeper(give_way)


def would_fit(count: int) -> None:
    """Go on only if the request at hand may hold so many bytes more later.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    allowance = _current.get()
    if allowance is not None:
        allowance.would_fit(count)


def charged(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a while.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    allowance = _current.get()
    return _NOTHING if allowance is None else _Charge(allowance, count)


def running(count: int) -> AbstractContextManager[None]:
    """Hold so many bytes for a run, and more where values decide on larger tensors than shapes told of.

    Raises:
        RequestTooLargeError, QueueFullError: as MemoryBudget.take says.
    """
    allowance = _current.get()
    return _NOTHING if allowance is None else _Run(allowance, count)


def check() -> None:
    """Stop if nobody waits for the request at hand.

    Raises:
        DeadlineExceededError: its time is up, or its client is gone.
    """
    allowance = _current.get()
    if allowance is not None:
        allowance.check()
