"""The files of a tar archive, read without trusting a word of it.

Only folders and plain files with names that a store may have are taken; a link, a device or a hole refuses the whole.
What it says of sizes is held against the limit before anything is read, and what a header may make tarfile read at
once is bounded too, so that neither a small file that unpacks to a large one nor a lie about a size takes more memory
than a piece of a file, or more disk than the limit.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from app.models.folder.layout import CONFIG as MODEL_CONFIG
from app.models.folder.layout import MANIFEST, PARAM, is_version
from app.remote.errors import SourceError
from app.remote.names import MAX_FILES, check_all, check_name
from app.wording import told

_PIECE: Final = 2**20
# Blocks of tar, ends of files and headers, beside the files themselves; for each file, and for the end.
_OVERHEAD: Final = 8 * 1024
_END: Final = 2**20


class _Bounded:
    """A file of which no more is read at once, and in all, than there should be."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """
        Raises:
            SourceError: too much is asked for.
        """
        if not 0 <= size <= _PIECE:
            raise SourceError("a header of the archive is damaged, or made to take memory")
        if self._file.tell() + size > self._limit:
            raise SourceError(f"the archive unpacks to more than {self._limit:,} bytes")
        return self._file.read(size)


class Archive:
    """The files of an archive, one after the other.

    Args:
        path: of the archive, which may be compressed with gzip.
        limit: bytes that all of its files together may take.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Names with bytes, which are to be read before the next file is asked for.

        Raises:
            SourceError: it is no archive, or one that may not be unpacked.
        """
        names: list[str] = []
        total = 0
        with _telling(), _opened(self._path) as file:
            bounded = _Bounded(file, self._limit + MAX_FILES * _OVERHEAD + _END)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
                while (member := archive.next()) is not None:
                    archive.members = []  # it keeps those it has seen, of which there may be any number
                    total += _checked_size(member)
                    if total > self._limit:
                        raise SourceError(f"the archive unpacks to more than {self._limit:,} bytes (store_max_bytes)")
                    if member.isdir():
                        continue
                    names.append(check_name(member.name.removeprefix("./")))
                    if len(names) > MAX_FILES:
                        raise SourceError(f"found more than {MAX_FILES:,} files in the archive")
                    yield names[-1], _bytes(archive, member)
            # What comes behind is of no use, but gzip's checksum stands at the very end.
            while bounded.read(_PIECE):
                pass
        check_all(names)


def placed(names: list[str], archive: str) -> str:
    """The folder that an archive's files belong to: empty where they are a store, the model's name where they are one.

    archive: the archive's own name.
    """
    top = {name.split("/")[0] for name in names if "/" in name}
    alone = {name for name in names if "/" not in name}
    is_model = MODEL_CONFIG in alone or MANIFEST in alone or any(map(is_version, top)) or (PARAM in alone and top)
    return f"{archive.partition('.tar')[0].removesuffix('.tgz')}/" if is_model else ""


def _checked_size(member: tarfile.TarInfo) -> int:
    name = told(member.name, 100)
    if member.size < 0:
        raise SourceError(f"'{name}' of the archive has a size below zero")
    if member.isdir():
        return 0
    if not member.isreg() or member.issparse():
        raise SourceError(f"'{name}' of the archive is a link, a device or a file with holes: expected plain files")
    return member.size


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file: Any = archive.extractfile(member)
    left = member.size
    with _telling():
        while left:
            piece = file.read(min(_PIECE // 2, left))
            if not piece:
                raise SourceError(f"the archive ends in the middle of '{told(member.name, 100)}'")
            left -= len(piece)
            yield piece


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            yield file
            return
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]  # it reads and seeks as one


@contextmanager
def _telling() -> Iterator[None]:
    """What is wrong with an archive has one kind of error.

    A file name of bytes that are no UTF-8, a number of letters, a checksum: tarfile has a way to fail for each.
    """
    try:
        yield
    except SourceError:
        raise
    except (tarfile.TarError, EOFError, ValueError, zlib.error, OverflowError) as exc:
        raise SourceError(f"it is no tar archive, or a damaged one ({told(str(exc), 100)})") from None
    except gzip.BadGzipFile:
        raise SourceError("it is no gzip file, or a damaged one") from None
