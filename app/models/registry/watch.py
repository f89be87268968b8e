"""Reload of models whose files are replaced while they serve; see discovery.py for new and removed ones.

The files of every version are polled. Changed files that stay the same between two polls are loaded beside the serving
model, and replace it once they ran. Files that cannot be served replace nothing: the reason is reported, and the next
change is tried again. Requests finish with the model they started with.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from app.memory.machine import collect, freeze_heap_when_due
from app.models.folder.identity import Identity, identify
from app.models.folder.repository import FoundModel, ModelFiles, read_model
from app.models.registry.discovery import Discovery
from app.models.registry.store import Store
from app.models.registry.version import Entry, State, Version

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watched:
    """State of a version's files.

    Attributes:
        tried: files loaded last, whether served or not.
        last: files at the last poll.
        update: version being loaded, and the config and labels it belongs to.
    """

    tried: Identity
    last: Identity
    update: tuple[Version, ModelFiles] | None = None


class Watcher:
    """Polling of a store's files in a thread of its own.

    Args:
        store: served models.
        discovery: finds new and removed models.
        interval_s: seconds between polls; 0 for never.
    """

    def __init__(self, store: Store, discovery: Discovery, interval_s: float) -> None:
        self._store = store
        self._discovery = discovery
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._watched: dict[tuple[str, int], _Watched] = {}

    def start(self) -> None:
        """Start polling."""
        if self._interval_s > 0 and not self._closing.is_set():
            threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def close(self) -> None:
        """Stop polling."""
        self._closing.set()

    def look(self) -> None:
        """Poll the files of all models once, then new and removed models."""
        for entry in self._store.entries:
            for version in entry.versions if entry.is_read else ():
                with self._store.change_lock:
                    is_ours = self._is_ours(entry) and version in entry.versions
                    if is_ours and not self._closing.is_set():
                        self._look_at(entry, version)
        if not self._closing.is_set():
            self._look_around()

    def _is_ours(self, entry: Entry) -> bool:
        """Return whether the entry is current and not being loaded by a command."""
        return entry.name not in self._store.claimed and self._store.find(entry.name) is entry

    def mark_handled(self, name: str, found: FoundModel | None) -> None:
        """Treat the present contents of a model as handled, because a command loaded or unloaded it."""
        self._watched = {key: watched for key, watched in self._watched.items() if key[0] != name}
        self._discovery.mark_handled(name, found)

    def _look_around(self) -> None:
        before = _served(self._store)
        self._discovery.look()
        now = _served(self._store)
        self._watched = {key: watched for key, watched in self._watched.items() if key in now}
        if before - now:
            collect()

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self.look()
                freeze_heap_when_due()
            except Exception:  # a defect of ours must not end the thread
                log.exception("failed to poll the store")

    def _look_at(self, entry: Entry, version: Version) -> None:
        found = _Watched(version.identity, version.identity)
        watched = self._watched.setdefault((version.name, version.number), found)
        if watched.update is not None:
            self._finish(entry, version, watched)
        elif version.state is not State.LOADING:
            now = identify(entry.files, version.files)
            is_at_rest, watched.last = now == watched.last, now
            if is_at_rest and now != watched.tried:
                watched.tried = now
                self._begin(entry, version, watched)

    def _begin(self, entry: Entry, version: Version, watched: _Watched) -> None:
        """Load the present files."""
        old = entry.files
        alone = old.is_pair
        path = version.files.param if alone else old.folder
        files = read_model(FoundModel(name=old.name, path=path, store=old.store, is_pair=alone))
        chosen = [each for each in files.versions if each.number == version.number]
        if files.problem is not None or not chosen:
            version.warn(files.problem or "the config no longer names this version")
            return
        log.info("model '%s' version %d: its files have changed", version.name, version.number)
        update = self._store.make_version(files, chosen[0], version)
        watched.update = update, files
        self._store.load_version(files, update)

    def _finish(self, entry: Entry, version: Version, watched: _Watched) -> None:
        """Serve a loaded update once it has finished loading successfully."""
        assert watched.update is not None
        update, files = watched.update
        if update.state is State.LOADING:
            return
        watched.update = None
        if update.state is State.FAILED and version.state is State.READY:
            version.warn(update.reason or "")
            return
        self._store.swap(version, update)
        entry.files = files
        entry.update_tags()
        del version, update
        # Graphs have reference cycles: without this, old weights stay until the next collection.
        collect()


def _served(store: Store) -> set[tuple[str, int]]:
    return {(entry.name, version.number) for entry in store.entries for version in entry.versions}
