"""The models that are served: loaded once, each version in one of three states.

LOADING -> READY   the graph is built, the config fits it, and it ran once
LOADING -> FAILED  anything else; the reason is kept, the other models go on
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from dataclasses import dataclass, field

import engine
from app.errors import ConfigError, ModelNotFoundError, ModelNotReadyError, VersionNotFoundError
from app.lane import Lane
from app.model import Model
from app.progress import compiling
from app.repository import ModelFiles, VersionFiles, scan
from app.settings import Settings
from app.statistics import Statistics
from app.wording import cut, did_you_mean, quoted

log = logging.getLogger(__name__)


class State(enum.StrEnum):
    """How far a version has come."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Version:
    """One version of a model; model is there exactly when the state is READY."""

    name: str
    files: VersionFiles
    lane: Lane
    state: State = State.LOADING
    reason: str | None = None
    model: Model | None = None
    load_s: float = 0.0
    statistics: Statistics = field(default_factory=Statistics)

    @property
    def number(self) -> int:
        """The version's number."""
        return self.files.number

    def fail(self, reason: str) -> None:
        """Give up on it."""
        self.state, self.reason = State.FAILED, reason
        log.error("model '%s' version %d failed to load: %s", self.name, self.number, reason)


@dataclass(slots=True, eq=False)
class Entry:
    """A model of the store and the versions that are to be served."""

    files: ModelFiles
    versions: tuple[Version, ...]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.files.name

    @property
    def state(self) -> State:
        """The worst of its versions'."""
        states = {version.state for version in self.versions}
        if self.files.problem is not None or State.FAILED in states:
            return State.FAILED
        return State.LOADING if State.LOADING in states else State.READY

    @property
    def reason(self) -> str | None:
        """Why it failed."""
        if self.files.problem is not None:
            return self.files.problem
        failed = [version for version in self.versions if version.state is State.FAILED]
        return "; ".join(f"version {version.number}: {version.reason}" for version in failed) or None


class Store:
    """Finds models by name and version.

    Args:
        settings: where the models are and how many may run at once.
        threads: cores this process may use.
    """

    def __init__(self, settings: Settings, threads: int) -> None:
        self._settings = settings
        self._threads = threads
        self._entries: dict[str, Entry] = {}
        self._closing = threading.Event()
        self.is_loaded = False
        self.problem: str | None = None

    def load(self) -> None:
        """Scan the folder and load every version, one after the other. Blocks: belongs in a thread."""
        try:
            found = scan(self._settings.store)
        except ConfigError as exc:
            found, self.problem = [], str(exc)
            log.error("%s", exc)
        self._entries = {files.name: self._entry(files) for files in found}
        for entry in self._entries.values():
            if entry.files.problem is not None:
                log.error("model '%s' failed to load: %s", entry.name, entry.files.problem)
            for version in entry.versions:
                if not self._closing.is_set():
                    self._load(entry.files, version)
        self.is_loaded = True

    def close(self) -> None:
        """Stop loading and drop what waits."""
        self._closing.set()
        for entry in self._entries.values():
            for version in entry.versions:
                version.lane.close()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All models by name, the failed ones as well."""
        return tuple(self._entries.values())

    @property
    def default_name(self) -> str | None:
        """The model for requests that name none: the setting's, the only one, or the only one that says it is."""
        if self._settings.default_model is not None:
            return self._settings.default_model
        marked = [name for name, entry in self._entries.items() if entry.files.config.default]
        candidates = list(self._entries) if len(self._entries) == 1 else marked
        return candidates[0] if len(candidates) == 1 else None

    def entry(self, name: str | None) -> Entry:
        """A model by name, the default one for None.

        Raises:
            ModelNotFoundError: listing the names there are.
            ModelNotReadyError: the store is still being read.
        """
        wanted = self.default_name if name is None else name
        if wanted in self._entries:
            return self._entries[wanted]
        if not self.is_loaded and not self._entries:
            raise self._not_ready("the models are loading")
        names = list(self._entries)
        if wanted is None:
            raise ModelNotFoundError(
                f"the request names no model: expected ?model= one of {quoted(names)}", known=names
            )
        hint = did_you_mean(wanted, names)
        raise ModelNotFoundError(
            f"no model '{cut(wanted)}'{hint}: the store has {quoted(names)}", found=wanted, known=names
        )

    def version(self, name: str | None, number: int | None = None) -> Version:
        """A version that is ready; without a number the highest one.

        Raises:
            ModelNotFoundError, VersionNotFoundError: listing what there is.
            ModelNotReadyError: loading or failed, with the reason.
        """
        entry = self.entry(name)
        if entry.files.problem is not None:
            raise self._not_ready(f"model '{entry.name}' failed to load: {entry.files.problem}")
        known = [version.number for version in entry.versions]
        if number is not None and number not in known:
            raise VersionNotFoundError(
                f"model '{entry.name}' has no version {number}: it serves {', '.join(map(str, known))}",
                found=number,
                known=known,
            )
        wanted = [version for version in entry.versions if number in (None, version.number)]
        ready = [version for version in wanted if version.state is State.READY]
        if ready:
            return ready[-1]
        if any(version.state is State.LOADING for version in wanted):
            raise self._not_ready(f"model '{entry.name}' is loading")
        raise self._not_ready(f"model '{entry.name}' failed to load: {entry.reason}")

    def _not_ready(self, message: str) -> ModelNotReadyError:
        return ModelNotReadyError(message, retry_after_s=self._settings.retry_after_s)

    def _entry(self, files: ModelFiles) -> Entry:
        limits = {
            "threads": self._settings.max_in_flight or self._threads,
            "queue": self._settings.max_queue,
            "retry_after_s": self._settings.retry_after_s,
        }
        versions = [Version(files.name, version, Lane(files.name, **limits)) for version in files.versions]
        return Entry(files, tuple(versions))

    def _load(self, files: ModelFiles, version: Version) -> None:
        start = time.perf_counter()
        try:
            strict = files.config.is_strict(self._settings.strict)
            graph = engine.load(version.files.param, version.files.bin, strict=strict)
            for warning in graph.warnings:
                log.warning("model '%s' version %d: %s", files.name, version.number, warning)
            model = Model(files.name, graph, files.config, files.labels, threads=self._threads, settings=self._settings)
            if self._settings.warmup:
                with compiling(files.name) as progress:
                    model.warm_up(progress)
        except (engine.EngineError, ConfigError) as exc:
            version.fail(str(exc))
        except Exception:  # a fault of ours must not take the other models down
            log.exception("model '%s' version %d", files.name, version.number)
            version.fail("internal error while loading; the server's log says more")
        else:
            version.load_s = time.perf_counter() - start
            version.model, version.state = model, State.READY
            log.info("model '%s' version %d is ready after %.0f ms", files.name, version.number, version.load_s * 1e3)
