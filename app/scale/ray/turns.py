"""Replicas of a machine load one after the other: what the first one compiles, the others find in the cache."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.location import stores_folder
from app.settings import Settings

_LOOK_S: Final = 0.05


@asynccontextmanager
async def turn(settings: Settings) -> AsyncIterator[None]:
    """Be the only one of this machine, or of all that share the cache's folder, that loads models.

    Where there is no such folder nobody waits: each compiles for itself anyway.
    """
    descriptor = _open(settings) if settings.cache else None
    end = asyncio.get_running_loop().time() + settings.load_timeout_s
    try:
        while descriptor is not None and not _locked(descriptor) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_LOOK_S)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(settings: Settings) -> int | None:
    folder = stores_folder(None, settings.cache_dir).parent
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / "loading.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
