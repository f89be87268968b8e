"""Files named or written by others: opened without blocking, read within a limit.

A name may stand for anything: a pipe without a writer, a device without an end, a folder, a ring of links. Only regular
files are opened; a link to one is followed unless the caller forbids it. Messages carry the name of a file, never a
folder.
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

# Without O_NONBLOCK, open would wait for a pipe that replaced the file after the check.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_PIECE_BYTES: Final = 1 << 20
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
"""Mode bits that let other users write."""
# Bytes read beyond the stated size, to notice that a file is longer.
_SPARE_BYTES: Final = 4096


class NotRegularError(OSError):
    """A name stands for something other than a regular file."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "not a regular file")


def file_name(path: Path) -> str:
    """Return the last part of a path."""
    return os.path.basename(os.fsdecode(path))


def open_regular(path: Path, *, follow: bool = True, folder: int | None = None) -> int:
    """Return a descriptor of a regular file, for reading; the caller closes it. Never waits.

    Args:
        follow: whether the name may be a link.
        folder: descriptor of the folder that a relative path is looked up in.

    Raises:
        NotRegularError: it is not a regular file.
        OSError: it does not exist or cannot be read.
        ValueError: an invalid path, such as one with a zero byte.
    """
    # Checked before opening: opening a device may have side effects.
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
    """Yield a descriptor of a regular file; system errors become an EngineError.

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
    """Return all bytes of a regular file.

    Args:
        max_bytes: limit; a file that is longer, or becomes longer while it is read, is refused.

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
    """Return the contents of a file whatever its stated size; slightly more than the limit where it is longer."""
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
    """Refuse a file that users other than this one and root may change.

    Raises:
        OSError: EPERM.
    """
    if status.st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EPERM, "it belongs to another user")


def check_unshared(status: os.stat_result) -> None:
    """Refuse a file that other users may have written: running its code would run theirs.

    Raises:
        OSError: EPERM.
    """
    check_owner(status)
    if status.st_mode & OTHERS_WRITE:
        raise OSError(errno.EPERM, "other users may write to it")


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Return a key that changes when a file is replaced or written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def reason(error: OSError | ValueError) -> str:
    """Return the system's message without the path."""
    if "embedded null" in str(error):  # the words vary with the version of Python
        return "embedded null byte"
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError
