"""A folder for machine code that no other user can write to.

A user who can write to it decides what its readers run. So the folder and all files read from it belong to this user
or root. If other users can write to the given folder, as in one for temporary files or a shared volume, a subfolder
private to this user is used. All operations are relative to the descriptor that was checked, so a path that is
replaced later has no effect.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from engine.memory.files import OTHERS_WRITE, check_owner

UNFINISHED: Final = ".unfinished"
"""Suffix of a file that is being written."""

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def opened(path: Path, *, make: bool) -> Iterator[int]:
    """Yield a descriptor of the folder, or of the private subfolder.

    Args:
        make: create the folder if it is missing.

    Raises:
        OSError: it is missing, is not a folder, or belongs to another user (EPERM).
    """
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        check_owner(status)
        if status.st_mode & OTHERS_WRITE:
            inner = _private(descriptor, make=make)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def replacing(place: int, name: str) -> Iterator[BinaryIO]:
    """Yield a file to write to; it gets its name atomically when the block ends without an error.

    Until then its name ends in ``UNFINISHED``.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = f"{name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(unfinished, flags, 0o644, dir_fd=place), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=place)
        raise


def _private(outer: int, *, make: bool) -> int:
    name = f"private-{os.geteuid()}"
    if make:
        _make(name, outer)
    descriptor = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=outer)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & OTHERS_WRITE:
        os.close(descriptor)
        raise OSError(errno.EPERM, "other users may write to it")
    return descriptor


def _make(path: Path | str, folder: int | None = None) -> None:
    with suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=folder)
