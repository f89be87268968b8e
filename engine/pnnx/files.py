"""Files on disk: read whole, mapped, or replaced both or neither. Messages carry file names, never a folder."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, TypeAlias

from engine.errors import EngineError
from engine.files import Path, file_name, read_file, reading, reason
from engine.pnnx.archive import Buffer

Writer: TypeAlias = Callable[[BinaryIO], None]

MAX_PARAM_BYTES: Final = 2**28


def sibling(path: Path) -> str:
    """The weights file that belongs to a text file: ``x.pnnx.param`` has ``x.pnnx.bin``."""
    return os.fsdecode(path).removesuffix(".param") + ".bin"


def read_text_file(path: Path) -> bytes:
    """All bytes of a text file.

    Raises:
        ModelFormatError: when it does not exist, cannot be read, or is too large to be a text file.
    """
    return read_file(path, MAX_PARAM_BYTES)


def map_file(path: Path) -> Buffer:
    """A file as read-only memory, of no cost until touched.

    Raises:
        ModelFormatError: when it does not exist or cannot be read.
    """
    with reading(path) as descriptor:
        if os.fstat(descriptor).st_size == 0:
            return b""
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def replace_files(first: tuple[Path, Writer], second: tuple[Path, Writer]) -> None:
    """Write two files, then put both in their places. After a failure the places are as they were.

    Raises:
        EngineError: when the system refuses, or both places are one; what a writer raises passes through.
    """
    names = f"{file_name(first[0])} and {file_name(second[0])}"
    try:
        # A link to a model stays a link: its target is replaced.
        places = os.path.realpath(first[0]), os.path.realpath(second[0])
        if places[0] == places[1]:
            raise EngineError("two files cannot be written to one place", where=names)
        with _staged(places[0], first[1]) as one, _staged(places[1], second[1]) as other, _restored(places[0]):
            os.replace(one, places[0])
            os.replace(other, places[1])
        for folder in {os.path.dirname(place) for place in places}:
            _sync_folder(folder)
    except (OSError, ValueError) as error:
        raise EngineError("the files cannot be written", where=names, found=reason(error)) from None


@contextlib.contextmanager
def _staged(place: str, write: Writer) -> Iterator[str]:
    """A new file beside its place, complete and on disk; gone afterwards unless it was moved away."""
    path = _beside(place)
    try:
        with open(path, "xb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        yield path
    finally:
        _remove(path)


@contextlib.contextmanager
def _restored(place: str) -> Iterator[None]:
    """A place that is as it was when something fails inside."""
    backup = _beside(place)
    existed = os.path.lexists(place)
    try:
        # Where hard links are not to be had the second file could still fail alone.
        with contextlib.suppress(OSError):
            os.link(place, backup)
        yield
    except BaseException:
        if os.path.lexists(backup):
            os.replace(backup, place)
        elif not existed:
            _remove(place)
        raise
    finally:
        _remove(backup)


def _beside(place: str) -> str:
    return os.path.join(os.path.dirname(place), f".{secrets.token_hex(8)}.tmp")


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_folder(folder: str) -> None:
    """Make the new names durable, where the system lets a folder be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
