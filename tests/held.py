"""What a process holds that must not grow with what it did: its threads and its file descriptors."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_S


def held(but: str | None = None) -> tuple[int, int]:
    """How many threads and file descriptors this process has.

    but: how the names of threads begin that are not counted: of a pool that stays, with as many as it once needed.
    """
    gc.collect()
    threads = [each for each in threading.enumerate() if but is None or not each.name.startswith(but)]
    return len(threads), len(os.listdir("/proc/self/fd"))


def open_files(part: str | Path) -> int:
    """How many descriptors this process has of files with this in their path, those without a name among them."""
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # others come and go
            found += str(part) in os.readlink(f"/proc/self/fd/{each}")
    return found


def assert_no_more(before: tuple[int, int], *, turns: int, but: str | None = None) -> None:
    """Waits until hardly more is held than before.

    What every one of the turns left behind is found. A pool that made one more of the threads it may have, because
    the others were not idle yet, has leaked none.
    """
    end = time.monotonic() + PATIENCE_S
    while any(now >= then + turns // 2 for now, then in zip(held(but), before, strict=True)):
        names = sorted(each.name for each in threading.enumerate())
        assert time.monotonic() < end, f"found {held(but)}, before {turns} turns {before}; threads: {names}"
        time.sleep(0.05)
