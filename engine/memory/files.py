"""Files that somebody else names or writes: opened without waiting, read within a limit.

A name may stand for anything: a pipe whose other end never comes, a device without an end, a folder, a ring of links.
Only regular files are opened; a link to one is as good as the file, unless the caller says otherwise. Messages carry
the name of a file, never a folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, TypeAlias

from engine.errors import ModelFormatError

Path: TypeAlias = str | os.PathLike[str]

# Without O_NONBLOCK a pipe that replaces the file between two looks would be waited for.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_PIECE_BYTES: Final = 1 << 20
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
"""Bits of a mode that let others than the owner write."""
# Room to see that a file goes on behind its stated size.
_SPARE_BYTES: Final = 4096


class NotRegularError(OSError):
    """A name stands for something that is not a file with an end."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "not a regular file")


def file_name(path: Path) -> str:
    """The last part of a path."""
    return os.path.basename(os.fsdecode(path))


def open_regular(path: Path, *, follow: bool = True, folder: int | None = None) -> int:
    """A descriptor of a regular file, to read from; the caller closes it. Never waits.

    Args:
        follow: whether the name may be a link.
        folder: descriptor of the folder that a relative path is looked up in.

    Raises:
        NotRegularError: it is not a regular file.
        OSError: there is none, or it cannot be read.
        ValueError: no path at all, such as one with a zero byte.
    """
    # Looked at first: to open a device may already do something.
    _check_regular(os.stat(path, dir_fd=folder, follow_symlinks=follow))
    descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
    try:
        _check_regular(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def reading(path: Path) -> Iterator[int]:
    """A descriptor of a regular file while the block runs; what the system refuses becomes an error of ours.

    Raises:
        ModelFormatError: the file does not exist, is not a regular file or cannot be read; placed at its name.
    """
    try:
        descriptor = open_regular(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ModelFormatError("the file does not exist", where=file_name(path)) from None
    except (OSError, ValueError) as error:
        if isinstance(error, NotRegularError):
            raise ModelFormatError("not a regular file", where=file_name(path)) from None
        raise ModelFormatError("the file cannot be read", where=file_name(path), found=reason(error)) from None


def read_file(path: Path, max_bytes: int) -> bytes:
    """All bytes of a regular file.

    Args:
        max_bytes: the most that are read; a file that is longer, or grows longer meanwhile, is refused.

    Raises:
        ModelFormatError: the file does not exist, is not a regular file, cannot be read or is too large; placed at
            its name.
    """
    with reading(path) as descriptor:
        stated = os.fstat(descriptor).st_size
        content = b"" if stated > max_bytes else _read(descriptor, stated, max_bytes)
        size = max(stated, len(content))
        if size > max_bytes:
            found, expected = f"{size:,} bytes", f"at most {max_bytes:,}"
            raise ModelFormatError("the file is too large", where=file_name(path), found=found, expected=expected)
        return content


def _read(descriptor: int, stated: int, max_bytes: int) -> bytes:
    """What a file holds, whatever size it stated; a little more than the limit where it holds more."""
    pieces: list[bytes] = []
    length = 0
    while length <= max_bytes:
        piece = os.read(descriptor, min(max(stated - length, 0) + _SPARE_BYTES, _PIECE_BYTES))
        if not piece:
            break
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def check_owner(status: os.stat_result) -> None:
    """Refuse what another user than this one and root may change.

    Raises:
        OSError: EPERM.
    """
    if status.st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EPERM, "it belongs to another user")


def check_unshared(status: os.stat_result) -> None:
    """Refuse what another user has written, or may have: whoever runs what it holds runs that user's code.

    Raises:
        OSError: EPERM.
    """
    check_owner(status)
    if status.st_mode & OTHERS_WRITE:
        raise OSError(errno.EPERM, "other users may write to it")


def identity(status: os.stat_result) -> tuple[int, ...]:
    """What is another one after a file was replaced or written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def reason(error: OSError | ValueError) -> str:
    """What the system says, without the path it says it of."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError
