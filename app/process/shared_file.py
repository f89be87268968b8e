"""Memory that several processes share, as a file that has no name."""

from __future__ import annotations

import os
import tempfile


def shared_file(name: str, size: int) -> int:
    """A descriptor of it; it lies in memory, where the system has such. The name is for those who look into /proc."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file
