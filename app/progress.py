"""Progress of long operations on stderr: one line on a terminal, a line every ten seconds in a pipe."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # imports numpy, which must wait for the thread settings
    import engine

_WIPE: Final = "\r\x1b[2K"
# Interval of the lines in a pipe, where a line cannot be replaced.
_REPEAT_S: Final = 10.0


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show an operation on stderr until it is done."""
    with _line() as show:
        show(doing)
        yield


@contextmanager
def compiling(name: str) -> Iterator[engine.Progress]:
    """Show how far the compiler is with a model; nothing if there is nothing to compile."""
    with _line() as show:
        yield lambda doing, done, of: show(f"compiling {name}: {doing}" + (f" {done + 1} of {of}" if of > 1 else ""))


@contextmanager
def rounds(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show the current one of several equal rounds."""
    with _line() as show:
        yield lambda done, of: show(f"{doing}: {done + 1} of {of}")


@contextmanager
def telling(doing: str) -> Iterator[Callable[[str], None]]:
    """Show a text that changes while an operation runs."""
    with _line() as show:
        yield lambda text: show(f"{doing}: {text}")


@contextmanager
def _line() -> Iterator[Callable[[str], None]]:
    """Yield a function that replaces the line of the terminal; the line is wiped at the end."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    written = latest = ""

    def show(text: str) -> None:
        nonlocal written, latest
        latest = text
        if is_terminal and text != written:
            print(f"{_WIPE if written else ''}{text} ...", end="", file=sys.stderr, flush=True)
            written = text

    def repeat() -> None:
        start = time.monotonic()
        while not done.wait(_REPEAT_S):
            if latest:
                print(f"{latest} ... {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    done = threading.Event()
    if not is_terminal:
        threading.Thread(target=repeat, name="progress", daemon=True).start()
    try:
        yield show
    finally:
        done.set()
        if written:
            print(_WIPE, end="", file=sys.stderr, flush=True)
