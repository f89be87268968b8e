"""Discovery of models and versions that appear or disappear while the server runs.

The store's folder is polled. New files that did not change between two polls are loaded beside what serves, and replace
it once they ran. Removed models stop serving, but a folder that is unreadable or suddenly empty changes nothing.
Requests finish with the model they started with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from app.errors import ConfigError
from app.models.folder.identity import Contents, contents_of
from app.models.folder.repository import FoundModel, ModelFiles, find_models, read_model
from app.models.registry.store import Store
from app.models.registry.version import Entry, State, Version

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """State of a model's folder.

    Attributes:
        last: contents at the last poll.
        tried: contents when last acted upon.
        coming: versions being loaded, and the files they belong to.
        told: serving version that reports why others do not serve.
    """

    last: Contents | None = None
    tried: Contents | None = None
    coming: tuple[ModelFiles, tuple[Version, ...]] | None = None
    told: Version | None = None


class Discovery:
    """Synchronisation of the served models with the store's folder.

    Args:
        store: served models.
        folder: folder of the store.
        only: name, if the folder is a single model.
    """

    def __init__(self, store: Store, folder: Path, only: str | None = None) -> None:
        self._store = store
        self._folder = folder
        self._only = only
        self._known: dict[str, _Known] = {}

    def look(self) -> None:
        """Poll once."""
        try:
            found = {each.name: each for each in find_models(self._folder, self._only)}
        except ConfigError:
            return
        names = {entry.name for entry in self._store.entries}
        if not found and names:
            return
        for name, each in found.items():
            with self._store.change_lock:
                if name not in self._store.claimed:
                    self._look_at(each, self._store.find(name))
        for name in names - found.keys():
            with self._store.change_lock:
                if name not in self._store.claimed and self._store.find(name) is not None:
                    log.info("model '%s' was removed from the store", name)
                    self._store.remove(name)
        self._known = {name: known for name, known in self._known.items() if name in found}

    def mark_handled(self, name: str, found: FoundModel | None) -> None:
        """Treat the present contents of a model as handled, because a command loaded or unloaded it."""
        self._known.pop(name, None)
        if found is not None:
            contents = contents_of(found)
            self._known[name] = _Known(last=contents, tried=contents)

    def _look_at(self, found: FoundModel, entry: Entry | None) -> None:
        known = self._known.setdefault(found.name, _Known())
        contents = contents_of(found)
        if known.coming is not None and entry is not None:
            self._finish(entry, known)
        is_at_rest, known.last = contents == known.last, contents
        if known.tried is None and entry is not None:
            known.tried = contents  # present since the start
        elif is_at_rest and contents != known.tried and known.coming is None:
            known.tried = contents
            self._act(found, entry, known)

    def _act(self, found: FoundModel, entry: Entry | None, known: _Known) -> None:
        """Handle changed contents of a model's folder."""
        if entry is None or entry.files.problem is not None or entry.unloaded is not None:
            log.info("model '%s': found its files", found.name)
            self._store.add(found)
            return
        files = read_model(found)
        if files.problem is not None:
            if entry.versions:
                entry.versions[-1].warn(files.problem)
            return
        served = {version.number: version for version in entry.versions}
        if served.keys() == {each.number for each in files.versions}:
            return
        made = tuple(self._store.make_version(files, each) for each in files.versions if each.number not in served)
        known.coming = files, made
        for version in made:
            log.info("model '%s' version %d: found its files", version.name, version.number)
            self._store.load_version(files, version)
        self._finish(entry, known)

    def _finish(self, entry: Entry, known: _Known) -> None:
        """Serve loaded versions once all of them have finished loading successfully."""
        assert known.coming is not None
        files, made = known.coming
        if any(version.state is State.LOADING for version in made):
            return
        known.coming = None
        failed = [version for version in made if version.state is State.FAILED]
        for version in failed:
            version.scheduler.retire()
        if failed and entry.versions:
            known.told = entry.versions[-1]
            known.told.warn("; ".join(f"version {each.number}: {each.reason}" for each in failed))
            return
        if known.told is not None:
            known.told.reason, known.told = None, None
        self._store.replace(entry, files, made)
