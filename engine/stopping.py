"""Whether what is being done is still wanted: asked by everything that may take long, however deep it lies.

Whoever wants something says so once, around it; every loop over a file, a graph or an operator's elements asks. So no
function between them has to hand the question on, and none that is written later can forget to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Final, TypeAlias, TypeVar

from engine.errors import RunCancelledError

T = TypeVar("T")
Cancelled: TypeAlias = Callable[[], bool]

# In a loop whose turns take microseconds, so many are done between two questions.
_TURNS: Final = 256

_current: ContextVar[Cancelled | None] = ContextVar("cancelled", default=None)


class _Cancelling:
    """As a class, for a generator would cost every run several calls more."""

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


# Has no state: one for all.
_NOTHING_NEW: Final = _Cancelling(None)


def cancelling(cancelled: Cancelled | None) -> AbstractContextManager[Cancelled | None]:
    """Ask this, and what was to be asked before, while the block runs in this thread; gives what asks both.

    Args:
        cancelled: whether nobody wants it any more; None asks nothing new.
    """
    return _NOTHING_NEW if cancelled is None else _Cancelling(cancelled)


def is_asked() -> bool:
    """Whether there is anybody to ask."""
    return _current.get() is not None


def check_wanted(where: str = "", problem: str = "it was cancelled") -> None:
    """Go on only if somebody wants it.

    Args:
        where: what would come next.
        problem: what the error says.

    Raises:
        RunCancelledError: nobody does.
    """
    cancelled = _current.get()
    if cancelled is not None and cancelled():
        raise RunCancelledError(problem, where=where)


def wanted(items: Iterable[T], turns: int = 1) -> Iterator[T]:
    """The items, each (or one in so many turns) only if somebody still wants them.

    Raises:
        RunCancelledError: nobody does.
    """
    if _current.get() is None:
        yield from items
        return
    for turn, item in enumerate(items):
        if turn % turns == 0:
            check_wanted()
        yield item


def wanted_quick(items: Iterable[T]) -> Iterator[T]:
    """``wanted`` for loops whose turns take microseconds."""
    return wanted(items, _TURNS)
