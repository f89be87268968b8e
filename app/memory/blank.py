"""Memory for bytes that come from somewhere else."""

from __future__ import annotations

import ctypes
from typing import Any, Final

# Where kernels and every dtype like values to begin: a line of the caches.
_LINE: Final = 64

# What Python's own bytearray(n) does, but for the zeros, which would take as long as many a model runs.
_new: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
)


def unwritten(count: int, values_at: int = 0) -> bytearray:
    """So many bytes that mean nothing: whoever asks for them writes all of them before anybody reads one.

    Args:
        values_at: the byte that begins a line of the processor's caches.
    """
    block: bytearray = _new(None, count + _LINE)
    before = -(ctypes.addressof(ctypes.c_char.from_buffer(block)) + values_at) % _LINE
    # Both move nothing: a bytearray knows where in its memory it begins.
    del block[:before]
    del block[count:]
    return block
