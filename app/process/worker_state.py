"""What workers leave for each other: each has a place in memory that all of them share, and writes to no other.

A place has two halves. A worker writes to the one that nobody reads, and then one byte says which it is: one that dies
in the midst of it leaves what it wrote before. What it left stays when it is gone.
"""

from __future__ import annotations

import enum
import logging
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any, Final

log = logging.getLogger(__name__)

# Bytes of each half of a place. Pages take memory only once they are written to.
ROOM: Final = 4 << 20
_HEAD: Final = struct.Struct("<II")  # length, CRC-32
# At the start of a place: which half is to be read, and whether the worker runs.
_PAGE: Final = 4096
_SLOT: Final = _PAGE + 2 * ROOM


class Scoreboard:
    """The places of all workers. May be handed to a child process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = SharedMemory(count * _SLOT)
        self._is_logged = False

    def write(self, index: int, data: bytes) -> None:
        """Leave something; what does not fit is left out, and the log says so once."""
        if _HEAD.size + len(data) > ROOM:
            if not self._is_logged:
                log.error("figures of this worker are not shown by others: found %d bytes, at most %d fit",
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
        """What a worker left; nothing where it left nothing."""
        slot = index * _SLOT
        # A writer that has been twice meanwhile has written over what was read.
        for _ in range(3):
            start = slot + _PAGE + self._memory[slot] * ROOM
            length, crc = _HEAD.unpack(self._memory[start : start + _HEAD.size])
            data = self._memory[start + _HEAD.size : start + _HEAD.size + min(length, ROOM)]
            if zlib.crc32(data) == crc:
                return data
        return b""

    def is_alive(self, index: int) -> bool:
        """Whether the worker that left something is still there."""
        return bool(self._memory[index * _SLOT + 1])

    def clear(self, index: int) -> None:
        """A worker is no more; what it left stays."""
        self._memory[index * _SLOT + 1] = False

    def slot(self, index: int) -> ScoreboardSlot:
        """The place of one worker: what it writes, and what it reads of the others."""
        return ScoreboardSlot(self, index, self._count)


class ScoreboardSlot:
    """The scoreboard as one worker sees it."""

    def __init__(self, scoreboard: Scoreboard, index: int, count: int) -> None:
        self._scoreboard = scoreboard
        self._index = index
        self._others = [other for other in range(count) if other != index]

    def write(self, data: bytes) -> None:
        """Leave this worker's."""
        self._scoreboard.write(self._index, data)

    def own(self) -> bytes:
        """What the one that was in this worker's place left."""
        return self._scoreboard.read(self._index)

    def others(self) -> Sequence[tuple[bytes, bool]]:
        """What each of the others left, and whether it still runs."""
        left = [(self._scoreboard.read(other), self._scoreboard.is_alive(other)) for other in self._others]
        return [(data, is_alive) for data, is_alive in left if data]


class SharedMemory(mmap.mmap):
    """Zeroed bytes that all processes see which it is handed to; pages take memory once they are written to."""

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
    """A descriptor of a file that lies in memory, where the system has such."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("pnnx-serve")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file


class Progress(enum.IntEnum):
    """How far a worker has come; a higher one can answer more."""

    LOADING = 0  # or stopping
    LOADED = 1  # but not all: it answers for the models that it has
    READY = 2


class Readiness:
    """How far each worker has come. May be handed to a child process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._flags = SharedMemory(2 * count)

    def set(self, index: int, progress: Progress) -> None:
        """Say of one worker how far it has come."""
        self._flags[index] = progress

    def open(self, index: int) -> bool:
        """Say that a worker takes connections from now on, if it should; whether it should."""
        # Said first and looked at then: one that has become ready meanwhile either sees it, or is seen.
        self._flags[self._count + index] = True
        if not self.may_accept(index):
            self.close(index)
            return False
        return True

    def close(self, index: int) -> None:
        """Say that a worker takes no connections any more."""
        self._flags[self._count + index] = False

    def clear(self, index: int) -> None:
        """A worker is no more."""
        self.set(index, Progress.LOADING)
        self.close(index)

    def may_accept(self, index: int) -> bool:
        """Whether a worker should take connections: no other one has come further."""
        levels = self._flags[: self._count]
        return levels[index] == max(levels)

    def is_settled(self) -> bool:
        """Whether nobody listens any more who should not."""
        return all(self.may_accept(index) for index in range(self._count) if self._flags[self._count + index])
