"""Cancellation and progress of long work, whatever function it is in.

A caller declares once, around the work, how to ask whether the result is still wanted; every loop over a file, a graph
or an operator's elements asks. So no function in between has to pass the question on, and no new one can forget to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Final, TypeAlias, TypeVar

from engine.errors import RunCancelledError

T = TypeVar("T")
Cancelled: TypeAlias = Callable[[], bool]

# Iterations between two checks in a loop whose iterations take microseconds.
_ITERATIONS: Final = 256

_current: ContextVar[Cancelled | None] = ContextVar("cancelled", default=None)
Progress: TypeAlias = Callable[[str, int, int], None]
"""Callback of the stage (``passes``, ``lowering``, ``assembling``), the number of finished steps and their total."""


class _Cancelling:
    """Context manager of ``cancelling``; a class, as a generator would cost every run several calls more."""

    __slots__ = ("_cancelled", "_token")

    def __init__(self, cancelled: Cancelled | None) -> None:
        self._cancelled = cancelled
        self._token: Token[Cancelled | None] | None = None

    def __enter__(self) -> Cancelled | None:
        cancelled, outer = self._cancelled, _current.get()
        if cancelled is None or cancelled == outer:
            return outer
        both = cancelled if outer is None else lambda: cancelled() or outer()
        self._token = _current.set(both)
        return both

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            _current.reset(self._token)


# It has no state, so one object serves all.
_NOTHING_NEW: Final = _Cancelling(None)


def cancelling(cancelled: Cancelled | None) -> AbstractContextManager[Cancelled | None]:
    """Cancel the work of the block, in this thread, when ``cancelled`` or an outer callback returns true.

    Entering returns the combined callback.

    Args:
        cancelled: returns whether the result is no longer wanted; None adds nothing.
    """
    return _NOTHING_NEW if cancelled is None else _Cancelling(cancelled)


def is_cancellable() -> bool:
    """Return whether the current work can be cancelled."""
    return _current.get() is not None


def check_cancelled(where: str = "", problem: str = "it was cancelled") -> None:
    """Raise if the current work was cancelled.

    Args:
        where: the next step, for the error.
        problem: text of the error.

    Raises:
        RunCancelledError: the work was cancelled.
    """
    cancelled = _current.get()
    if cancelled is not None and cancelled():
        raise RunCancelledError(problem, where=where)


def cancellable(items: Iterable[T], every: int = 1) -> Iterator[T]:
    """Yield the items; check before the first and then before each ``every``-th one whether the work was cancelled.

    Raises:
        RunCancelledError: the work was cancelled.
    """
    if _current.get() is None:
        yield from items
        return
    for number, item in enumerate(items):
        if number % every == 0:
            check_cancelled()
        yield item


def cancellable_quick(items: Iterable[T]) -> Iterator[T]:
    """Yield the items like ``cancellable``, for loops whose iterations take microseconds."""
    return cancellable(items, _ITERATIONS)


def silent(doing: str, done: int, of: int) -> None:
    """Report nothing."""


def cancellable_progress(progress: Progress) -> Progress:
    """Return a callback that also raises RunCancelledError when the work was cancelled."""

    def tell(doing: str, done: int, of: int) -> None:
        progress(doing, done, of)
        check_cancelled(doing, "compiling was cancelled")

    return tell
