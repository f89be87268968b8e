"""Loading and unloading of models by request, independent of changes in the store's folder.

A model is loaded beside its serving version and replaces it once all versions ran; if one fails, nothing changes and
the reason is reported. An unloaded model stops serving at once; running and queued requests finish. Polling considers
its folder again only after the contents change.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from app.errors import ConfigError, ModelLoadError, ModelNotFoundError, ModelNotReadyError
from app.memory.machine import collect
from app.messages import cut, safe_text
from app.models.folder.config import ModelConfig, parse_config
from app.models.folder.identity import mark_of
from app.models.folder.repository import FoundModel, ModelFiles, find_model, find_models, read_model
from app.models.registry.store import EarlierCommand, Store, unloaded_entry
from app.models.registry.version import Entry, State, Version
from app.models.registry.watch import Watcher
from app.settings import Settings

log = logging.getLogger(__name__)

# Interval at which a waiting load checks whether the server stops...
_LOOK_S: Final = 0.5
# ... and a waiting unload whether the last requests have ended.
_DRAIN_LOOK_S: Final = 0.01


class ModelCommands:
    """Load and unload commands. They block: call each in a thread, and at most one per model at a time."""

    def __init__(self, store: Store, watcher: Watcher, settings: Settings) -> None:
        self._store = store
        self._watcher = watcher
        self._settings = settings

    def load(self, name: str, config: str | None = None) -> None:
        """Load a model as it is in the store now.

        Args:
            name: name of the model.
            config: JSON that replaces its config.toml.

        Raises:
            ModelNotFoundError: the store has no such model.
            ModelNotReadyError: the server is stopping.
            ModelLoadError: the config is invalid, or the model cannot be served.
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
            problem = self._load(found, override)
        finally:
            with self._store.change_lock:
                self._watcher.mark_handled(name, found)
                self._store.claimed.discard(name)
        # Graphs have reference cycles: without this, old weights stay until the next collection.
        collect()
        if problem is not None:
            raise ModelLoadError(f"failed to load '{found.name}': {problem}")

    def unload(self, name: str) -> None:
        """Stop serving a model, and wait until its last request has ended or timed out.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        self._store.is_begun.wait()
        with self._store.change_lock:
            entry = self._store.entry(name)
            if entry.unloaded is not None:
                return
            unloaded, schedulers = unloaded_entry(entry), [version.scheduler for version in entry.versions]
            unloaded.is_draining = True
            self._store.put(unloaded)
            self._store.counters.forget(name)
            for version in entry.versions:
                version.forget()
            for scheduler in schedulers:
                scheduler.retire()
            self._watcher.mark_handled(name, find_model(self._settings.store_folder, name, self._settings.model_name))
        del entry
        log.info("model '%s' is unloaded", name)
        end = time.monotonic() + self._settings.request_timeout_s
        while any(scheduler.queued or scheduler.is_busy for scheduler in schedulers) and time.monotonic() < end:
            time.sleep(_DRAIN_LOOK_S)
        unloaded.is_draining = False
        collect()

    def begin(self, name: str, is_wanted: bool, mark: str, config: str | None) -> None:
        """Apply a command given to a predecessor of this process."""
        override = None if config is None else _override(name, config)
        self._store.earlier_commands[name] = EarlierCommand(is_wanted, mark, override)

    def mark(self, name: str) -> str:
        """Return a digest of the present contents of a model's folder."""
        found = find_model(self._settings.store_folder, name, self._settings.model_name)
        return "" if found is None else mark_of(found)

    def look(self) -> None:
        """Find the models that could be loaded, when the folder is not polled."""
        try:
            found = find_models(self._settings.store_folder, self._settings.model_name)
        except ConfigError:
            return
        with self._store.change_lock:
            for each in found:
                if self._store.find(each.name) is None:
                    files = ModelFiles(name=each.name, folder=each.path, store=each.store)
                    self._store.put(unloaded_entry(Entry(files)))
            names = {each.name for each in found}
            for entry in self._store.entries:
                if entry.unloaded is not None and entry.name not in names:
                    self._store.remove(entry.name)

    def _load(self, found: FoundModel, override: ModelConfig | None) -> str | None:
        """Return the reason why it cannot be served, or None."""
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
        return self._serve_loaded(files, made, serving)

    def _begin(self, old: Entry | None, new: Entry) -> None:
        """Set the entry of a model of which no version serves."""
        with self._store.change_lock:
            for version in () if old is None else old.versions:
                version.scheduler.retire()
            self._store.put(new)

    def _wait_for(self, files: ModelFiles, made: tuple[Version, ...]) -> None:
        """Load versions and wait for the result.

        Raises:
            ModelNotReadyError: the server is stopping.
        """
        ended = threading.Semaphore(0)
        for version in made:
            version.is_update = True  # its files have just been written
            self._store.load_version(files, version, ended.release)
        while any(version.state is State.LOADING for version in made):
            ended.acquire(timeout=_LOOK_S)
            if self._store.is_closed:
                raise ModelNotReadyError("the server is stopping")

    def _serve_loaded(self, files: ModelFiles, made: tuple[Version, ...], serving: dict[int, Version]) -> str | None:
        """Serve loaded versions, unless one failed while others serve."""
        failed = [version for version in made if version.state is State.FAILED]
        problem = "; ".join(f"version {version.number}: {version.reason}" for version in failed) or None
        if not serving:
            return problem
        with self._store.change_lock:
            if problem is None:
                entry = self._store.find(files.name)
                assert entry is not None  # claimed models are not removed by others
                self._store.exchange(entry, files, made)
                return None
            for version in made:
                if version.number not in serving:
                    version.scheduler.retire()
            serving[max(serving)].warn(problem)
        return problem


def _serving(entry: Entry | None) -> dict[int, Version]:
    """Return the serving versions of a model by number."""
    versions = () if entry is None else entry.versions
    return {version.number: version for version in versions if version.state is State.READY}


def _override(name: str, config: str) -> ModelConfig:
    try:
        return parse_config(config)
    except ConfigError as exc:
        raise ModelLoadError(f"failed to load '{name}': {exc}") from None
