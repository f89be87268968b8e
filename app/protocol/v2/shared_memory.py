"""Memory that clients share with the server by name: tensors that need not travel.

A region is a part of a file in /dev/shm. It belongs to whoever made it, who may cut it off at any time: a process that
has it mapped is ended by the system when it touches what is gone. So nothing is mapped: bytes are read into memory of
our own, and written, by calls that can fail. What a client writes meanwhile is read as it is then.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.errors import NotFoundError, RefusedError
from app.memory.reservation import charge
from app.messages import brief, cut
from app.settings import Settings, SettingsError

_FOLDER: Final = Path("/dev/shm")
_KEY: Final = re.compile(r"/?([A-Za-z0-9_-][A-Za-z0-9._-]{0,254})")
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_REGIONS: Final = 256

DISABLED: Final = "shared memory is not enabled on this server"
REGION: Final = "shared_memory_region"
_SIZE: Final = "shared_memory_byte_size"
_OFFSET: Final = "shared_memory_offset"


class _Region:
    """An open file and the part of it that is meant; closed when nobody uses it any more."""

    def __init__(self, name: str, key: str, offset: int, size: int, file: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.size = size
        self.file = file
        weakref.finalize(self, os.close, file)

    def show(self) -> dict[str, Any]:
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.size}

    def start(self, region_slice: RegionSlice, where: str) -> int:
        """Where in the file a region_slice begins.

        Raises:
            RefusedError: it is not within the region.
        """
        if region_slice.offset + region_slice.size > self.size:
            raise RefusedError(
                f"{where}: Invalid offset + byte size for shared memory region '{cut(self.name)}': found"
                f" {region_slice.offset} + {region_slice.size}, expected at most {self.size}"
            )
        return self.offset + region_slice.offset


class MemoryRegions:
    """Those that are registered; many threads may use them at once.

    Args:
        folder: where the system keeps shared memory.
    """

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._folder = folder
        self._regions: dict[str, _Region] = {}
        self._lock = threading.Lock()

    def register(self, name: str, wanted: Mapping[str, Any]) -> None:
        """Open ``{"key", "offset"?, "byte_size"}`` under a name.

        Raises:
            RefusedError: the name is taken, or there is no such memory of this user.
        """
        where = f"failed to register shared memory region '{cut(name)}'"
        key, offset = wanted.get("key"), read_bytes(wanted, "offset", where) or 0
        size = read_bytes(wanted, "byte_size", where)
        found = _KEY.fullmatch(key) if isinstance(key, str) else None
        if found is None or not isinstance(key, str):
            raise RefusedError(f"{where}: key: found {brief(key)}, expected the name of shared memory, such as /input")
        if not size:
            raise RefusedError(f"{where}: byte_size: found {brief(size)}, expected a whole number from 1 on")
        region = _Region(name, key, offset, size, self._open(found[1], where))
        length = _check_file(region.file, where)
        if offset + size > length:
            raise RefusedError(f"{where}: found {length} bytes in '{key}', expected at least {offset + size}")
        with self._lock:
            if name in self._regions:
                raise RefusedError(f"shared memory region '{cut(name)}' already in manager")
            if len(self._regions) >= _MAX_REGIONS:
                raise RefusedError(f"{where}: there are {_MAX_REGIONS} already, expected no more")
            self._regions[name] = region

    def unregister(self, name: str | None = None) -> None:
        """Forget a region, or all of them; requests that use one go on."""
        with self._lock:
            if name is None:
                self._regions.clear()
            else:
                self._regions.pop(name, None)

    def show(self, name: str | None = None) -> Sequence[dict[str, Any]]:
        """One region, or all.

        Raises:
            NotFoundError: there is none of this name.
        """
        with self._lock:
            if name is None:
                return [region.show() for region in self._regions.values()]
            if name not in self._regions:
                raise NotFoundError(f"no shared memory region '{cut(name)}' is registered")
            return [self._regions[name].show()]

    def check(self, region_slice: RegionSlice, where: str) -> None:
        """Look whether there is such a region_slice.

        Raises:
            RefusedError: there is not.
        """
        self._find(region_slice, where)

    def read(self, region_slice: RegionSlice, where: str) -> memoryview:
        """What lies there now.

        Raises:
            RefusedError: there is no such region_slice, or no longer.
            RequestTooLargeError, QueueFullError: not enough memory for it.
        """
        region, start = self._find(region_slice, where)
        charge(region_slice.size)
        data, done = memoryview(bytearray(region_slice.size)), 0
        while done < region_slice.size:
            try:
                count = os.preadv(region.file, [data[done:]], start + done)
            except OSError as exc:
                raise RefusedError(f"{where}: reading '{region.key}' failed: {exc.strerror}") from None
            if not count:
                raise RefusedError(
                    f"{where}: '{region.key}' has become shorter: it ends {region_slice.size - done} bytes early"
                )
            done += count
        return data

    def write(self, region_slice: RegionSlice, data: bytes | memoryview, where: str) -> None:
        """Put bytes there, those behind them untouched.

        Raises:
            RefusedError: there is no such region_slice, or no longer, or it is too small.
        """
        if len(data) > region_slice.size:
            raise RefusedError(
                f"shared memory size specified with the request for {where} ({region_slice.size} bytes) should be"
                f" at least {len(data)} bytes to hold the results"
            )
        region, start = self._find(region_slice, where)
        rest = memoryview(data)
        try:
            if os.fstat(region.file).st_size < start + len(rest):  # never made longer by us
                raise RefusedError(f"{where}: '{region.key}' has become shorter")
            while rest:
                count = os.pwrite(region.file, rest, start)
                rest, start = rest[count:], start + count
        except OSError as exc:
            raise RefusedError(f"{where}: writing '{region.key}' failed: {exc.strerror}") from None

    def _find(self, region_slice: RegionSlice, where: str) -> tuple[_Region, int]:
        region = self._regions.get(region_slice.region)
        if region is None:
            raise RefusedError(f"{where}: Unable to find shared memory region: '{cut(region_slice.region)}'")
        return region, region.start(region_slice, where)

    def _open(self, name: str, where: str) -> int:
        try:
            return os.open(self._folder / name, _FLAGS)
        except OSError as exc:
            raise RefusedError(f"{where}: Unable to open shared memory '/{name}': {exc.strerror}") from None


def open_shared_memory(settings: Settings) -> MemoryRegions | None:
    """Where clients may register memory; None where they may not.

    Raises:
        SettingsError: there are several workers, each of which would know its own only.
    """
    if not settings.shared_memory:
        return None
    if settings.workers > 1:
        raise SettingsError(f"shared_memory: found {settings.workers} workers, expected 1: each knows its own regions")
    return MemoryRegions()


def _check_file(file: int, where: str) -> int:
    """How long a file is that may be used.

    Raises:
        RefusedError: it is no plain file, or another user's.
    """
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise RefusedError(f"{where}: it is not memory of the user the server runs as")
    return found.st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSlice:
    """A part of a region of shared memory: an offset, and a number of bytes."""

    region: str
    size: int
    offset: int


def read_slice(parameters: Mapping[str, Any], where: str) -> RegionSlice | None:
    """The region_slice that parameters name; None where they name none.

    Raises:
        RefusedError: it is none.
    """
    if REGION not in parameters:
        return None
    region = parameters[REGION]
    if not isinstance(region, str) or not region:
        raise RefusedError(f"{where}: Unable to parse '{REGION}': found {brief(region)}, expected a name")
    size = read_bytes(parameters, _SIZE, where)
    if size is None:
        raise RefusedError(f"{where}: '{REGION}' needs '{_SIZE}'")
    return RegionSlice(region=region, size=size, offset=read_bytes(parameters, _OFFSET, where) or 0)


def read_bytes(parameters: Mapping[str, Any], key: str, where: str) -> int | None:
    """A number of bytes; None where it is not given.

    Raises:
        RefusedError: it is something else.
    """
    value = parameters.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < 2**63):
        raise RefusedError(f"{where}: Unable to parse '{key}': found {brief(value)}, expected a whole number")
    return value
