"""Connections that were refused, and asked again at once: they are looked at later, all of a moment together.

Each refusal has the next request for an answer where clients do not wait, and what refusals cost is what models have no
processor for. So such a connection is left alone for a while, and what has come by then is read past the event loop.
An event of the loop for each would take as long again; and before each the loop waits for threads that compute in
Python to let go of the interpreter, so that a hundred refusals would hold up everybody who is answered.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import socket
import time
from collections import deque
from typing import Final, Protocol

log = logging.getLogger(__name__)

# How long one is left alone, at least and at most, and how often some are looked at.
HELD_S: Final = (0.034, 0.040)
_STEP_S: Final = 0.004
# For how long at a time: a thread that waits for the interpreter has it after this. A few are looked at in any case.
_LOOKING_S: Final = 0.0005
_FEW: Final = 4
# Of longer requests not all may be there, or be wanted.
ROOM_BYTES: Final = 1 << 16


class Left(Protocol):
    """A connection that is left alone."""

    def look(self, reader: Reader) -> bool:
        """Answer what has come meanwhile, if it is refused; whether it is left alone once more."""
        ...

    def cut_off(self) -> None:
        """End the connection at once."""
        ...


class Reader:
    """Reads what a socket has, and lets no other thread in meanwhile: that would take longer than it takes.

    Attributes:
        room: where it is afterwards.
    """

    def __init__(self) -> None:
        self.room = bytearray(ROOM_BYTES)
        self._place = (ctypes.c_char * ROOM_BYTES).from_buffer(self.room)
        self._receive = ctypes.PyDLL(None).recv
        self._receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._receive.restype = ctypes.c_ssize_t

    def read(self, descriptor: int) -> int:
        """How many bytes have come; 0 also where none will come any more, or none has: the connection finds out."""
        count: int = self._receive(descriptor, self._place, ROOM_BYTES, socket.MSG_DONTWAIT)
        return max(0, count)


class Sideline:
    """Of one event loop, whose clock it goes by."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, Left]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._reader: Reader | None = None

    def __len__(self) -> int:
        return len(self._left)

    def take(self, one: Left) -> None:
        """Look at it in a while."""
        loop = asyncio.get_running_loop()
        self._left.append((loop.time(), one))
        if self._timer is None:
            self._timer = loop.call_later(_STEP_S, self._step)

    def _step(self) -> None:
        loop = asyncio.get_running_loop()
        now, left, reader = loop.time(), self._left, self._reader or Reader()
        self._reader, end = reader, time.thread_time() + _LOOKING_S
        # As many as come while one is left alone, so that they come evenly; of those for whom it is time all there is
        # time for: where there are more, each waits longer.
        even, few = math.ceil(len(left) * _STEP_S / HELD_S[1]), _FEW
        soon, late = now - HELD_S[0], now - HELD_S[1]
        while left and (left[0][0] <= late or (even > 0 and left[0][0] <= soon)):
            if not few:
                if time.thread_time() > end:
                    break
                few = _FEW
            even, few = even - 1, few - 1
            one = left.popleft()[1]
            if _look(one, reader):
                left.append((now, one))
        self._timer = loop.call_later(_STEP_S, self._step) if left else None


def _look(one: Left, reader: Reader) -> bool:
    try:
        return one.look(reader)
    except Exception:  # a fault of ours with one must not leave the others alone for ever
        log.exception("looking at a connection")
        one.cut_off()
        return False
