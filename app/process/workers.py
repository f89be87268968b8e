"""Several server processes on one socket, and the memory they share: metrics (Scoreboard) and readiness (Readiness).

A slot of the scoreboard has two halves. A worker writes the half that is not read, then one byte switches them: a
worker that dies while writing leaves the previous state, which stays after its end.

Workers share one listening socket, and the kernel gives a connection to any worker that listens. So a worker that
replaces a dead one does not listen while its models load, unless no other worker can do more: then all listen, so that
probes and clients get an answer. Two bytes a worker say how far it has come and whether it listens.

Several processes are worth it only when HTTP itself is the bottleneck, since one process uses every core for inference.
Weights are in memory that the processes share. The parent takes no requests: it starts children, restarts those that
die, and passes on signals.
"""

from __future__ import annotations

import enum
import logging
import mmap
import multiprocessing
import os
import signal
import struct
import tempfile
import threading
import zlib
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import DupFd
from typing import Any, Final

log = logging.getLogger(__name__)

# Bytes of each half of a slot. Pages take memory only once they are written to.
ROOM: Final = 4 << 20
_HEAD: Final = struct.Struct("<II")  # length, CRC-32
# First page of a slot: which half is read, and whether the worker runs.
_PAGE: Final = 4096
_SLOT: Final = _PAGE + 2 * ROOM


class Scoreboard:
    """Slots of all workers in shared memory. It may be passed to a child process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = SharedMemory(count * _SLOT)
        self._is_logged = False

    def write(self, index: int, data: bytes) -> None:
        """Write a worker's data; too large data are dropped, and logged once."""
        if _HEAD.size + len(data) > ROOM:
            if not self._is_logged:
                log.error("metrics of this worker are too large to share: found %d bytes, expected at most %d",
                          len(data), ROOM - _HEAD.size)  # fmt: skip
            self._is_logged = True
            return
        slot = index * _SLOT
        half = 1 - self._memory[slot]
        start = slot + _PAGE + half * ROOM
        self._memory[start : start + _HEAD.size] = _HEAD.pack(len(data), zlib.crc32(data))
        self._memory[start + _HEAD.size : start + _HEAD.size + len(data)] = data
        self._memory[slot] = half
        self._memory[slot + 1] = True

    def read(self, index: int) -> bytes:
        """Return a worker's data, empty if it wrote none."""
        slot = index * _SLOT
        # Two writes during a read overwrite the half that is read; the checksum detects that.
        for _ in range(3):
            start = slot + _PAGE + self._memory[slot] * ROOM
            length, crc = _HEAD.unpack(self._memory[start : start + _HEAD.size])
            data = self._memory[start + _HEAD.size : start + _HEAD.size + min(length, ROOM)]
            if zlib.crc32(data) == crc:
                return data
        return b""

    def is_alive(self, index: int) -> bool:
        """Return whether the worker of this index runs."""
        return bool(self._memory[index * _SLOT + 1])

    def clear(self, index: int) -> None:
        """Mark a worker as ended; its data stay."""
        self._memory[index * _SLOT + 1] = False

    def slot(self, index: int) -> ScoreboardSlot:
        """Return the view of one worker."""
        return ScoreboardSlot(self, index, self._count)


class ScoreboardSlot:
    """Scoreboard as one worker sees it."""

    def __init__(self, scoreboard: Scoreboard, index: int, count: int) -> None:
        self._scoreboard = scoreboard
        self._index = index
        self._others = [other for other in range(count) if other != index]

    def write(self, data: bytes) -> None:
        """Write this worker's data."""
        self._scoreboard.write(self._index, data)

    def previous(self) -> bytes:
        """Return the data of the previous worker of this index."""
        return self._scoreboard.read(self._index)

    def peers(self) -> Sequence[tuple[bytes, bool]]:
        """Return the data of every other worker, and whether it runs."""
        left = [(self._scoreboard.read(other), self._scoreboard.is_alive(other)) for other in self._others]
        return [(data, is_alive) for data, is_alive in left if data]


class SharedMemory(mmap.mmap):
    """Zeroed memory shared with child processes that it is passed to; pages take memory once they are written to."""

    def __new__(cls, size: int, file: int | None = None) -> SharedMemory:
        file = _file(size) if file is None else file
        memory = super().__new__(cls, file, size)
        memory._fileno = file
        return memory

    _fileno: int

    def __reduce__(self) -> Any:
        return _attach, (len(self), DupFd(self._fileno))


def _attach(size: int, file: Any) -> SharedMemory:
    return SharedMemory(size, file.detach())


def _file(size: int) -> int:
    """Return the descriptor of a file in memory, or of a temporary one if the system has none."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("pnnx-serve")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file


class Progress(enum.IntEnum):
    """Progress of a worker; a higher value can answer more."""

    LOADING = 0  # or stopping
    LOADED = 1  # some models failed; it answers for the others
    READY = 2


class Readiness:
    """Progress of all workers in shared memory. It may be passed to a child process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._flags = SharedMemory(2 * count)

    def set(self, index: int, progress: Progress) -> None:
        """Set the progress of a worker."""
        self._flags[index] = progress

    def open(self, index: int) -> bool:
        """Mark a worker as listening if it may listen, and return whether it may."""
        # Marked before the check: a worker that becomes ready meanwhile either sees the mark or is seen by the check.
        self._flags[self._count + index] = True
        if not self.may_accept(index):
            self.close(index)
            return False
        return True

    def close(self, index: int) -> None:
        """Mark a worker as not listening."""
        self._flags[self._count + index] = False

    def clear(self, index: int) -> None:
        """Reset a worker that has ended."""
        self.set(index, Progress.LOADING)
        self.close(index)

    def may_accept(self, index: int) -> bool:
        """Return whether a worker may listen, since no other has come further."""
        levels = self._flags[: self._count]
        return levels[index] == max(levels)

    def is_settled(self) -> bool:
        """Return whether no worker listens that should not."""
        return all(self.may_accept(index) for index in range(self._count) if self._flags[self._count + index])


# Exit status of a child that cannot start at all, so that it is not restarted.
CANNOT_START: Final = 3


def supervise(count: int, start: Callable[[int], SpawnProcess], ended: Callable[[int], None]) -> int:
    """Keep count children running until SIGTERM, SIGINT or SIGHUP, then let them drain.

    Args:
        count: number of children.
        start: starts the child of an index.
        ended: called when a child has ended, before another one is started.

    Returns:
        The exit status: 0 when all children ended well.
    """
    stopping = threading.Event()
    for number in ending():
        signal.signal(number, lambda *_: stopping.set())
    children = [start(index) for index in range(count)]
    while not stopping.is_set():
        wait([child.sentinel for child in children], timeout=0.2)
        for index, child in enumerate(children):
            if child.is_alive() or stopping.is_set():
                continue
            if child.exitcode == CANNOT_START:
                stopping.set()
                break
            ended(index)
            log.error("worker %d ended with status %s; starting another", index, child.exitcode)
            children[index] = start(index)
    for child in children:
        child.terminate()
    for child in children:
        child.join()
    # A child that is still starting is killed by the signal.
    return max(0 if child.exitcode == -signal.SIGTERM else abs(child.exitcode or 0) for child in children)


def detach() -> None:
    """Detach a child from Ctrl-C, and stop it when its parent has ended; called first in a child."""
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals that end the server: SIGTERM, SIGINT, and SIGHUP unless it is ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    return (signal.SIGTERM, signal.SIGINT) if is_ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
