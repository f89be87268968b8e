"""Arrays next to inaccessible pages: a kernel that reads or writes out of bounds crashes at once."""

from __future__ import annotations

import ctypes
import math
import mmap

import numpy as np
from numpy.typing import DTypeLike

from engine.tensor import Array

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_NO_ACCESS = 0


def guarded_array(values: Array, *, at_end: bool = True, dtype: DTypeLike = "float32") -> Array:
    """Return a copy that ends, or begins, at a page; the pages before and behind are inaccessible."""
    size = np.dtype(dtype).itemsize
    n_bytes = size * math.prod(values.shape)
    page = mmap.PAGESIZE
    pages = -(-n_bytes // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for first in (base, base + (pages + 1) * page):
        if _libc.mprotect(first, page, _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = (pages + 1) * page - n_bytes if at_end else page
    array = np.frombuffer(memory, dtype, n_bytes // size, first).reshape(values.shape)
    array[...] = values
    return array
