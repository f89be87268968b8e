"""Notes: small facts about programs and machines, stored beside the executables.

A note that cannot be read or is damaged counts as missing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.compiler.cache import folder
from engine.memory.files import check_unshared, open_regular

SUFFIX: Final = ".note"
MAX_BYTES: Final = 1 << 16
# The least recently read notes beyond this number are removed.
MAX_NOTES: Final = 1024


def read_note(place: Path, key: str) -> bytes | None:
    """Return the content of a note; None if it is missing or another user can write to it."""
    try:
        with folder.opened(place, make=False) as opened:
            name = f"{key}{SUFFIX}"
            descriptor = open_regular(name, follow=False, folder=opened)
            try:
                check_unshared(os.fstat(descriptor))
                content = os.read(descriptor, MAX_BYTES + 1)
            finally:
                os.close(descriptor)
            with suppress(OSError):
                os.utime(name, dir_fd=opened, follow_symlinks=False)
            return content if len(content) <= MAX_BYTES else None
    except OSError:
        return None


def write_note(place: Path, key: str, content: bytes) -> None:
    """Store a note, ignoring errors."""
    if len(content) > MAX_BYTES:
        return
    with suppress(OSError), folder.opened(place, make=True) as opened:
        with folder.replacing(opened, f"{key}{SUFFIX}") as file:
            file.write(content)
        _make_room(opened)


def _make_room(opened: int) -> None:
    names = [name for name in os.listdir(opened) if name.endswith(SUFFIX)]
    if len(names) <= MAX_NOTES:
        return
    used: list[tuple[float, str]] = []
    for name in names:
        with suppress(OSError):
            used.append((os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime, name))
    for _, name in sorted(used)[: max(0, len(used) - MAX_NOTES)]:
        with suppress(OSError):
            os.unlink(name, dir_fd=opened)
