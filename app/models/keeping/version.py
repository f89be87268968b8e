"""What is served: the versions of a model, each in one of three states.

LOADING -> READY   the graph is built, the config fits it, and it ran once
LOADING -> FAILED  anything else; the reason is kept, the other models go on

A model that nobody wants served at present has no versions: it is UNLOADED.
"""

from __future__ import annotations

import enum
import logging
import threading
from dataclasses import dataclass, field

from app.errors import VersionNotFoundError
from app.messages import cut, safe_text
from app.models.folder.identity import Identity
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.models.statistics import Statistics
from app.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)


class State(enum.StrEnum):
    """How far a version, or a model, has come."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    UNLOADED = "unloaded"


@dataclass(slots=True, eq=False)
class Version:
    """One version of a model; model is there exactly when the state is READY.

    Args:
        identity: of the files, from before they are loaded.
        is_update: whether it is to replace one that is served.
    """

    name: str
    files: VersionFiles
    lane: Scheduler
    identity: Identity
    is_update: bool = False
    state: State = State.LOADING
    reason: str | None = None
    model: Model | None = None
    load_s: float = 0.0
    statistics: Statistics = field(default_factory=Statistics)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def number(self) -> int:
        """The version's number."""
        return self.files.number

    @property
    def remark(self) -> str | None:
        """Return why the warm-up on zeros failed, though the version serves; None where it did not fail."""
        return None if self.model is None or self.model.remark is None else safe_text(self.model.remark)

    def fail(self, reason: str) -> None:
        """Give up on it, unless it has an end already."""
        with self._lock:
            if self.state is not State.LOADING:
                return
            self.state, self.reason = State.FAILED, safe_text(reason)
        log.error("model '%s' version %d failed to load: %s", self.name, self.number, self.reason)

    def forget(self) -> None:
        """Others answer in its place: what it keeps between requests goes at once."""
        if self.model is not None:
            self.model.forget()

    def warn(self, reason: str) -> None:
        """It serves on, though other files are there by now; the reason why those are not served."""
        self.reason = safe_text(f"the files have changed and are not served: {reason}")
        log.error("model '%s' version %d: %s", self.name, self.number, self.reason)

    def serve(self, model: Model, load_s: float) -> None:
        """Answer with this model from now on, unless it was given up."""
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
    """A model of the store and the versions that are to be served; none before its folder is read.

    is_late: whether it came while the server ran; such a one keeps it ready also where it cannot be served.
    unloaded: of a model that is not to be served the numbers of the versions that were; None of one that is.
    is_draining: whether requests still run on those.
    tags: names that requests may give for a version's number, and the versions they stand for now.
    stray: those that do not stand for what the config says, and why.
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
        """The model's name."""
        return self.files.name

    @property
    def state(self) -> State:
        """The worst of its versions'."""
        if self.unloaded is not None:
            return State.UNLOADED
        states = {version.state for version in self.versions}
        if self.files.problem is not None or State.FAILED in states:
            return State.FAILED
        return State.LOADING if not self.is_read or State.LOADING in states else State.READY

    @property
    def reason(self) -> str | None:
        """Why it failed, or why what its files are by now is not served."""
        if self.unloaded is not None:
            return "unloaded" if self.unloaded else "not loaded"
        if self.files.problem is not None:
            return self.files.problem
        told = [version for version in self.versions if version.reason is not None]
        reasons = [f"version {version.number}: {version.reason}" for version in told]
        return "; ".join([*reasons, *self.stray.values()]) or None

    def settle_tags(self) -> None:
        """Let each tag stand for the version that the config names, once that is ready; for the one before until then.

        A version that nobody can ask takes no tag: requests for it would fail.
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
        """The version that a tag stands for.

        Raises:
            VersionNotFoundError: for none.
        """
        self.settle_tags()
        if tag not in self.tags:
            known = ", ".join(f"{name} = {number}" for name, number in self.tags.items()) or "none"
            reason = self.stray.get(tag, f"model '{self.name}' has no tag '{cut(tag)}'")
            raise VersionNotFoundError(f"{reason}; tags: {known}", found=tag, known=list(self.tags))
        return self.tags[tag]
