"""Large blocks piece by piece, several at once: they are read, hashed and checked as fast as all cores can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from engine.memory.resources import available_cores
from engine.stopping import check_wanted

T = TypeVar("T")
R = TypeVar("R")

PIECE_BYTES: Final = 8 << 20
"""Long enough for a thread, short enough for whoever asks whether it is still wanted."""
_MOST_THREADS: Final = 4


def side_by_side(do: Callable[[T], R], pieces: Sequence[T]) -> Iterator[R]:
    """What comes of every piece, in order; by several threads where there are several pieces.

    Raises:
        RunCancelledError: nobody wants it any more.
    """
    threads = min(_MOST_THREADS, available_cores(), len(pieces))
    if threads < 2:
        for piece in pieces:
            check_wanted()
            yield do(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            for result in pool.map(do, pieces):
                check_wanted()
                yield result
        finally:
            pool.shutdown(cancel_futures=True)
