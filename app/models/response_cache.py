"""Response cache of a model: outputs by the hash of their input tensors.

The key is computed from the prepared tensors, and all outputs are stored as the run returned them. The encoding of a
request, its selection of outputs and its task parameters therefore do not matter. A reloaded model starts empty.

The hash uses a secret of this process, so that clients cannot search for collisions.
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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import as_bytes, is_text
from app.errors import ConfigError
from app.memory.reservation import CacheAccount, cache_account
from app.models.folder.config import ResponseCacheConfig

Arrays = Mapping[str, NDArray[Any]]

# Overhead of an entry beside its elements.
ENTRY_BYTES: Final = 1024
_KEY_BYTES: Final = 16


def find_hash() -> Callable[[], Any]:
    """Return a factory of keyed hashes: xxhash if installed (extra ``[fast]``), else BLAKE2."""
    try:
        import xxhash
    except ImportError:
        return partial(hashlib.blake2b, digest_size=_KEY_BYTES, key=secrets.token_bytes(32))
    return partial(xxhash.xxh3_128, seed=secrets.randbits(64))


def open_cache(config: ResponseCacheConfig | None, graph: engine.RuntimeGraph) -> ResponseCache | None:
    """Return the cache that a model's config requests, or None.

    Raises:
        ConfigError: the model's outputs are not known to be repeatable.
    """
    if config is None:
        return None
    if not graph.is_repeatable:
        raise ConfigError(
            "response_cache: the model has random operators, or custom ones of unknown behaviour:"
            " its answers are not repeatable"
        )
    return ResponseCache(config.max_bytes)


@dataclass(frozen=True, slots=True)
class _Entry:
    outputs: Arrays
    size: int


class ResponseCache:
    """LRU cache of one model's outputs, for many threads at once.

    Its memory counts in the budget of the server's requests, at most half of it, and is released when requests need it.

    Args:
        max_bytes: limit of all entries with their overhead.
        hash_of: factory of hashes.
    """

    def __init__(self, max_bytes: int, hash_of: Callable[[], Any] | None = None) -> None:
        self.max_bytes = max_bytes
        self._hash_of = find_hash() if hash_of is None else hash_of
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._cache_account: CacheAccount | None = None

    @property
    def held_bytes(self) -> int:
        """Return the number of bytes held."""
        return self._bytes

    @property
    def entries(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def key(self, tensors: Arrays) -> bytes:
        """Return the key of inputs: a hash of names, dtypes, shapes and bytes."""
        hasher = self._hash_of()
        for name in sorted(tensors):
            array = tensors[name]
            head = repr((name, array.dtype.name, array.shape)).encode()
            hasher.update(len(head).to_bytes(4, "little"))
            hasher.update(head)
            for piece in _pieces(array):
                hasher.update(piece)
        digest: bytes = hasher.digest()
        return digest

    def get(self, key: bytes) -> Arrays | None:
        """Return the read-only outputs for a key, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.outputs

    def put(self, key: bytes, outputs: Arrays) -> None:
        """Store a copy of the outputs if there is room."""
        size = ENTRY_BYTES + sum(array.nbytes for array in outputs.values())
        if size > self.max_bytes or key in self._entries:
            return
        self._join()
        entry = _Entry({name: _read_only(array) for name, array in outputs.items()}, size)
        with self._lock:
            if self._is_closed or key in self._entries:
                return
            self._drop(self._bytes + size - self.max_bytes)
            if self._cache_account is None or self._cache_account.hold(size):
                self._entries[key] = entry
                self._bytes += size

    def close(self) -> None:
        """Drop everything and store nothing from now on."""
        with self._lock:
            self._is_closed = True
            self._drop(self._bytes)

    def make_room(self, count: int) -> None:
        """Release at least this many bytes, least recently used entries first."""
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
        """Join the memory budget of the requests; it is the same for all of them."""
        if self._cache_account is not None or (found := cache_account(weakref.WeakMethod(self.make_room))) is None:
            return
        with self._lock:
            if self._cache_account is None:
                self._cache_account = found
                weakref.finalize(self, found.close)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only copy: an output may be a view of something larger, or of the request."""
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy


def _pieces(array: NDArray[Any]) -> Iterator[Any]:
    """Yield the bytes of an array; for strings their contents instead of their addresses."""
    if not is_text(array.dtype):
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return
    for text in as_bytes(array):
        yield len(text).to_bytes(8, "little")
        yield text
