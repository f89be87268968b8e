"""Recorder of the last requests of a version, whose inputs ``pnnx-serve quantize --recorded`` takes as samples.

Off unless the setting ``record_requests`` says how many requests to keep. A file holds the inputs of the network, after
preprocessing, and nothing else of the request. Only the owner of the process can read it.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import zipfile
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.location import stores_folder
from app.models.request import Prepared
from app.settings import Settings

log = logging.getLogger(__name__)

SUFFIX: Final = ".npz"
# Requests that wait to be written, and their bytes; beyond, requests are not recorded.
_WAITING: Final = 16
_WAITING_BYTES: Final = 32 << 20

_NUMBERS: Final = "biufc"

Arrays = Mapping[str, NDArray[Any]]


class Recorder:
    """Files of the last requests, written by a thread that lives while there are some to write.

    Several processes may record to one folder.

    Args:
        folder: of the version; made when the first request is written.
        requests: most files in it.
        max_bytes: most bytes of all of them.
    """

    def __init__(self, folder: Path, requests: int, max_bytes: int) -> None:
        self._folder = folder
        self._requests = requests
        self._max_bytes = max_bytes
        self._waiting: deque[Arrays] = deque()
        self._waiting_bytes = 0
        self._is_writing = False
        self._has_failed = False
        self._lock = threading.Lock()

    def add(self, prepared: Prepared) -> None:
        """Record the runs of a request, unless requests come faster than they can be written."""
        for run in (prepared, *prepared.rest):
            self._add(run.tensors)

    def _add(self, tensors: Arrays) -> None:
        size = sum(array.nbytes for array in tensors.values())
        if any(array.dtype.kind not in _NUMBERS for array in tensors.values()):
            return
        with self._lock:
            is_full = len(self._waiting) >= _WAITING or self._waiting_bytes + size > _WAITING_BYTES
            if is_full or self._has_failed or size > self._max_bytes:
                return
            # Arrays may lie in the request's body, or in memory that the client shares and writes again.
            self._waiting.append({name: np.array(array) for name, array in tensors.items()})
            self._waiting_bytes += size
            if not self._is_writing:
                self._is_writing = True
                threading.Thread(target=self._write_all, name="recorder", daemon=True).start()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_writing = False
                    return
                tensors = self._waiting.popleft()
                self._waiting_bytes -= sum(array.nbytes for array in tensors.values())
            try:
                _write(self._folder, tensors)
                self._evict()
            except OSError as exc:
                log.warning("requests are no longer recorded: %s", exc)
                with self._lock:
                    self._has_failed, self._is_writing = True, False
                    self._waiting.clear()
                return

    def _evict(self) -> None:
        """Remove the oldest files beyond the limits."""
        left, number = self._max_bytes, 0
        for path, size in _sizes(reversed(recorded_files(self._folder))):
            number, left = number + 1, left - size
            if number > self._requests or left < 0:
                path.unlink(missing_ok=True)


def open_recorder(settings: Settings, name: str, version: int) -> Recorder | None:
    """Return the recorder of a version, None if the settings ask for none."""
    if not settings.record_requests:
        return None
    return Recorder(recorded_folder(settings, name, version), settings.record_requests, settings.record_max_bytes)


def recorded_folder(settings: Settings, name: str, version: int) -> Path:
    """Return the folder of a version's recorded requests."""
    root = settings.record_dir or stores_folder(None, settings.cache_dir).with_name("recorded")
    return root / name / str(version)


def recorded_files(folder: Path) -> list[Path]:
    """Return the recorded requests of a version, the oldest first.

    Raises:
        OSError: the folder cannot be read.
    """
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))


_COUNT: Final = itertools.count()


def _write(folder: Path, tensors: Arrays) -> None:
    """Write a file that no other user can read; it gets its name when it is complete."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{time.time_ns():020d}-{os.getpid()}-{next(_COUNT)}{SUFFIX}"
    partial = folder / f".{name}"
    with (
        open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for tensor, values in tensors.items():
            with archive.open(f"{tensor}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
    partial.replace(folder / name)


def _sizes(paths: Iterable[Path]) -> Iterable[tuple[Path, int]]:
    for path in paths:
        try:
            yield path, path.stat().st_size
        except FileNotFoundError:  # another process removed it
            continue
