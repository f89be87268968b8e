"""Looks at a remote store from time to time, in a thread of its own, as long as the server runs."""

from __future__ import annotations

import logging
import threading
from typing import Final

from app.location import Remote, stores_folder
from app.remote.mirror import Mirror
from app.remote.names import SourceError
from app.settings import Settings

log = logging.getLogger(__name__)

# How old another process' look may be to count as one's own; of those that start side by side one fetches.
_RECENT_S: Final = 2.0
# How long until the next try, while there is nothing to serve; twice as long each time, up to that of a usual look.
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0


class Keeper:
    """Keeps the files of a store current.

    Attributes:
        problem: why the last look found nothing; None where it went well.

    Raises:
        SettingsError: the extra is not installed.
        SourceError: the folder for stores is of no use.
    """

    def __init__(self, settings: Settings, remote: Remote) -> None:
        folder = stores_folder(settings.store_dir, settings.cache_dir)
        self._remote = remote
        self._interval_s = 0.0 if settings.model_control == "none" else settings.store_poll_s
        self._mirror = Mirror(remote, folder, settings.store_max_bytes)
        self._closing = threading.Event()
        self.problem: str | None = None

    def begin(self) -> None:
        """Until there is something to serve, or the server stops. Then looks go on beside it."""
        pause_s = _FIRST_S
        while not self._look(_RECENT_S) and not self.has_files:
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_S, max(self._interval_s, _FIRST_S))
        if self._interval_s > 0 and not self._closing.is_set():
            threading.Thread(target=self._watch, name="remote store", daemon=True).start()

    @property
    def has_files(self) -> bool:
        """Whether a state of the store was fetched before, by whichever process."""
        return self._mirror.shelf.index() is not None

    def fetch(self) -> None:
        """Look once.

        Raises:
            SourceError: it cannot be had, or is not what it should be.
        """
        self._mirror.refresh(_RECENT_S)

    def close(self) -> None:
        """Look no more; what is being fetched is dropped."""
        self._closing.set()

    def _watch(self) -> None:
        while not self._closing.wait(self._interval_s):
            self._look(self._interval_s / 2)

    def _look(self, max_age_s: float) -> bool:
        """Look once; whether that went well. The same problem is told once."""
        try:
            if self._mirror.refresh(max_age_s, self._closing.is_set):
                log.info("the store %s has changed, and was fetched", self._remote)
        except SourceError as exc:
            self._fail(str(exc))
        except Exception as exc:  # a fault of ours must not end the watch; its text may hold what is not to be told
            self._fail(f"internal error while looking at {self._remote} ({type(exc).__name__})")
        else:
            if self.problem is not None:
                log.info("the store %s can be read again", self._remote)
            self.problem = None
        return self.problem is None

    def _fail(self, problem: str) -> None:
        if problem != self.problem and not self._closing.is_set():
            serving = "; what was fetched before serves on" if self.has_files else ""
            log.error("%s%s", problem, serving)
        self.problem = problem
