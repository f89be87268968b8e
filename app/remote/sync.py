"""Polling of a remote store in a background thread."""

from __future__ import annotations

import logging
import threading
from typing import Final

from app.location import Remote, stores_folder
from app.remote.mirror import Mirror
from app.remote.names import SourceError
from app.settings import Settings

log = logging.getLogger(__name__)

# Maximum age of another process's check to be reused; of processes that start together, one fetches.
_RECENT_S: Final = 2.0
# Retry interval while there is nothing to serve; doubled each time, up to the polling interval.
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0


class StoreSync:
    """Synchronisation of the local copy of a store.

    Attributes:
        problem: reason why the last check failed, or None.

    Raises:
        SettingsError: the extra is not installed.
        SourceError: the folder for stores cannot be used.
    """

    def __init__(self, settings: Settings, remote: Remote) -> None:
        folder = stores_folder(settings.store_dir, settings.cache_dir)
        self._remote = remote
        self._interval_s = 0.0 if settings.model_control == "none" else settings.store_poll_s
        self._mirror = Mirror(remote, folder, settings.store_max_bytes)
        self._closing = threading.Event()
        self.problem: str | None = None

    def begin(self) -> None:
        """Wait until there are files to serve or the server stops, then poll in the background."""
        pause_s = _FIRST_S
        while not self._look(_RECENT_S) and not self.has_files:
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_S, max(self._interval_s, _FIRST_S))
        if self._interval_s > 0 and not self._closing.is_set():
            threading.Thread(target=self._watch, name="remote store", daemon=True).start()

    @property
    def has_files(self) -> bool:
        """Return whether a state of the store was fetched before, by any process."""
        return self._mirror.local_copy.index() is not None

    def fetch(self) -> None:
        """Check and fetch once.

        Raises:
            SourceError: the store cannot be read, or is invalid.
        """
        self._mirror.refresh(_RECENT_S)

    def close(self) -> None:
        """Stop polling; a fetch in progress is dropped."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            self._look(self._interval_s / 2)

    def _look(self, max_age_s: float) -> bool:
        """Check once and return whether it succeeded; a repeated problem is logged once."""
        try:
            if self._mirror.refresh(max_age_s, self._closing.is_set):
                log.info("the store %s has changed, and was fetched", self._remote)
        except SourceError as exc:
            self._fail(str(exc))
        except Exception as exc:  # a defect of ours must not end the thread; the error's text may hold secrets
            self._fail(f"internal error while looking at {self._remote} ({type(exc).__name__})")
        else:
            if self.problem is not None:
                log.info("the store %s is readable again", self._remote)
            self.problem = None
        return self.problem is None

    def _fail(self, problem: str) -> None:
        if problem != self.problem and not self._closing.is_set():
            serving = "; the previous state is served" if self.has_files else ""
            log.error("%s%s", problem, serving)
        self.problem = problem
