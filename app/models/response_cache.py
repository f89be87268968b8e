"""What a model has computed, kept by what it was computed from: the same tensors again cost a look-up, and no run.

Between preparing a request and running it: the key is made of the tensors that would be run, and the outputs are kept
as they come from the run, all of them. So it does not matter in which form a tensor came, which outputs are wanted, or
what a task makes of them; and a model that is loaded anew begins with nothing.

The key is a hash with a secret of this process: who does not know it cannot look for two inputs of the same key.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import as_bytes, is_text
from app.errors import ConfigError
from app.memory.budget import CacheAccount
from app.memory.reservation import cache_account
from app.models.folder.config import ResponseCacheConfig

Arrays = Mapping[str, NDArray[Any]]

# What an entry takes beside its elements.
ENTRY_BYTES: Final = 1024
_KEY_BYTES: Final = 16


class Hasher(Protocol):
    """What both kinds of hashes can."""

    def update(self, data: Any, /) -> None:
        """Go on with these bytes."""

    def digest(self) -> bytes:
        """The hash of all there was."""


def find_hash() -> Callable[[], Hasher]:
    """What makes hashes, with a secret of its own: the fast one where the extra ``[fast]`` brings it."""
    try:
        import xxhash
    except ImportError:
        return partial(hashlib.blake2b, digest_size=_KEY_BYTES, key=secrets.token_bytes(32))
    return partial(xxhash.xxh3_128, seed=secrets.randbits(64))


def open_cache(config: ResponseCacheConfig | None, graph: engine.RuntimeGraph) -> ResponseCache | None:
    """The cache that a model's config asks for.

    Raises:
        ConfigError: the model gives other outputs each time, as far as is known.
    """
    if config is None:
        return None
    if not graph.is_repeatable:
        raise ConfigError(
            "response_cache: the model has operators of chance, or from outside, of which nothing is known:"
            " its answers are not repeatable"
        )
    return ResponseCache(config.max_bytes)


# How often who waits for another's run looks whether it still wants what that gives.
_LOOK_S: Final = 0.05


class _Flight:
    """A run that is under way, and what it has given, if it has."""

    def __init__(self) -> None:
        self.outputs: Arrays | None = None
        self._is_over = threading.Event()

    def end(self) -> None:
        """Nothing more comes of it."""
        self._is_over.set()

    def is_seen_to_its_end(self, is_cancelled: Callable[[], bool]) -> bool:
        """Wait for its end, as long as that is wanted."""
        while not self._is_over.wait(_LOOK_S):
            if is_cancelled():
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Entry:
    outputs: Arrays
    size: int


class ResponseCache:
    """The outputs of one model's runs, those used last; many threads may call it at once.

    What it holds counts in the budget of the server's requests, half of which it leaves alone; it gives way to requests
    that need the rest.

    Args:
        max_bytes: of all outputs together, with what keeping them takes.
    """

    def __init__(self, max_bytes: int, hash_of: Callable[[], Hasher] | None = None) -> None:
        self.max_bytes = max_bytes
        self._hash_of = find_hash() if hash_of is None else hash_of
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}
        self._bytes = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._cache_account: CacheAccount | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds now."""
        return self._bytes

    @property
    def entries(self) -> int:
        """How many answers it holds now."""
        return len(self._entries)

    def key(self, tensors: Arrays) -> bytes:
        """What stands for these inputs: their names, dtypes, shapes and bytes."""
        hasher = self._hash_of()
        for name in sorted(tensors):
            array = tensors[name]
            head = repr((name, array.dtype.name, array.shape)).encode()
            hasher.update(len(head).to_bytes(4, "little"))
            hasher.update(head)
            for piece in _pieces(array):
                hasher.update(piece)
        return hasher.digest()

    def get(self, key: bytes) -> Arrays | None:
        """The outputs of a run on what this key stands for, which nobody can write to; None where there are none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.outputs

    def once(
        self, key: bytes, compute: Callable[[], Arrays], is_cancelled: Callable[[], bool] | None
    ) -> tuple[Arrays, bool]:
        """The outputs for a key, and whether somebody else's run has given them: one that ended, or that is under way.

        A run that fails, fails for whom it was begun: of those that wait for it another one begins anew. What is
        computed is kept.

        Args:
            compute: the run.
            is_cancelled: whether the caller wants nothing any more; None for one that must not wait.
        """
        mine = _Flight()
        while True:
            with self._lock:
                if (entry := self._entries.get(key)) is not None:
                    self._entries.move_to_end(key)
                    return entry.outputs, True
                flight = self._flights.setdefault(key, mine)
            if flight is mine:
                return self._fly(key, mine, compute), False
            if is_cancelled is None or not flight.is_seen_to_its_end(is_cancelled):
                return compute(), False
            if flight.outputs is not None:
                return flight.outputs, True

    def _fly(self, key: bytes, flight: _Flight, compute: Callable[[], Arrays]) -> Arrays:
        try:
            outputs = compute()
            self.put(key, outputs)
            flight.outputs = self.get(key) or outputs
            return outputs
        finally:
            with self._lock:
                del self._flights[key]
            flight.end()

    def put(self, key: bytes, outputs: Arrays) -> None:
        """Keep a copy of a run's outputs, as far as there is room."""
        size = ENTRY_BYTES + sum(array.nbytes for array in outputs.values())
        if size > self.max_bytes or key in self._entries:
            return
        self._join()
        entry = _Entry({name: _kept(array) for name, array in outputs.items()}, size)
        with self._lock:
            if self._is_closed or key in self._entries:
                return
            self._drop(self._bytes + size - self.max_bytes)
            if self._cache_account is None or self._cache_account.hold(size):
                self._entries[key] = entry
                self._bytes += size

    def close(self) -> None:
        """Hold nothing, now and from now on: whoever still runs finds no room."""
        with self._lock:
            self._is_closed = True
            self._drop(self._bytes)

    def make_room(self, count: int) -> None:
        """Hold so many bytes less, those that were not asked for the longest first; or nothing at all."""
        with self._lock:
            self._drop(count)

    def _drop(self, count: int) -> None:
        end = self._bytes - count
        while self._bytes > end and self._entries:
            self._free(self._entries.popitem(last=False)[1].size)

    def _free(self, size: int) -> None:
        self._bytes -= size
        if self._cache_account is not None:
            self._cache_account.release(size)

    def _join(self) -> None:
        """Count with the budget of the requests that bring something to keep: it is the same for all of them."""
        if self._cache_account is not None or (found := cache_account(weakref.WeakMethod(self.make_room))) is None:
            return
        with self._lock:
            if self._cache_account is None:
                self._cache_account = found
                weakref.finalize(self, found.close)


def _kept(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of its own: an output may be a part of something larger, or of what the client sent."""
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy


def _pieces(array: NDArray[Any]) -> Iterator[Any]:
    """What an array says; of texts those themselves, not where they lie."""
    if not is_text(array.dtype):
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return
    for text in as_bytes(array):
        yield len(text).to_bytes(8, "little")
        yield text
