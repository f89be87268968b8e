"""A folder that nobody else may write to, for files that hold machine code.

Whoever may write to it decides what its readers run. So it belongs to this user or to root, and so does every file that
is read from it. Where others may write to the folder that was named, as in one for temporary files or a volume made
for everybody, one inside of it is used that only this user may enter. All is done relative to the folder as it was
opened and looked at: a name that means another one a moment later changes nothing.
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
"""How the name of a file ends that is being written."""

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def opened(path: Path, *, make: bool) -> Iterator[int]:
    """A descriptor of the folder, or of the private one inside, while the block runs.

    Args:
        make: whether to make it where it is missing.

    Raises:
        OSError: it is missing, is no folder, or belongs to another user (EPERM).
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
    """A file to write to, that has its name in the folder once the block has ended well: whole, or not at all.

    Until then it is called ``UNFINISHED``.

    Raises:
        OSError: the disk is full, and the like.
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
