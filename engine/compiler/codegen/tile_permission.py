"""Permission of the system to use the tile registers of AMX, which Linux gives a process on request."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

# Linux: arch_prctl on x86-64, its requests, and the number of the registers' state.
_ARCH_PRCTL: Final = 158
_GET_PERMISSIONS, _REQUEST_PERMISSION = 0x1022, 0x1023
_TILE_DATA: Final = 18


def may_use_tiles(syscall: Callable[..., Any] | None = None) -> bool:
    """Ask the system for the tile registers, for all threads of this process, and return whether it allows them.

    Args:
        syscall: that of the C library by default.
    """
    if syscall is None:
        syscall = getattr(ctypes.CDLL(None), "syscall", None)
    if syscall is None:
        return False
    allowed = ctypes.c_uint64(0)
    syscall(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST_PERMISSION), ctypes.c_ulong(_TILE_DATA))
    failed = syscall(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_GET_PERMISSIONS), ctypes.byref(allowed))
    return not failed and bool(allowed.value >> _TILE_DATA & 1)
