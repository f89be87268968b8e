"""Cache of executables on disk, so that a new process loads what an earlier one compiled.

A folder with one file per entry, named by its key. Any number of processes read and write it at once: a file appears
atomically, and is copied into memory when it is read, so later changes to it have no effect. No error reaches the
caller: if the folder cannot be read or written, or the disk is full, graphs are compiled anew, and one log line gives
the reason.

Entries hold machine code: only files that this user or root owns and no other user can write to are read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from engine.compiler.cache import entry, folder
from engine.compiler.executable import Executable
from engine.memory.files import NotRegularError, check_unshared, open_regular

T = TypeVar("T")

SUFFIX: Final = ".blueprint"
# An unfinished file of this age was left by a writer that has died.
_ABANDONED_S: Final = 3600.0

_log = logging.getLogger("pnnx_serve.engine")
_complaints: set[Path] = set()


@dataclass(frozen=True, slots=True)
class CacheHit:
    """An executable from the cache and the size of its file."""

    executable: Executable
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A folder of executables.

    Args:
        folder: created by the first write.
        max_bytes: of all entries together; the least recently used are removed first.
    """

    folder: Path
    max_bytes: int

    def load(self, key: str) -> CacheHit | None:
        """Return the executable of a key, or None. A damaged or untrusted entry is removed."""
        found = self.load_as(key, entry.executable_of)
        return None if found is None else CacheHit(*found)

    def load_as(self, key: str, made_of: Callable[[entry.Content], T]) -> tuple[T, int] | None:
        """Return what ``made_of`` builds from the entry of a key, and the size of its file; None if there is none.

        Args:
            made_of: raises EntryError for an entry it cannot decode; see ``load``.
        """
        name = f"{key}{SUFFIX}"
        try:
            with folder.opened(self.folder, make=False) as place:
                found = self._read(place, name, key, made_of)
                if found is not None:
                    with suppress(OSError):  # the folder may be read-only; then nothing is evicted either
                        os.utime(name, dir_fd=place, follow_symlinks=False)
                return found
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("read", error)
            return None

    def has(self, key: str) -> bool:
        """Return whether there is an entry of a key; only ``load`` checks that it is valid."""
        with suppress(OSError):
            return (self.folder / f"{key}{SUFFIX}").is_file()
        return False

    def save(self, key: str, executable: Executable) -> int:
        """Store an executable and return the size of its file in bytes, 0 if it was not stored."""
        return self.save_content(key, entry.content_of(executable))

    def save_content(self, key: str, content: entry.Content) -> int:
        """Store an entry and return the size of its file in bytes, 0 if it was not stored."""
        if content.constants.nbytes > self.max_bytes:
            return 0
        try:
            with folder.opened(self.folder, make=True) as place:
                size = _write(place, f"{key}{SUFFIX}", key, content)
                self._make_room(place, f"{key}{SUFFIX}")
                return size
        except OSError as error:
            self._complain("written", error)
            return 0

    def _read(self, place: int, name: str, key: str, made_of: Callable[[entry.Content], T]) -> tuple[T, int] | None:
        try:
            descriptor = open_regular(name, follow=False, folder=place)
            try:
                status = os.fstat(descriptor)
                check_unshared(status)
                if status.st_size > self.max_bytes + entry.PAGE:
                    raise entry.EntryError(f"the entry is larger than the whole cache may be: {status.st_size} bytes")
                content, size = entry.read(descriptor, key)
                return made_of(content), size
            finally:
                os.close(descriptor)
        except (entry.EntryError, NotRegularError, PermissionError) as error:
            what = error.strerror if isinstance(error, OSError) else str(error)
            _log.warning("a bad entry of the compile cache is removed and compiled anew: %s", what)
            with suppress(OSError):
                os.unlink(name, dir_fd=place)
            return None

    def _make_room(self, place: int, newest: str) -> None:
        """Evict the least recently used entries until the rest fits; never the entry just written."""
        entries = list(_files(place, SUFFIX))
        total = sum(size for _, size, _ in entries)
        removed = [name for name, _, used in _files(place, folder.UNFINISHED) if time.time() - used > _ABANDONED_S]
        for name, size, _ in sorted(entries, key=lambda each: each[2]):
            if total <= self.max_bytes:
                break
            if name != newest:
                removed.append(name)
                total -= size
        for name in removed:
            with suppress(OSError):
                os.unlink(name, dir_fd=place)

    def _complain(self, what: str, error: OSError) -> None:
        """Log once per process that a folder cannot be used."""
        if self.folder not in _complaints:
            _complaints.add(self.folder)
            reason = error.strerror or type(error).__name__
            _log.warning("the compile cache %s cannot be %s (%s): graphs are compiled anew", self.folder, what, reason)


def _write(place: int, name: str, key: str, content: entry.Content) -> int:
    """Write an entry atomically and return its size in bytes."""
    with folder.replacing(place, name) as file:
        entry.write_content(file, key, content)
        return file.tell()


def _files(place: int, suffix: str) -> Iterator[tuple[str, int, float]]:
    """Yield files with their sizes in bytes and times of last use, skipping those that vanish meanwhile."""
    with suppress(OSError):
        for name in os.listdir(place):
            if name.endswith(suffix):
                with suppress(OSError):
                    status = os.stat(name, dir_fd=place, follow_symlinks=False)
                    yield name, status.st_size, status.st_mtime
