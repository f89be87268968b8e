"""Fetching of a remote store's changes, once or in a background thread."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.location import Remote, stores_folder
from app.messages import safe_text
from app.remote.archive import Archive, placed
from app.remote.local_copy import Index, LocalCopy, SourceError, StoredFile, check_all
from app.remote.source import DeniedError, Object, Source
from app.settings import Settings

_SMALL: Final = 64 * 1024
# Name of the file with the digests of all others, written last: it marks them as complete.
SUMS: Final = "SHA256SUMS"
# End of the name of the file beside an archive that holds its digest.
BESIDE: Final = ".sha256"
MAX_BYTES: Final = 8 * 2**20
_LINE: Final = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")
_ALONE: Final = re.compile(r"\s*([0-9a-fA-F]{64})(?:\s.*)?", re.DOTALL)
log = logging.getLogger(__name__)
# Maximum age of another process's check to be reused; of processes that start together, one fetches.
_RECENT_S: Final = 2.0
# Retry interval while there is nothing to serve; doubled each time, up to the polling interval.
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0


class Mirror:
    """Local copy of a remote store.

    Args:
        remote: address of the store.
        folder: folder of all remote stores.
        limit: maximum size of the store in bytes.

    Raises:
        SettingsError: the extra is not installed.
        SourceError: the folder cannot be used.
    """

    def __init__(self, remote: Remote, folder: Path, limit: int) -> None:
        self._remote = remote
        self._limit = limit
        self._source = Source(remote)
        self.local_copy = LocalCopy(folder / remote.key)

    def refresh(self, max_age_s: float = 0.0, is_given_up: Callable[[], bool] = lambda: False) -> bool:
        """Fetch changes, if any; return whether there were some.

        Args:
            max_age_s: age up to which another process's check is reused.
            is_given_up: polled while fetching; fetching stops when it returns True.

        Raises:
            SourceError: the store cannot be read, or is invalid; the previous state is kept.
        """
        with self.local_copy.locked(is_given_up):
            index = self.local_copy.index()
            if index is not None and 0 <= time.time() - index.checked < max_age_s and self._is_pinned_to(index):
                return False
            try:
                return self._refresh(index, is_given_up)
            finally:
                self.local_copy.tidy()

    def _is_pinned_to(self, index: Index) -> bool:
        return self._remote.digest is None or index.stamp == f"sha256 {self._remote.digest}"

    def _refresh(self, index: Index | None, is_given_up: Callable[[], bool]) -> bool:
        stamp = self._stamp(index)
        if index is not None and index.stamp == stamp:
            self.local_copy.write_index(replace(index, checked=time.time()))
            return False
        files = dict(self._files(stamp, index, is_given_up))
        if not stamp.startswith("sha256 ") and self._stamp(index) != stamp:
            raise SourceError(f"{self._remote} changed while it was read; the previous state is kept")
        self.local_copy.publish(stamp, files)
        return True

    def _stamp(self, index: Index | None) -> str:
        """Return an identifier of the store's state: its digest, or a hash of all tags."""
        if self._remote.digest is not None:
            return f"sha256 {self._remote.digest}"
        listed = self._listed()
        if listed is not None:
            return f"sha256 {listed}"
        if index is not None and index.stamp.startswith("sha256 ") and index.files:
            what = BESIDE if self._remote.is_archive else SUMS
            raise SourceError(f"{self._remote} no longer has a {what}, so it may be incomplete")
        if self._remote.is_archive:
            tag = self._source.look().tag
            if not tag:
                raise SourceError(
                    f"{self._remote} comes without an ETag or a time: expected a {BESIDE} file beside it, or #sha256="
                )
            return tag
        found = self._source.list()
        return "listed " + hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()

    def _listed(self) -> str | None:
        """Return the digest published by the source, or None."""
        if not self._remote.is_archive:
            sums = self._source.read_small(SUMS, MAX_BYTES)
            return None if sums is None else hashlib.sha256(sums).hexdigest()
        if urlsplit(self._remote.url).query:  # a signed URL is valid for one file only
            return None
        try:
            small = self._source.read_small(BESIDE, _SMALL)
        except DeniedError:  # some servers answer 403 for missing files
            return None
        return None if small is None else parse_digest(small)

    def _files(
        self, stamp: str, index: Index | None, is_given_up: Callable[[], bool]
    ) -> Iterator[tuple[str, tuple[Path, StoredFile]]]:
        digest = stamp.removeprefix("sha256 ") if stamp.startswith("sha256 ") else None
        if self._remote.is_archive:
            yield from self._unpacked(digest, is_given_up)
        elif digest is not None:
            yield from self._named(digest, index, is_given_up)
        else:
            yield from self._found(index, is_given_up)

    def _unpacked(
        self, digest: str | None, is_given_up: Callable[[], bool]
    ) -> Iterator[tuple[str, tuple[Path, StoredFile]]]:
        path, kept = self.local_copy.take(_heeding(self._source.chunks(), is_given_up), self._limit)
        self._check("the archive", kept.digest, digest)
        members = self._members(path, is_given_up)
        files = {name: self.local_copy.take(pieces, self._limit) for name, pieces in members}
        if not files:
            raise SourceError(f"{self._remote}: the archive holds no file")
        folder = placed(list(files), self._remote.name)
        yield from ((f"{folder}{name}", each) for name, each in files.items())

    def _members(self, path: Path, is_given_up: Callable[[], bool]) -> Iterator[tuple[str, Iterator[bytes]]]:
        try:
            yield from Archive(path, self._limit, is_given_up).files()
        except SourceError as exc:
            raise SourceError(f"{self._remote}: {exc}") from None

    def _named(
        self, digest: str, index: Index | None, is_given_up: Callable[[], bool]
    ) -> Iterator[tuple[str, tuple[Path, StoredFile]]]:
        """Yield the files named by SHA256SUMS, fetching only those not held already."""
        sums = self._source.read_small(SUMS, MAX_BYTES)
        if sums is None:
            raise SourceError(f"{self._remote} has no {SUMS}")
        self._check(SUMS, hashlib.sha256(sums).hexdigest(), digest)
        wanted, total = parse_sums(sums), 0
        if not wanted:
            raise SourceError(f"{self._remote}: {SUMS} names no file")
        for path, expected in wanted.items():
            held = self.local_copy.stored(path, index, expected)
            if held is not None and index is not None:
                each = held, index.files[path]
            else:
                each = self.local_copy.take(_heeding(self._source.chunks(path), is_given_up), self._limit - total)
                self._check(f"'{path}'", each[1].digest, expected)
            total += each[1].size
            yield path, each

    def _found(
        self, index: Index | None, is_given_up: Callable[[], bool]
    ) -> Iterator[tuple[str, tuple[Path, StoredFile]]]:
        """Yield all files of a bucket, fetching only those with a new tag."""
        found, total = self._source.list(), 0
        check_all(list(found))
        for path, source in found.items():
            each = self._stored(path, source, index)
            if each is None:
                taken, kept = self.local_copy.take(
                    _heeding(self._source.chunks(path), is_given_up), self._limit - total
                )
                if source.size not in (None, kept.size):
                    raise SourceError(f"'{path}' of {self._remote}: found {kept.size} bytes, expected {source.size}")
                each = taken, replace(kept, tag=source.tag)
            total += each[1].size
            yield path, each

    def _stored(self, path: str, source: Object, index: Index | None) -> tuple[Path, StoredFile] | None:
        kept: Mapping[str, StoredFile] = {} if index is None else index.files
        if path not in kept or not source.tag or kept[path].tag != source.tag:
            return None
        held = self.local_copy.stored(path, index, kept[path].digest)
        return None if held is None else (held, kept[path])

    def _check(self, what: str, found: str, expected: str | None) -> None:
        if expected is not None and found != expected:
            raise SourceError(f"{what} of {self._remote} has a wrong digest: found sha256 {found}, expected {expected}")


def _heeding(chunks: Iterator[bytes], is_given_up: Callable[[], bool]) -> Iterator[bytes]:
    for chunk in chunks:
        if is_given_up():
            raise SourceError("the server stops")
        yield chunk


def parse_sums(text: bytes) -> dict[str, str]:
    """Return digests by path.

    Raises:
        SourceError: it is not a list of digests.
    """
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.decode("utf-8", "surrogateescape").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None and line.strip():
            raise SourceError(f"{SUMS} line {number}: found '{safe_text(line, 80)}', expected a digest and a file")
        if match is not None and match[2] != SUMS:
            found.append((match[2], match[1].lower()))
    check_all([path for path, _ in found])
    return dict(found)


def parse_digest(text: bytes) -> str:
    """Return the digest in a ``.sha256`` file, with or without the archive's name behind it.

    Raises:
        SourceError: there is none.
    """
    match = _ALONE.fullmatch(text.decode("utf-8", "replace"))
    if match is None:
        raise SourceError(f"the {BESIDE} file beside it holds no SHA-256: expected 64 hexadecimal digits")
    return match[1].lower()


class StoreSync:
    """Synchronisation of the local copy of a store.

    Attributes:
        problem: reason why the last check failed, or None.

    Raises:
        SettingsError: the extra is not installed.
        SourceError: the folder for stores cannot be used.
    """

    def __init__(self, settings: Settings, remote: Remote) -> None:
        folder = stores_folder(settings.store_dir, settings.cache_dir)
        self._remote = remote
        self._interval_s = 0.0 if settings.model_control == "none" else settings.store_poll_s
        self._mirror = Mirror(remote, folder, settings.store_max_bytes)
        self._closing = threading.Event()
        self.problem: str | None = None

    def begin(self) -> None:
        """Wait until there are files to serve or the server stops, then poll in the background."""
        pause_s = _FIRST_S
        while not self._look(_RECENT_S) and not self.has_files:
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_S, max(self._interval_s, _FIRST_S))
        if self._interval_s > 0 and not self._closing.is_set():
            threading.Thread(target=self._watch, name="remote store", daemon=True).start()

    @property
    def has_files(self) -> bool:
        """Return whether a state of the store was fetched before, by any process."""
        return self._mirror.local_copy.index() is not None

    def fetch(self) -> None:
        """Check and fetch once.

        Raises:
            SourceError: the store cannot be read, or is invalid.
        """
        self._mirror.refresh(_RECENT_S)

    def close(self) -> None:
        """Stop polling; a fetch in progress is dropped."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            self._look(self._interval_s / 2)

    def _look(self, max_age_s: float) -> bool:
        """Check once and return whether it succeeded; a repeated problem is logged once."""
        try:
            if self._mirror.refresh(max_age_s, self._closing.is_set):
                log.info("the store %s has changed, and was fetched", self._remote)
        except SourceError as exc:
            self._fail(str(exc))
        except Exception as exc:  # a defect of ours must not end the thread; the error's text may hold secrets
            self._fail(f"internal error while looking at {self._remote} ({type(exc).__name__})")
        else:
            if self.problem is not None:
                log.info("the store %s is readable again", self._remote)
            self.problem = None
        return self.problem is None

    def _fail(self, problem: str) -> None:
        if problem != self.problem and not self._closing.is_set():
            serving = "; the previous state is served" if self.has_files else ""
            log.error("%s%s", problem, serving)
        self.problem = problem
