"""Resources of a process that must not grow with its work: threads and file descriptors."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_S


def held(but: str | None = None) -> tuple[int, int]:
    """Return the numbers of threads and of file descriptors of this process.

    but: prefix of names of threads that are not counted: a pool keeps as many as it once needed.
    """
    gc.collect()
    threads = [each for each in threading.enumerate() if but is None or not each.name.startswith(but)]
    return len(threads), len(os.listdir("/proc/self/fd"))


def open_files(part: str | Path) -> int:
    """Return the number of open files of this process with this in their path, including unlinked ones."""
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # others come and go
            found += str(part) in os.readlink(f"/proc/self/fd/{each}")
    return found


def assert_no_more(before: tuple[int, int], *, turns: int, but: str | None = None) -> None:
    """Wait until the resources are hardly more than before.

    A leak in every turn is found. A pool that made one more of its allowed threads, because the others were not idle
    yet, has leaked none.
    """
    end = time.monotonic() + PATIENCE_S
    while any(now >= then + turns // 2 for now, then in zip(held(but), before, strict=True)):
        names = sorted(each.name for each in threading.enumerate())
        assert time.monotonic() < end, f"found {held(but)}, before {turns} turns {before}; threads: {names}"
        time.sleep(0.05)
