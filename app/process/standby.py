"""Which of several worker processes takes connections: one that still loads its models leaves them to those that have.

Workers share one listening socket, and a connection goes to any of those that listen. So one that is started in place
of another that died does not listen while its models load, as long as another worker can do more; where none can, all
listen, because probes and clients must be told so. Two bytes a worker, in memory that all processes share, say how far
each has come and whether it listens.
"""

from __future__ import annotations

import enum

from app.process.scoreboard import SharedMemory


class Standing(enum.IntEnum):
    """How far a worker has come; a higher one can answer more."""

    LOADING = 0  # or stopping
    LOADED = 1  # but not all: it answers for the models that it has
    READY = 2


class Readiness:
    """How far each worker has come. May be handed to a child process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._flags = SharedMemory(2 * count)

    def set(self, index: int, standing: Standing) -> None:
        """Say of one worker how far it has come."""
        self._flags[index] = standing

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
        self.set(index, Standing.LOADING)
        self.close(index)

    def may_accept(self, index: int) -> bool:
        """Whether a worker should take connections: no other one has come further."""
        standings = self._flags[: self._count]
        return standings[index] == max(standings)

    def is_settled(self) -> bool:
        """Whether nobody listens any more who should not."""
        return all(self.may_accept(index) for index in range(self._count) if self._flags[self._count + index])
