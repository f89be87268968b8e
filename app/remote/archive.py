"""Reader of tar archives that may be hostile.

Only folders and plain files with valid names are accepted; a link, a device or a sparse file rejects the whole archive.
Sizes stated by headers are checked against the limit before anything is read. Headers are read iteratively, and their
number and size are bounded. Zip bombs, false sizes, and any number of folders or extended headers are therefore limited
in memory, disk and time. (The standard library's reader recurses for every extended header, and has regular expressions
of quadratic time.)

Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar's types L and K.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from app.messages import safe_text
from app.models.folder.layout import CONFIG as MODEL_CONFIG
from app.models.folder.layout import MANIFEST, PARAM, is_version
from app.remote.local_copy import MAX_FILES, SourceError, check_all, check_name

_BLOCK: Final = tarfile.BLOCKSIZE
_PIECE: Final = 2**20
# Bytes of tar blocks, padding and headers: for each file, and for the end.
_OVERHEAD: Final = 8 * 1024
_END: Final = 2**20
# Maximum number of extended headers per file, and their size: valid names are short.
_MAX_EXTENSIONS: Final = 16
_MAX_EXTENSION_BYTES: Final = 64 * 1024
_NAMES: Final = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_RECORDS: Final = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_DAMAGED: Final = "a header of the archive is damaged, or made to take memory"


class _Bounded:
    """File read sequentially, up to a limit."""

    def __init__(self, file: IO[bytes], limit: int, is_given_up: Callable[[], bool]) -> None:
        self._file = file
        self._left = limit
        self._limit = limit
        self._is_given_up = is_given_up

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes.

        Raises:
            SourceError: the limit is exceeded, or reading was cancelled.
        """
        if self._is_given_up():
            raise SourceError("the server stops")
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise SourceError(f"the archive unpacks to more than {self._limit:,} bytes")
        return data


@dataclass(frozen=True, slots=True)
class _Member:
    """File or folder of an archive, as described by all of its headers."""

    name: str
    size: int
    is_folder: bool


class Archive:
    """Files of an archive, in order.

    Args:
        path: path of the archive, optionally gzip-compressed.
        limit: maximum total size of its files in bytes.
        is_given_up: polled between headers and pieces of a file; reading stops when it returns True.
    """

    def __init__(self, path: Path, limit: int, is_given_up: Callable[[], bool] = lambda: False) -> None:
        self._path = path
        self._limit = limit
        self._is_given_up = is_given_up

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield names and bytes; read the bytes before asking for the next file.

        Raises:
            SourceError: it is not an archive, or must not be unpacked.
        """
        names: list[str] = []
        total = members = 0
        with _telling(), _opened(self._path) as file:
            bounded = _Bounded(file, self._limit + MAX_FILES * _OVERHEAD + _END, self._is_given_up)
            while (member := _next(bounded, is_first=not members)) is not None:
                members += 1
                total += member.size
                if members > MAX_FILES:
                    raise SourceError(f"found more than {MAX_FILES:,} files and folders in the archive")
                if total > self._limit:
                    raise SourceError(f"the archive unpacks to more than {self._limit:,} bytes (store_max_bytes)")
                if not member.is_folder:
                    names.append(check_name(member.name.removeprefix("./")))
                    yield names[-1], _bytes(bounded, member)
                bounded.read(-member.size % _BLOCK)
            # Read to the end, because gzip's checksum is there.
            while bounded.read(_PIECE):
                pass
        check_all(names)


def placed(names: list[str], archive: str) -> str:
    """Return the prefix for the archive's files: empty if they form a store, ``NAME/`` if they form a single model.

    Args:
        names: names of the files.
        archive: name of the archive, which becomes the model's name.
    """
    top = {name.split("/")[0] for name in names if "/" in name}
    alone = {name for name in names if "/" not in name}
    is_model = MODEL_CONFIG in alone or MANIFEST in alone or any(map(is_version, top)) or (PARAM in alone and top)
    return f"{archive.partition('.tar')[0].removesuffix('.tgz')}/" if is_model else ""


def _next(file: _Bounded, *, is_first: bool) -> _Member | None:
    """Read the headers of the next file or folder; return None at the end of the archive."""
    records: dict[str, str] = {}
    for number in range(_MAX_EXTENSIONS + 1):
        block = file.read(_BLOCK)
        if not any(block):  # zero blocks end an archive; some writers omit them
            if number or (is_first and not block):
                raise SourceError("the archive is empty, or ends after an extended header")
            return None
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.type == tarfile.XGLTYPE:  # a global header, such as git archive's commit
            _extension(file, header)
        elif header.type in _NAMES:
            text = _extension(file, header).partition(b"\0")[0]
            if header.type == tarfile.GNUTYPE_LONGNAME:
                records["path"] = text.decode("utf-8", "surrogateescape")
        elif header.type in _RECORDS:
            records |= _records(_extension(file, header))
        else:
            return _member(header, records)
    raise SourceError(f"found more than {_MAX_EXTENSIONS} extended headers of one file in the archive")


def _extension(file: _Bounded, header: tarfile.TarInfo) -> bytes:
    if not 0 <= header.size <= _MAX_EXTENSION_BYTES:
        raise SourceError(_DAMAGED)
    data = file.read(header.size + -header.size % _BLOCK)
    if len(data) < header.size:
        raise SourceError("the archive ends in the middle of a header")
    return data[: header.size]


def _records(data: bytes) -> dict[str, str]:
    """Read the records of an extended header: ``LENGTH KEY=VALUE`` lines."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        blank = data.find(b" ", at, at + len(str(_MAX_EXTENSION_BYTES)) + 1)
        digits = data[at : max(blank, at)]
        end = at + int(digits) if digits.isdigit() else at
        key, is_set, value = data[blank + 1 : end - 1].partition(b"=")
        if not is_set or not blank < end <= len(data) or data[end - 1 : end] != b"\n":
            raise SourceError(_DAMAGED)
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at = end
    return found


def _member(header: tarfile.TarInfo, records: Mapping[str, str]) -> _Member:
    name = records.get("path", header.name)
    shown = safe_text(name, 100)
    is_folder = header.isdir()
    is_sparse = any(key.startswith("GNU.sparse.") for key in records)
    if not is_folder and (header.type not in _FILES or is_sparse):
        raise SourceError(f"'{shown}' of the archive is a link, a device or a sparse file, expected a plain file")
    size = int(records.get("size", header.size))
    if size < 0:
        raise SourceError(f"'{shown}' of the archive has a negative size")
    return _Member(name, 0 if is_folder else size, is_folder)


def _bytes(file: _Bounded, member: _Member) -> Iterator[bytes]:
    left = member.size
    with _telling():
        while left:
            piece = file.read(min(_PIECE // 2, left))
            if not piece:
                raise SourceError(f"the archive ends in the middle of '{safe_text(member.name, 100)}'")
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
            yield unpacked  # type: ignore[misc]  # it reads as one


@contextmanager
def _telling() -> Iterator[None]:
    """Raise SourceError for every error of reading an archive.

    tarfile fails differently for names that are not UTF-8, numbers with letters, and wrong checksums.
    """
    try:
        yield
    except SourceError:
        raise
    except (tarfile.TarError, EOFError, ValueError, zlib.error, OverflowError) as exc:
        raise SourceError(f"it is not a tar archive, or is damaged ({safe_text(str(exc), 100)})") from None
    except gzip.BadGzipFile:
        raise SourceError("it is not a gzip file, or is damaged") from None
