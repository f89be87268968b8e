"""Polling of the store's folder: models and versions that appear, change or disappear while the server runs.

Files that did not change between two polls are loaded beside what serves, and replace it once they ran. Files that
cannot be served replace nothing: the reason is reported, and the next change is tried again. Removed models stop
serving, but a folder that is unreadable or suddenly empty removes nothing. Requests finish with the model they started
with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import ConfigError
from app.memory.machine import collect, freeze_heap_when_due
from app.models.folder.identity import Contents, Identity, contents_of, identify
from app.models.folder.repository import FoundModel, ModelFiles, find_models, read_model
from app.models.registry.store import Store
from app.models.registry.version import Entry, State, Version
from app.text_files import FileIdentity

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """State of a model's folder.

    Attributes:
        last: contents at the last poll.
        tried: contents when last acted upon.
        coming: versions being loaded, and the files they belong to.
    """

    last: Contents | None = None
    tried: Contents | None = None
    coming: tuple[ModelFiles, tuple[Version, ...]] | None = None


class Watcher:
    """Polling in a thread of its own.

    Args:
        store: served models.
        folder: folder of the store.
        only: name, if the folder is a single model.
        interval_s: seconds between polls; 0 for never.
    """

    def __init__(self, store: Store, folder: Path, only: str | None, interval_s: float) -> None:
        self._store = store
        self._folder = folder
        self._only = only
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._known: dict[str, _Known] = {}

    def start(self) -> None:
        """Start polling."""
        if self._interval_s > 0 and not self._closing.is_set():
            threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def close(self) -> None:
        """Stop polling."""
        self._closing.set()

    def look(self) -> None:
        """Poll once."""
        try:
            found = {each.name: each for each in find_models(self._folder, self._only)}
        except ConfigError:
            return
        before, entries = _served(self._store), {entry.name: entry for entry in self._store.entries}
        if not found:
            found = {name: _found(entry.files) for name, entry in entries.items()}
        for name, each in found.items():
            with self._store.change_lock:
                if name not in self._store.claimed and not self._closing.is_set():
                    self._look_at(each, self._store.find(name))
        for name in entries.keys() - found.keys():
            with self._store.change_lock:
                if name not in self._store.claimed and self._store.find(name) is not None:
                    log.info("model '%s' was removed from the store", name)
                    self._store.remove(name)
        self._known = {name: known for name, known in self._known.items() if name in found}
        del entries
        if before - _served(self._store):
            # Graphs have reference cycles: without this, old weights stay until the next collection.
            collect()

    def mark_handled(self, name: str, found: FoundModel | None) -> None:
        """Treat the present contents of a model as handled, because a command loaded or unloaded it."""
        self._known.pop(name, None)
        if found is not None:
            contents = self._contents(found, self._store.find(name))
            self._known[name] = _Known(last=contents, tried=contents)

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self.look()
                freeze_heap_when_due()
            except Exception:  # a defect of ours must not end the thread
                log.exception("failed to poll the store")

    def _look_at(self, found: FoundModel, entry: Entry | None) -> None:
        known = self._known.setdefault(found.name, _Known())
        contents = self._contents(found, entry)
        if known.coming is not None and entry is not None:
            self._finish(entry, known)
        is_at_rest, known.last = contents == known.last, contents
        if entry is not None and known.tried is None and not _has_changed(entry):
            known.tried = contents  # so since the start
        is_loading = entry is not None and (not entry.is_read or _is_loading(entry.versions))
        if is_at_rest and contents != known.tried and known.coming is None and not is_loading:
            known.tried = contents
            self._act(found, entry, known)

    def _contents(self, found: FoundModel, entry: Entry | None) -> Contents:
        """Return the contents of a model's folder; for a pipeline also what is served of its steps."""
        files = None if entry is None or entry.unloaded is not None else entry.files
        contents = contents_of(found, () if files is None else files.config.named_files)
        names = () if files is None or files.pipeline is None else files.pipeline.models
        return (*contents, *(mark for name in names for mark in self._served(name)))

    def _served(self, name: str) -> Iterator[tuple[str, FileIdentity | None]]:
        entry = self._store.find(name)
        for version in () if entry is None else entry.versions:
            if version.state is State.READY:
                yield from ((f"{name}/{version.number}", identity) for identity in version.identity)

    def _act(self, found: FoundModel, entry: Entry | None, known: _Known) -> None:
        """Load what is new or has changed in a model's folder."""
        if entry is None or entry.files.problem is not None or entry.unloaded is not None:
            log.info("model '%s': found its files", found.name)
            self._store.add(found)
            return
        files, served = read_model(found), {version.number: version for version in entry.versions}
        if files.problem is not None:
            if entry.versions:
                entry.versions[-1].warn(files.problem)
            return
        made = []
        for each in files.versions:
            old = served.get(each.number)
            if old is None or files.pipeline is not None or identify(files, each) != old.identity:
                log.info("model '%s' version %d: its files are new or have changed", found.name, each.number)
                made.append(self._store.make_version(files, each, old))
        known.coming = files, tuple(made)
        for version in made:
            self._store.load_version(files, version)
        self._finish(entry, known)

    def _finish(self, entry: Entry, known: _Known) -> None:
        """Serve loaded versions once all of them have ended loading; a failed one replaces only a failed one."""
        assert known.coming is not None
        files, made = known.coming
        if _is_loading(made):
            return
        known.coming = None
        served = {version.number: version for version in entry.versions}
        rejected = [each for each in made if each.state is State.FAILED and _must_stay(served, each)]
        wanted = {each.number for each in files.versions} if not rejected else {*served}
        after = {number: version for number, version in served.items() if number in wanted}
        after |= {version.number: version for version in made if version not in rejected}
        for version in served.values():
            if version.state is State.READY:
                version.reason = None
        if after != served:
            self._store.exchange(entry, files, tuple(after[number] for number in sorted(after)))
        for version in rejected:
            if version.number not in served:
                version.scheduler.retire()
            served.get(version.number, entry.versions[-1]).warn(f"version {version.number}: {version.reason}")


def _has_changed(entry: Entry) -> bool:
    """Return whether files have changed since they were loaded."""
    return any(identify(entry.files, version.files) != version.identity for version in entry.versions)


def _must_stay(served: dict[int, Version], failed: Version) -> bool:
    """Return whether a failed version would replace one that serves, or join others."""
    old = served.get(failed.number)
    return bool(served) if old is None else old.state is State.READY


def _is_loading(versions: tuple[Version, ...]) -> bool:
    return any(version.state is State.LOADING for version in versions)


def _found(files: ModelFiles) -> FoundModel:
    """Return where a model was found."""
    path = files.versions[0].param if files.is_pair and files.versions else files.folder
    return FoundModel(name=files.name, path=path, store=files.store, is_pair=files.is_pair)


def _served(store: Store) -> set[tuple[str, int, Identity]]:
    return {(entry.name, version.number, version.identity) for entry in store.entries for version in entry.versions}
