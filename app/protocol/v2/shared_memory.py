"""Shared-memory regions that clients register, so that tensors need not be sent.

A region is a part of a file in /dev/shm. Its owner may truncate the file at any time, and the system kills a process
that touches mapped memory beyond the end. So nothing is mapped: bytes are copied by read and write calls, which can
fail. A client that writes during a read gets a mixture of old and new bytes.
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
    """Open file and the registered part of it; closed when it is no longer used."""

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
        """Return where in the file a slice begins.

        Raises:
            RefusedError: the slice is not within the region.
        """
        if region_slice.offset + region_slice.size > self.size:
            raise RefusedError(
                f"{where}: Invalid offset + byte size for shared memory region '{cut(self.name)}': found"
                f" {region_slice.offset} + {region_slice.size}, expected at most {self.size}"
            )
        return self.offset + region_slice.offset


class MemoryRegions:
    """Registered regions; thread-safe.

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
                raise RefusedError(f"{where}: found {_MAX_REGIONS} registered regions, expected fewer")
            self._regions[name] = region

    def unregister(self, name: str | None = None) -> None:
        """Forget a region, or all; requests that use one are completed."""
        with self._lock:
            if name is None:
                self._regions.clear()
            else:
                self._regions.pop(name, None)

    def show(self, name: str | None = None) -> Sequence[dict[str, Any]]:
        """Return a description of one region, or of all.

        Raises:
            NotFoundError: no region has this name.
        """
        with self._lock:
            if name is None:
                return [region.show() for region in self._regions.values()]
            if name not in self._regions:
                raise NotFoundError(f"no shared memory region '{cut(name)}' is registered")
            return [self._regions[name].show()]

    def check(self, region_slice: RegionSlice, where: str) -> None:
        """Check that a slice exists.

        Raises:
            RefusedError: it does not.
        """
        self._find(region_slice, where)

    def read(self, region_slice: RegionSlice, where: str) -> memoryview:
        """Return a copy of the bytes of a slice.

        Raises:
            RefusedError: the slice does not exist, or no longer.
            RequestTooLargeError, QueueFullError: not enough memory for the copy.
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
                    f"{where}: '{region.key}' was truncated: it ends {region_slice.size - done} bytes too early"
                )
            done += count
        return data

    def write(self, region_slice: RegionSlice, data: bytes | memoryview, where: str) -> None:
        """Write bytes at the start of a slice.

        Raises:
            RefusedError: the slice does not exist, or no longer, or is too small.
        """
        if len(data) > region_slice.size:
            raise RefusedError(
                f"shared memory size specified with the request for {where} ({region_slice.size} bytes) should be"
                f" at least {len(data)} bytes to hold the results"
            )
        region, start = self._find(region_slice, where)
        rest = memoryview(data)
        try:
            if os.fstat(region.file).st_size < start + len(rest):  # the file must not be extended
                raise RefusedError(f"{where}: '{region.key}' was truncated")
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
    """Return the registry of regions, or None if shared memory is disabled.

    Raises:
        SettingsError: there are several workers, each of which would know its own regions only.
    """
    if not settings.shared_memory:
        return None
    if settings.workers > 1:
        raise SettingsError(f"shared_memory: found {settings.workers} workers, expected 1: regions are not shared")
    return MemoryRegions()


def _check_file(file: int, where: str) -> int:
    """Return the length of a file that may be used.

    Raises:
        RefusedError: it is not a regular file, or belongs to another user.
    """
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise RefusedError(f"{where}: found a file of another user, expected shared memory of the server's user")
    return found.st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSlice:
    """Part of a shared-memory region."""

    region: str
    size: int
    offset: int


def read_slice(parameters: Mapping[str, Any], where: str) -> RegionSlice | None:
    """Return the slice that parameters name, or None.

    Raises:
        RefusedError: the parameters are invalid.
    """
    if REGION not in parameters:
        return None
    region = parameters[REGION]
    if not isinstance(region, str) or not region:
        raise RefusedError(f"{where}: Unable to parse '{REGION}': found {brief(region)}, expected a name")
    size = read_bytes(parameters, _SIZE, where)
    if size is None:
        raise RefusedError(f"{where}: found '{REGION}' without '{_SIZE}', expected both")
    return RegionSlice(region=region, size=size, offset=read_bytes(parameters, _OFFSET, where) or 0)


def read_bytes(parameters: Mapping[str, Any], key: str, where: str) -> int | None:
    """Return a number of bytes, or None if it is not given.

    Raises:
        RefusedError: the value is not a whole number.
    """
    value = parameters.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < 2**63):
        raise RefusedError(f"{where}: Unable to parse '{key}': found {brief(value)}, expected a whole number")
    return value
