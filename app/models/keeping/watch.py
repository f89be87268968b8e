"""Models whose files are replaced while they are served; those that come and go, discovery.py looks after.

Every version's files are looked at again and again. When they are others than those that were loaded, and have not
changed from one look to the next, they are loaded beside the model that serves, and take its place when they have run.
Files that cannot be served take nobody's place: the reason is told, and the next change is tried again. Requests end
with the model they began with.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from app.memory.machine import collect, freeze_heap_when_due
from app.models.folder.identity import Identity, identify
from app.models.folder.repository import FoundModel, ModelFiles, read_model
from app.models.keeping.discovery import Discovery
from app.models.keeping.store import Store
from app.models.keeping.version import Entry, State, Version

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watched:
    """What is known of a version's files.

    Args:
        tried: those that were loaded last, whether they are served or not.
        last: those of the last look.
        update: what is being loaded from them, with the config and the labels it goes with.
    """

    tried: Identity
    last: Identity
    update: tuple[Version, ModelFiles] | None = None


class Watcher:
    """Looks at a store's files in a thread of its own.

    Args:
        discovery: looks which models there are.
        interval_s: seconds from one look to the next; 0 for never.
    """

    def __init__(self, store: Store, discovery: Discovery, interval_s: float) -> None:
        self._store = store
        self._discovery = discovery
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._watched: dict[tuple[str, int], _Watched] = {}

    def start(self) -> None:
        """Begin to look."""
        if self._interval_s > 0 and not self._closing.is_set():
            threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def look(self) -> None:
        """Look once at the files of all models, and at which models there are."""
        for entry in self._store.entries:
            for version in entry.versions if entry.is_read else ():
                with self._store.runtime_settings:
                    is_ours = self._is_ours(entry) and version in entry.versions
                    if is_ours and not self._closing.is_set():
                        self._look_at(entry, version)
        if not self._closing.is_set():
            self._look_around()

    def _is_ours(self, entry: Entry) -> bool:
        """Whether it stands for its model still, and nobody loads that on demand."""
        return entry.name not in self._store.claimed and self._store.find(entry.name) is entry

    def settle(self, name: str, found: FoundModel | None) -> None:
        """What is there now of a model was loaded, or unloaded, on demand: nothing happens until that changes."""
        self._watched = {key: watched for key, watched in self._watched.items() if key[0] != name}
        self._discovery.settle(name, found)

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
            except Exception:  # a fault of ours must not end the watch
                log.exception("looking at the store's files")

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
        """Have the files that are there now loaded."""
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
        """Serve what was loaded, if it has come to an end and can be served."""
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
        entry.settle_tags()
        del version, update
        # Graphs refer to themselves: without this the old weights stay until somebody happens to collect them.
        collect()


def _served(store: Store) -> set[tuple[str, int]]:
    return {(entry.name, version.number) for entry in store.entries for version in entry.versions}
