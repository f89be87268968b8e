"""Versions of models, each in one of three states.

LOADING -> READY   the graph is built, the config fits it, and it ran once
LOADING -> FAILED  anything else; the reason is stored, other models are not affected

A model that is not to be served has no versions and is UNLOADED.
"""

from __future__ import annotations

import enum
import logging
import threading
from dataclasses import dataclass, field

from app.errors import InvalidRequestError, ModelNotReadyError, VersionNotFoundError
from app.messages import cut, safe_text
from app.models.folder.identity import Identity
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.models.servable import Servable
from app.models.statistics import Statistics
from app.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)


class State(enum.StrEnum):
    """State of a version or a model."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    UNLOADED = "unloaded"


@dataclass(slots=True, eq=False)
class Version:
    """Version of a model; ``model`` is set exactly in state READY.

    Attributes:
        identity: identity of its files, taken before loading.
        is_update: whether it is to replace a served version.
    """

    name: str
    files: VersionFiles
    scheduler: Scheduler
    identity: Identity
    is_update: bool = False
    state: State = State.LOADING
    reason: str | None = None
    model: Servable | None = None
    load_s: float = 0.0
    statistics: Statistics = field(default_factory=Statistics)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def number(self) -> int:
        """Return the version's number."""
        return self.files.number

    @property
    def remark(self) -> str | None:
        """Return why the warm-up on zeros failed although the version serves, or None."""
        return None if self.model is None or self.model.remark is None else safe_text(self.model.remark)

    @property
    def network(self) -> Model:
        """Return the model, for operations that need its graph.

        Raises:
            InvalidRequestError: it is a pipeline, which has none.
            ModelNotReadyError: it is not loaded.
        """
        if isinstance(self.model, Model):
            return self.model
        if self.model is None:
            raise ModelNotReadyError(f"model '{self.name}' is not loaded")
        raise InvalidRequestError(
            f"model '{self.name}' is a pipeline, which has no graph of operators: expected the model of a step"
        )

    def fail(self, reason: str) -> None:
        """Set the state to FAILED, unless loading has ended already."""
        with self._lock:
            if self.state is not State.LOADING:
                return
            self.state, self.reason = State.FAILED, safe_text(reason)
        log.error("model '%s' version %d failed to load: %s", self.name, self.number, self.reason)

    def forget(self) -> None:
        """Drop cached outputs, because another version takes over."""
        if self.model is not None:
            self.model.forget()

    def warn(self, reason: str) -> None:
        """Record why changed files are not served; the version keeps serving."""
        self.reason = safe_text(f"the files have changed and are not served: {reason}")
        log.error("model '%s' version %d: %s", self.name, self.number, self.reason)

    def serve(self, model: Servable, load_s: float) -> None:
        """Serve this model from now on, unless loading was abandoned."""
        with self._lock:
            if self.state is not State.LOADING:
                return
            self.model, self.load_s = model, load_s
            self.state = State.READY
        log.info("model '%s' version %d is ready after %.0f ms", self.name, self.number, load_s * 1e3)
        if self.remark is not None:
            log.warning("model '%s' version %d: %s", self.name, self.number, self.remark)


@dataclass(slots=True, eq=False)
class Entry:
    """Model of the store with its versions; none before its folder is read.

    Attributes:
        is_late: whether it appeared while the server ran; such a model does not affect readiness.
        unloaded: version numbers of an unloaded model; None for a served one.
        is_draining: whether requests still run on those.
        tags: version numbers by tag, as served now.
        stray: reasons why tags do not name the version in the config.
    """

    files: ModelFiles
    versions: tuple[Version, ...] = ()
    is_read: bool = False
    is_late: bool = False
    unloaded: tuple[int, ...] | None = None
    is_draining: bool = False
    tags: dict[str, int] = field(default_factory=dict)
    stray: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self.files.name

    @property
    def state(self) -> State:
        """Return the worst state of its versions."""
        if self.unloaded is not None:
            return State.UNLOADED
        states = {version.state for version in self.versions}
        if self.files.problem is not None or State.FAILED in states:
            return State.FAILED
        return State.LOADING if not self.is_read or State.LOADING in states else State.READY

    @property
    def reason(self) -> str | None:
        """Return why it failed, or why its present files are not served."""
        if self.unloaded is not None:
            return "unloaded" if self.unloaded else "not loaded"
        if self.files.problem is not None:
            return self.files.problem
        failed = [version for version in self.versions if version.reason is not None]
        reasons = [f"version {version.number}: {version.reason}" for version in failed]
        return "; ".join([*reasons, *self.stray.values()]) or None

    def update_tags(self) -> None:
        """Point each tag at its configured version once that is ready, at the previous one until then.

        A tag never names a version that cannot answer.
        """
        ready = {version.number for version in self.versions if version.state is State.READY}
        tags, stray = dict[str, int](), dict[str, str]()
        for tag, wanted in self.files.config.tags.items():
            before = self.tags.get(tag)
            if wanted in ready:
                tags[tag] = wanted
            elif self.is_read and not any(version.state is State.LOADING for version in self.versions):
                stands = "nothing" if before not in ready else f"version {before} still"
                stray[tag] = f"tag '{tag}': version {wanted} is not served, it stands for {stands}"
            if wanted not in ready and before is not None and before in ready:
                tags[tag] = before
        for tag in stray.keys() - self.stray.keys():
            log.warning("model '%s': %s", self.name, stray[tag])
        self.tags, self.stray = tags, stray

    def number_of(self, tag: str) -> int:
        """Return the version number of a tag.

        Raises:
            VersionNotFoundError: there is no such tag.
        """
        self.update_tags()
        if tag not in self.tags:
            known = ", ".join(f"{name} = {number}" for name, number in self.tags.items()) or "none"
            reason = self.stray.get(tag, f"model '{self.name}' has no tag '{cut(tag)}'")
            raise VersionNotFoundError(f"{reason}; tags: {known}", found=tag, known=list(self.tags))
        return self.tags[tag]
