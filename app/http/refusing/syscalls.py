"""Reading from sockets and writing to them without letting another thread have the interpreter meanwhile.

Python lets go of it for every call of the system. Who answers many at a time would wait for it as often, for a thread
that computes in Python; and none of these calls takes as long as that.
"""

from __future__ import annotations

import ctypes
import socket
from typing import Final

# Of longer requests not all may be there, or be wanted.
ROOM_BYTES: Final = 1 << 16
_QUIETLY: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class Syscalls:
    """What is done with the descriptors of sockets that others have opened, and close.

    Attributes:
        room: where what was read is afterwards.
    """

    def __init__(self) -> None:
        self.room = bytearray(ROOM_BYTES)
        system = ctypes.PyDLL(None)
        self._recv, self._send = system.recv, system.send
        self._recv.restype = self._send.restype = ctypes.c_ssize_t
        # Arguments that have their types take less time than a list of types does; numbers alone are C's ints.
        self._place = (ctypes.c_char * ROOM_BYTES).from_buffer(self.room)
        self._size = ctypes.c_size_t(ROOM_BYTES)
        self._length = ctypes.c_size_t()

    def read(self, descriptor: int) -> int:
        """How many bytes have come; 0 or less where none has, or none will any more: the connection finds out."""
        count: int = self._recv(descriptor, self._place, self._size, socket.MSG_DONTWAIT)
        return count

    def write(self, descriptor: int, data: bytes) -> int:
        """How many bytes were sent; 0 or less where none can be, now or any more: the connection finds out."""
        self._length.value = len(data)
        count: int = self._send(descriptor, data, self._length, _QUIETLY)
        return count
