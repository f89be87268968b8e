"""Which of several worker processes takes connections: one whose models are not ready leaves them to those that are.

Workers share one listening socket, and a connection goes to any of those that listen. So one that is started in place
of another that died does not listen while its models load, as long as another worker is ready; where none is, all
listen, because probes and clients must be told so. One byte a worker, in memory that all processes share, says who is
ready.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing.reduction import DupFd
from typing import Any, Self


class Readiness:
    """Which workers are ready. May be handed to a child process."""

    def __init__(self, count: int, file: int | None = None) -> None:
        self._count = count
        self._file = _shared_file(count) if file is None else file
        self._flags = mmap.mmap(self._file, count)

    def __reduce__(self) -> Any:
        return type(self)._attach, (self._count, DupFd(self._file))

    @classmethod
    def _attach(cls, count: int, file: Any) -> Self:
        return cls(count, file.detach())

    def set(self, index: int, is_ready: bool) -> None:
        """Say of one worker whether it is ready."""
        self._flags[index] = is_ready

    def may_accept(self, index: int) -> bool:
        """Whether a worker should take connections: it is ready, or nobody is."""
        flags = self._flags[: self._count]
        return bool(flags[index]) or not any(flags)


def _shared_file(size: int) -> int:
    """A file that has no name and lies in memory, where the system has such."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("readiness")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file
