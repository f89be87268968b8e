"""Blueprints on disk, so that a process that starts finds what another one compiled.

A folder with one file an entry, named by its key. Any number of processes read and write it at once: a file appears
whole or not at all, and one that is removed stays valid for whoever has it mapped. Nothing here is an error to the
caller: where the folder cannot be read or written, or the disk is full, graphs are compiled anew, and one line of the
log says why.

Entries hold machine code: whoever may write to the folder decides what its readers run.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.compiler import entry
from engine.compiler.blueprint import Blueprint

SUFFIX: Final = ".blueprint"
DEFAULT_MAX_BYTES: Final = 4 << 30
_UNFINISHED: Final = ".unfinished"
# A file that a writer has not finished for so long, it never will: the writer is gone.
_ABANDONED_S: Final = 3600.0

_log = logging.getLogger("pnnx_serve.engine")
_complaints: set[Path] = set()


@dataclass(frozen=True, slots=True)
class Found:
    """A blueprint of the cache and the size of its file."""

    blueprint: Blueprint
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A folder of blueprints.

    Args:
        folder: made when something is first written.
        max_bytes: of all entries together; those not used for longest are removed first.
    """

    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES

    def load(self, key: str) -> Found | None:
        """The entry of a key; None if there is none. A damaged one is removed."""
        path = self._path(key)
        try:
            found = Found(*entry.read(path, key))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("read", error)
            return None
        except entry.EntryError as error:
            _log.warning("an entry of the compile cache is removed and made anew: %s", error)
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):  # the folder may be read-only; then nobody removes entries either
            os.utime(path)
        return found

    def save(self, key: str, blueprint: Blueprint) -> bool:
        """Keep a blueprint; whether it was kept."""
        if blueprint.constants.nbytes > self.max_bytes:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(self._path(key), key, blueprint)
        except OSError as error:
            self._complain("written", error)
            return False
        self._make_room(key)
        return True

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _write(self, path: Path, key: str, blueprint: Blueprint) -> None:
        unfinished = path.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}{_UNFINISHED}")
        try:
            with open(unfinished, "xb") as file:
                entry.write(file, key, blueprint)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise

    def _make_room(self, newest: str) -> None:
        """Remove what was not used for longest, until the rest fits; never the entry just written."""
        entries = list(self._files(SUFFIX))
        total = sum(size for _, size, _ in entries)
        removed = [path for path, _, used in self._files(_UNFINISHED) if time.time() - used > _ABANDONED_S]
        for path, size, _ in sorted(entries, key=lambda each: each[2]):
            if total <= self.max_bytes:
                break
            if path.stem != newest:
                removed.append(path)
                total -= size
        for path in removed:
            with suppress(OSError):
                path.unlink()

    def _files(self, suffix: str) -> Iterator[tuple[Path, int, float]]:
        """Files with their sizes in bytes and the time each was last used; one that vanishes meanwhile is left out."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path.suffix == suffix:
                    with suppress(OSError):
                        status = path.stat()
                        yield path, status.st_size, status.st_mtime

    def _complain(self, what: str, error: OSError) -> None:
        """Say once in a process that a folder is of no use."""
        if self.folder not in _complaints:
            _complaints.add(self.folder)
            reason = error.strerror or type(error).__name__
            _log.warning("the compile cache %s cannot be %s (%s): graphs are compiled anew", self.folder, what, reason)
