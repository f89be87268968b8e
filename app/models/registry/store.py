"""Served models by name and version.

Models are read and loaded in parallel (loader_pool.py); one that is ready serves while others still load.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import engine
from app.errors import ConfigError, ModelNotFoundError, ModelNotReadyError, VersionNotFoundError
from app.messages import cut, did_you_mean, quoted, safe_text
from app.models.folder.config import ModelConfig
from app.models.folder.identity import identify, mark_of
from app.models.folder.repository import FoundModel, ModelFiles, VersionFiles, failed, find_models, read_model
from app.models.registry.counters import Counters
from app.models.registry.loader_pool import Job, LoaderPool, LoadFailedError, Stop, load_model
from app.models.registry.version import Entry, State, Version
from app.models.servable import Servable
from app.pipelines.config import PipelineConfig
from app.scheduling.scheduler import make_scheduler
from app.settings import Settings

log = logging.getLogger(__name__)

# Memory for loading per byte of a pair: weights as stored, as kernels read them, and temporary copies.
_TIMES: Final = 3
# Number of models loaded in parallel. More would share the same cores and take more memory.
SIDE_BY_SIDE: Final = 4
# Name that stands for all models of the store.
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class EarlierCommand:
    """Earlier command to load or unload a model.

    Args:
        is_wanted: whether it is to be served.
        mark: digest of its folder at that time.
        config: config that replaces that of its folder.
    """

    is_wanted: bool
    mark: str
    config: ModelConfig | None = None


class Store:
    """Served models by name and version.

    Args:
        settings: settings of the server.
        threads: cores that this process may use.
    """

    def __init__(self, settings: Settings, threads: int) -> None:
        self._settings = settings
        self._threads = threads
        self._entries: dict[str, Entry] = {}
        self._loaders = LoaderPool(min(threads, SIDE_BY_SIDE), engine.free_memory_bytes)
        self._lock = threading.Lock()
        # Held while deciding what is served; not needed for loading.
        self.change_lock = threading.RLock()
        # Models being loaded by command, which polling leaves alone.
        self.claimed: set[str] = set()
        # Commands given before this process started, by model.
        self.earlier_commands: dict[str, EarlierCommand] = {}
        self.is_begun = threading.Event()
        self.is_closed = False
        self.is_loaded = False
        self.counters = Counters()
        self.problem: str | None = None

    def load(self) -> None:
        """Scan the folder and load every version of every model. Blocks: call it in a thread."""
        try:
            found = find_models(self._settings.store_folder, self._settings.model_name)
        except ConfigError as exc:
            found, self.problem = [], str(exc)
            log.error("%s", exc)
        wanted = {each.name: each for each in found if self._is_wanted(each)}
        entries = {each.name: Entry(ModelFiles(name=each.name, folder=each.path, store=each.store)) for each in found}
        entries |= {name: _missing(self._settings.store_folder, name) for name in self._missing_names(entries)}
        entries |= {each.name: unloaded_entry(entries[each.name]) for each in found if each.name not in wanted}
        self._entries = dict(sorted(entries.items()))
        for each in wanted.values():
            self._read_soon(each, entries[each.name])
        self.is_begun.set()
        self._loaders.wait()
        self.earlier_commands.clear()
        self.is_loaded = True

    def _is_wanted(self, found: FoundModel) -> bool:
        """Return whether a model is served from the start."""
        settings = self._settings
        if (order := self._earlier_command(found)) is not None:
            return order.is_wanted
        return settings.model_control != "explicit" or ALL in settings.load_model or found.name in settings.load_model

    def _earlier_command(self, found: FoundModel) -> EarlierCommand | None:
        """Return the earlier command for a model, unless its files changed since and polling decides again."""
        order = self.earlier_commands.get(found.name)
        decides = self._settings.model_control == "poll" and self._settings.reload_interval_s > 0
        return None if order is not None and decides and mark_of(found) != order.mark else order

    def _missing_names(self, present: Container[str]) -> list[str]:
        if self._settings.model_control != "explicit":
            return []
        return [name for name in self._settings.load_model if name != ALL and name not in present]

    def load_version(self, files: ModelFiles, version: Version, ended: Callable[[], None] = lambda: None) -> None:
        """Load a version in state LOADING; it becomes READY or FAILED.

        It need not be served yet: it may be a replacement for another version.

        Args:
            files: files of the model.
            version: version to load.
            ended: called at the end; never if the store is closed.
        """

        def load(stop: Stop) -> None:
            self._load(files, version, stop)
            ended()

        def give_up() -> None:
            self._give_up_loading(version)
            ended()

        self._submit(files.name, load, give_up, _loading_bytes(version.files), partial(self._waits, files))

    def make_version(self, files: ModelFiles, version: VersionFiles, previous: Version | None = None) -> Version:
        """Return a version still to be loaded, with scheduler and counters of the one it will replace."""
        identity = identify(files, version)
        if previous is not None:
            return Version(
                files.name, version, previous.scheduler, identity, is_update=True, statistics=previous.statistics
            )
        return Version(files.name, version, make_scheduler(files.name, self._settings, self._threads), identity)

    def add(self, found: FoundModel) -> None:
        """Read and load a model that is new, or that could not be read before."""
        with self._lock:
            is_late = found.name not in self._entries or self._entries[found.name].is_late
            entry = Entry(ModelFiles(name=found.name, folder=found.path, store=found.store), is_late=is_late)
            self._entries = dict(sorted({**self._entries, found.name: entry}.items()))
        self._read_soon(found, entry)

    def put(self, entry: Entry) -> None:
        """Set the entry of a model, replacing any previous one."""
        with self._lock:
            self._entries = dict(sorted({**self._entries, entry.name: entry}.items()))

    def find(self, name: str) -> Entry | None:
        """Return the entry of a model, or None."""
        return self._entries.get(name)

    def exchange(self, entry: Entry, files: ModelFiles, versions: tuple[Version, ...]) -> None:
        """Serve these versions and no others; running and queued requests finish with the old ones."""
        kept = {id(version.scheduler) for version in versions}
        entry.update_tags()
        with self._lock:
            replaced, entry.versions, entry.files = entry.versions, versions, files
            entry.update_tags()
        for version in replaced:
            if version not in versions:
                version.forget()
            if id(version.scheduler) not in kept:
                version.scheduler.retire()

    def remove(self, name: str) -> None:
        """Stop serving a model; running and queued requests finish."""
        with self._lock:
            removed = self._entries[name]
            self._entries = {key: entry for key, entry in self._entries.items() if key != name}
        for version in removed.versions:
            version.forget()
            version.scheduler.retire()

    def close(self) -> None:
        """Stop loading and drop queued jobs."""
        self.is_closed = True
        self._loaders.close()
        for entry in self._entries.values():
            for version in entry.versions:
                version.scheduler.close()

    @property
    def is_loading(self) -> bool:
        """Return whether a thread still loads, or hangs while loading."""
        return self._loaders.is_busy

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return all models by name, including failed ones."""
        return tuple(self._entries.values())

    @property
    def default_name(self) -> str | None:
        """Return the default model: that of the settings, the only one, or the only one marked as default."""
        if self._settings.default_model is not None:
            return self._settings.default_model
        loaded = [entry for entry in self._entries.values() if entry.unloaded is None]
        candidates = [entry.name for entry in loaded if len(loaded) == 1 or entry.files.config.default]
        return candidates[0] if len(candidates) == 1 else None

    def entry(self, name: str | None) -> Entry:
        """Return a model by name, or the default one.

        Raises:
            ModelNotFoundError: the message lists the known names.
            ModelNotReadyError: the store is still being read.
        """
        wanted = self.default_name if name is None else name
        if wanted in self._entries:
            return self._entries[wanted]
        may_come = any(not entry.is_read for entry in self._entries.values()) if name is None else not self._entries
        if may_come and not self.is_loaded:
            raise ModelNotReadyError("the models are loading")
        names = list(self._entries)
        if wanted is None:
            raise ModelNotFoundError(
                f"the request names no model: expected ?model= one of {quoted(names)}", known=names
            )
        hint = did_you_mean(wanted, names)
        raise ModelNotFoundError(
            f"no model '{cut(wanted)}'{hint}: the store has {quoted(names)}", found=wanted, known=names
        )

    def version(self, name: str | None, number: int | str | None = None) -> Version:
        """Return a ready version by number or tag, by default the highest one.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the message lists what there is.
            ModelNotReadyError: it is loading or failed; the message has the reason.
        """
        entry = self.entry(name)
        if entry.unloaded is not None:
            raise ModelNotFoundError(f"model '{entry.name}' is not loaded", found=entry.name)
        if entry.files.problem is not None:
            raise ModelNotReadyError(f"model '{entry.name}' failed to load: {entry.files.problem}{_check(entry)}")
        if not entry.is_read:
            raise ModelNotReadyError(f"model '{entry.name}' is loading")
        if isinstance(number, str):
            number = entry.number_of(number)
        for version in reversed(entry.versions):
            if version.state is State.READY and number in (None, version.number):
                return version
        known = [version.number for version in entry.versions]
        if number is not None and number not in known:
            raise VersionNotFoundError(
                f"model '{entry.name}' has no version {number}: it serves {', '.join(map(str, known))}",
                found=number,
                known=known,
            )
        wanted = [version for version in entry.versions if number in (None, version.number)]
        if any(version.state is State.LOADING for version in wanted):
            raise ModelNotReadyError(f"model '{entry.name}' is loading")
        raise ModelNotReadyError(f"model '{entry.name}' failed to load: {entry.reason}{_check(entry)}")

    def part(self, name: str, number: int | str | None = None) -> Servable:
        """Return the model of a version, for the steps of a pipeline; see ``version``."""
        model = self.version(name, number).model
        assert model is not None  # version() returns ready versions only
        return model

    def pipeline(self, name: str) -> PipelineConfig | None:
        """Return the file of a pipeline; None for other models and unknown names."""
        entry = self._entries.get(name)
        return None if entry is None else entry.files.pipeline

    def _submit(
        self,
        name: str,
        work: Callable[[Stop], None],
        gave_up: Callable[[], None],
        needs_bytes: int = 0,
        is_early: Callable[[], bool] = lambda: False,
    ) -> None:
        stop = Stop(self._settings.load_timeout_s)
        self._loaders.submit(Job(name, work, gave_up, stop, needs_bytes=needs_bytes, is_early=is_early))

    def _waits(self, files: ModelFiles) -> bool:
        """Return whether models of a pipeline's steps are still loading, except pipelines that contain this one."""
        names = () if files.pipeline is None else files.pipeline.models
        entries = [self._entries.get(name) for name in names]
        loading = [entry.name for entry in entries if entry is not None and entry.state is State.LOADING]
        return any(not self._contains(name, files.name, {files.name}) for name in loading)

    def _contains(self, name: str, wanted: str, seen: set[str]) -> bool:
        """Return whether a pipeline is, or contains, another; ``seen`` are those not to look into again."""
        if name == wanted:
            return True
        pipeline = self.pipeline(name)
        if pipeline is None or name in seen:
            return False
        seen.add(name)
        return any(self._contains(part, wanted, seen) for part in pipeline.models)

    def _read_soon(self, found: FoundModel, entry: Entry) -> None:
        self._submit(found.name, partial(self._read, found, entry), partial(self._give_up_reading, found, entry))

    def _read(self, found: FoundModel, entry: Entry, stop: Stop) -> None:
        """Read a model's folder and load its versions."""
        order = self._earlier_command(found)
        files = read_model(found, None if order is None else order.config)
        if not stop.is_cancelled() and self._entries.get(found.name) is entry:  # else it was unloaded meanwhile
            self._show(files, entry)
            for version in entry.versions:
                self.load_version(files, version)

    def _show(self, files: ModelFiles, entry: Entry) -> None:
        """Publish what was read of a model."""
        if files.problem is not None:
            log.error("model '%s' failed to load: %s", files.name, files.problem)
        entry.files = files
        entry.versions = tuple(self.make_version(files, version) for version in files.versions)
        entry.is_read = True

    def _give_up_reading(self, found: FoundModel, entry: Entry) -> None:
        self._show(failed(found, f"its folder could not be read {self._too_long}"), entry)

    def _load(self, files: ModelFiles, version: Version, stop: Stop) -> None:
        start = time.perf_counter()
        try:
            model = load_model(
                files, version.files, self._settings, self._threads, stop, parts=self, verify=version.is_update
            )
        except LoadFailedError as exc:
            version.fail(f"not loaded {self._too_long}" if stop.is_cancelled() else str(exc))
        else:
            version.serve(model, time.perf_counter() - start)
            if version.model is model:
                model.tune_batching()

    def _give_up_loading(self, version: Version) -> None:
        version.fail(f"not loaded {self._too_long}")

    @property
    def _too_long(self) -> str:
        return f"within {self._settings.load_timeout_s:g} seconds (load_timeout_s)"


def unloaded_entry(entry: Entry) -> Entry:
    """Return the entry of a model while it is not served."""
    numbers = tuple(version.number for version in entry.versions)
    files = replace(entry.files, problem=None, versions=())
    return Entry(files, is_read=True, is_late=True, unloaded=numbers)


def _missing(store: Path, name: str) -> Entry:
    """Return the entry of a model that the settings name but the store lacks."""
    files = ModelFiles(name=safe_text(name), folder=store, problem="it is not in the store")
    return Entry(files, is_read=True)


def _loading_bytes(files: VersionFiles) -> int:
    """Return the estimated memory for loading a version; 0 if its files cannot be read."""
    total = 0
    for path in (files.param, files.bin):
        with suppress(OSError, ValueError):
            total += os.stat(path).st_size
    if files.bundle is not None:
        with suppress(OSError):
            total = max(total, sum(path.stat().st_size for path in files.bundle.iterdir()))
    return _TIMES * total


def _check(entry: Entry) -> str:
    """Return what to do about a failed model."""
    return f"; 'pnnx-serve check {entry.name}' lists every problem"
