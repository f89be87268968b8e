"""Models that are loaded and unloaded because somebody says so, and not because of what lies in the store's folder.

A model is loaded beside what serves of it, and takes its place when all of its versions have run; where one cannot be
served nothing changes, and the reason is told. What is unloaded serves no more at once; what runs or waits on it ends
with its answer. The folder is looked at again only when what lies there has changed since.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Final

from app.errors import ConfigError, ModelLoadError, ModelNotFoundError, ModelNotReadyError
from app.memory.machine import collect
from app.messages import cut, safe_text
from app.models.folder.config import ModelConfig, parse_config
from app.models.folder.identity import Contents, contents_of, mark_of
from app.models.folder.repository import FoundModel, ModelFiles, find_model, find_models, read_model
from app.models.keeping.store import Order, Store, unloaded_entry
from app.models.keeping.version import Entry, State, Version
from app.models.keeping.watch import Watcher
from app.settings import Settings

log = logging.getLogger(__name__)

# How often somebody who waits for a load looks whether the server stops, which ends no load...
_LOOK_S: Final = 0.5
# ... and who waits for the last requests of a model, whether they have ended.
_DRAIN_LOOK_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """How a load has ended.

    Args:
        contents: what was in the model's folder when it began.
        problem: why the model, or one of its versions, is not served as it lies there.
    """

    found: FoundModel
    contents: Contents
    problem: str | None = None

    def is_current(self) -> bool:
        """Whether what lies in the folder is what was loaded."""
        return contents_of(self.found) == self.contents

    def check(self) -> None:
        """
        Raises:
            ModelLoadError: it cannot be served.
        """
        if self.problem is not None:
            raise ModelLoadError(f"failed to load '{self.found.name}': {self.problem}")


class Demand:
    """Does what it is told to. Blocks: each call belongs in a thread, and at most one of a model at a time."""

    def __init__(self, store: Store, watcher: Watcher, settings: Settings) -> None:
        self._store = store
        self._watcher = watcher
        self._settings = settings

    def load(self, name: str, config: str | None = None) -> Loaded:
        """Load a model as it lies in the store now.

        Args:
            config: JSON to take in place of its config.toml.

        Raises:
            ModelNotFoundError: there is no such model in the store.
            ModelNotReadyError: the server is stopping.
            ModelLoadError: the config is none.
        """
        found = find_model(self._settings.store_folder, name, self._settings.model_name)
        if found is None:
            raise ModelNotFoundError(
                f"failed to load '{safe_text(name, 100)}': it is not in the store", found=cut(name)
            )
        override = None if config is None else _override(name, config)
        self._store.is_begun.wait()
        self._store.claimed.add(name)
        try:
            contents = contents_of(found)
            problem = self._load(found, override)
        finally:
            with self._store.runtime_settings:
                self._watcher.settle(name, found)
                self._store.claimed.discard(name)
        # Graphs refer to themselves: without this the old weights stay until somebody happens to collect them.
        collect()
        return Loaded(found=found, contents=contents, problem=problem)

    def unload(self, name: str) -> None:
        """Serve a model no more, and wait until its last request has ended, or its time is up.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        self._store.is_begun.wait()
        with self._store.runtime_settings:
            entry = self._store.entry(name)
            if entry.unloaded is not None:
                return
            gone, lanes = unloaded_entry(entry), [version.lane for version in entry.versions]
            gone.is_draining = True
            self._store.put(gone)
            self._store.tallies.forget(name)
            for version in entry.versions:
                version.forget()
            for lane in lanes:
                lane.retire()
            self._watcher.settle(name, find_model(self._settings.store_folder, name, self._settings.model_name))
        del entry
        log.info("model '%s' is unloaded", name)
        end = time.monotonic() + self._settings.request_timeout_s
        while any(lane.queued or lane.is_busy for lane in lanes) and time.monotonic() < end:
            time.sleep(_DRAIN_LOOK_S)
        gone.is_draining = False
        collect()

    def begin(self, name: str, is_wanted: bool, mark: str, config: str | None) -> None:
        """Begin with what was told to a process before this one."""
        override = None if config is None else _override(name, config)
        self._store.orders[name] = Order(is_wanted, mark, override)

    def mark(self, name: str) -> str:
        """What lies in a model's folder now, in short."""
        found = find_model(self._settings.store_folder, name, self._settings.model_name)
        return "" if found is None else mark_of(found)

    def look(self) -> None:
        """See which models there are to load, where nobody else looks at the folder."""
        try:
            found = find_models(self._settings.store_folder, self._settings.model_name)
        except ConfigError:
            return
        with self._store.runtime_settings:
            for each in found:
                if self._store.find(each.name) is None:
                    files = ModelFiles(name=each.name, folder=each.path, store=each.store)
                    self._store.put(unloaded_entry(Entry(files)))
            there = {each.name for each in found}
            for entry in self._store.entries:
                if entry.unloaded is not None and entry.name not in there:
                    self._store.remove(entry.name)

    def _load(self, found: FoundModel, override: ModelConfig | None) -> str | None:
        """Why it cannot be served; None where it is."""
        files = read_model(found, override)
        entry = self._store.find(found.name)
        serving = _serving(entry)
        if files.problem is not None:
            if serving:
                serving[max(serving)].warn(files.problem)
            else:
                self._begin(entry, Entry(files, is_read=True, is_late=True))
            return files.problem
        made = tuple(self._store.make_version(files, each, serving.get(each.number)) for each in files.versions)
        if not serving:
            self._begin(entry, Entry(files, made, is_read=True, is_late=True))
        log.info("model '%s' is loaded on demand", found.name)
        self._wait_for(files, made)
        return self._settle(files, made, serving)

    def _begin(self, old: Entry | None, new: Entry) -> None:
        """Let another entry stand for a model of which nothing serves."""
        with self._store.runtime_settings:
            for version in () if old is None else old.versions:
                version.lane.retire()
            self._store.put(new)

    def _wait_for(self, files: ModelFiles, made: tuple[Version, ...]) -> None:
        """Have versions loaded; until each has come to an end.

        Raises:
            ModelNotReadyError: the server is stopping.
        """
        ended = threading.Semaphore(0)
        for version in made:
            version.is_update = True  # somebody has just written its files
            self._store.load_version(files, version, ended.release)
        while any(version.state is State.LOADING for version in made):
            ended.acquire(timeout=_LOOK_S)
            if self._store.is_closed:
                raise ModelNotReadyError("the server is stopping", retry_after_s=self._settings.retry_after_s)

    def _settle(self, files: ModelFiles, made: tuple[Version, ...], serving: dict[int, Version]) -> str | None:
        """Serve what was loaded, unless some of it cannot be and something else serves."""
        failed = [version for version in made if version.state is State.FAILED]
        problem = "; ".join(f"version {version.number}: {version.reason}" for version in failed) or None
        if not serving:
            return problem
        with self._store.runtime_settings:
            if problem is None:
                entry = self._store.find(files.name)
                assert entry is not None  # nobody else removes what is claimed
                self._store.exchange(entry, files, made)
                return None
            for version in made:
                if version.number not in serving:
                    version.lane.retire()
            serving[max(serving)].warn(problem)
        return problem


def _serving(entry: Entry | None) -> dict[int, Version]:
    """The versions of a model that answer requests, by number."""
    versions = () if entry is None else entry.versions
    return {version.number: version for version in versions if version.state is State.READY}


def _override(name: str, config: str) -> ModelConfig:
    try:
        return parse_config(config)
    except ConfigError as exc:
        raise ModelLoadError(f"failed to load '{name}': {exc}") from None
