"""A file made of parts of another, for decoders that read from files."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from app.memory.reservation import check


class PartsFile(io.RawIOBase):
    """Read-only file made of views; only bytes that are read are copied.

    Args:
        parts: contents in order.
        pauses: offsets at which ``read_on`` stops, in ascending order.
    """

    def __init__(self, parts: Sequence[memoryview], pauses: Sequence[int] = ()) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(len(part) for part in parts)]
        self._pauses = pauses
        self._at = 0

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; fewer than ``size`` only at the end.

        Raises:
            DeadlineExceededError: the request was cancelled.
        """
        check()
        end = self._starts[-1] if size is None or size < 0 else min(self._at + size, self._starts[-1])
        index = bisect_right(self._starts, self._at) - 1
        if index >= len(self._parts) or end <= self._at:
            return b""
        if end <= self._starts[index + 1]:
            start = self._starts[index]
            found = bytes(self._parts[index][self._at - start : end - start])
        else:
            found = b"".join(self._pieces(index, end))
        self._at = end
        return found

    def read_on(self, size: int) -> bytes:
        """Return the next bytes up to the next pause, so that a decoder checks for cancellation in between."""
        index = bisect_right(self._pauses, self._at)
        return self.read(min(size, self._pauses[index] - self._at) if index < len(self._pauses) else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move as ``io.RawIOBase.seek``; offsets before the start become the start."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._starts[-1]}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """Return the offset of the next read."""
        return self._at

    def _pieces(self, index: int, end: int) -> list[memoryview]:
        pieces = []
        at = self._at
        while at < end:
            start = self._starts[index]
            pieces.append(self._parts[index][at - start : end - start])
            at = self._starts[index + 1]
            index += 1
        return pieces
