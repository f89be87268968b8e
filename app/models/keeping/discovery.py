"""Models and versions that come and go while they are served.

The store's folder is looked at again and again. What is new there, and has not changed from one look to the next, is
loaded beside what serves, and serves once it has run; then those it takes the place of serve no more. What is gone
serves no more either, but a folder that cannot be read, or is all of a sudden empty, says nothing of what was in it.
Requests end with the model they began with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from app.errors import ConfigError
from app.models.folder.identity import Contents, contents_of
from app.models.folder.repository import FoundModel, ModelFiles, find_models, read_model
from app.models.keeping.store import Store
from app.models.keeping.version import Entry, State, Version

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """What is known of a model's folder.

    Args:
        last: what was in it at the last look.
        tried: what was in it when it was last acted upon.
        coming: versions that are being loaded, and what they go with.
        told: a version that serves, and says why others do not.
    """

    last: Contents | None = None
    tried: Contents | None = None
    coming: tuple[ModelFiles, tuple[Version, ...]] | None = None
    told: Version | None = None


class Discovery:
    """Keeps the models of a store those of its folder.

    Args:
        only: the folder is one model by itself, and is called so.
    """

    def __init__(self, store: Store, folder: Path, only: str | None = None) -> None:
        self._store = store
        self._folder = folder
        self._only = only
        self._known: dict[str, _Known] = {}

    def look(self) -> None:
        """Look once."""
        try:
            found = {each.name: each for each in find_models(self._folder, self._only)}
        except ConfigError:
            return
        names = {entry.name for entry in self._store.entries}
        if not found and names:
            return
        for name, each in found.items():
            with self._store.runtime_settings:
                if name not in self._store.claimed:
                    self._look_at(each, self._store.find(name))
        for name in names - found.keys():
            with self._store.runtime_settings:
                if name not in self._store.claimed and self._store.find(name) is not None:
                    log.info("model '%s' is gone", name)
                    self._store.remove(name)
        self._known = {name: known for name, known in self._known.items() if name in found}

    def settle(self, name: str, found: FoundModel | None) -> None:
        """What is there now of a model was acted upon by somebody else."""
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
            known.tried = contents  # what the server began with
        elif is_at_rest and contents != known.tried and known.coming is None:
            known.tried = contents
            self._act(found, entry, known)

    def _act(self, found: FoundModel, entry: Entry | None, known: _Known) -> None:
        """Something is there that was not, or is no longer."""
        if entry is None or entry.files.problem is not None or entry.unloaded is not None:
            log.info("model '%s': its files are there", found.name)
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
            log.info("model '%s' version %d: its files are there", version.name, version.number)
            self._store.load_version(files, version)
        self._finish(entry, known)

    def _finish(self, entry: Entry, known: _Known) -> None:
        """Serve what was loaded, if all of it has come to an end and can be served."""
        assert known.coming is not None
        files, made = known.coming
        if any(version.state is State.LOADING for version in made):
            return
        known.coming = None
        failed = [version for version in made if version.state is State.FAILED]
        for version in failed:
            version.lane.retire()
        if failed and entry.versions:
            known.told = entry.versions[-1]
            known.told.warn("; ".join(f"version {each.number}: {each.reason}" for each in failed))
            return
        if known.told is not None:
            known.told.reason, known.told = None, None
        self._store.replace(entry, files, made)
