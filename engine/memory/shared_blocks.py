"""Blocks of memory shared by several processes: all workers of a server use one copy of the weights.

The parent of the workers keeps a descriptor of every block in use, by the hash of its bytes, and does nothing else. A
child that has read a block asks for it; it passes on its own block or takes the existing one. A block is either a
sealed memory file, which no process can truncate or write to, or an unlinked file on a disk, open for reading only, so
that the system may drop its pages and read them again. When no child uses a block it is closed.

A child sends one of three messages, each followed by the hash: a request, an offer (with a descriptor), or a release.
The parent answers the first two, with a descriptor or without. Children that cannot reach the parent keep their own
copies.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import stat
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final

from engine.memory.blocks import is_mapped, map_block
from engine.tensor import Array

# Smaller blocks are not worth a descriptor.
MIN_BYTES: Final = 1 << 16
_WANT, _HAVE, _DROP = b"?", b"!", b"."
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MESSAGE_BYTES: Final = 64
# The parent only answers messages, so a longer silence is a fault.
_TIMEOUT_S: Final = 30.0

_log = logging.getLogger("pnnx_serve.engine")


class SharedBlockServer:
    """The parent's side: keeps a descriptor of every block and answers the children."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[bytes, int] = {}
        self._users: Counter[bytes] = Counter()

    def connect(self) -> socket.socket:
        """Return a child's end for ``share_memory``; the caller closes it after passing it on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threading.Thread(target=self._serve, args=(ours,), daemon=True, name="shared-blocks").start()
        return theirs

    def adopt(self, child: socket.socket) -> None:
        """Serve a child that connected by itself, over a socket that preserves message boundaries (SOCK_SEQPACKET)."""
        threading.Thread(target=self._serve, args=(child,), daemon=True, name="shared-blocks").start()

    @property
    def blocks(self) -> int:
        """Number of blocks in use."""
        return len(self._blocks)

    def _serve(self, child: socket.socket) -> None:
        """Answer a child until it disconnects, then release its blocks."""
        used: Counter[bytes] = Counter()
        with child, suppress(OSError):
            while True:
                message, descriptors, _, _ = socket.recv_fds(child, _MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
                if not message:
                    break
                verb, digest = message[:1], message[1:]
                if verb == _DROP:
                    self._drop(digest, min(1, used[digest]))
                    used[digest] -= min(1, used[digest])
                    continue
                found = self._find(digest, descriptors)
                used[digest] += found is not None
                socket.send_fds(child, [b"+" if found is not None else b"-"], [] if found is None else [found])
        for digest, count in used.items():
            self._drop(digest, count)

    def _find(self, digest: bytes, given: list[int]) -> int | None:
        """Return the descriptor of a block and count a user; keep the given one if there is none yet."""
        with self._lock:
            if given and digest not in self._blocks:
                self._blocks[digest] = given.pop()
            for descriptor in given:
                os.close(descriptor)
            if digest not in self._blocks:
                return None
            self._users[digest] += 1
            return self._blocks[digest]

    def _drop(self, digest: bytes, count: int) -> None:
        with self._lock:
            self._users[digest] -= count
            if self._users[digest] <= 0 and digest in self._blocks:
                os.close(self._blocks.pop(digest))
                del self._users[digest]


class _SharedBlockClient:
    """A child's side."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        parent.settimeout(_TIMEOUT_S)

    def share(self, block: Array, file: int | None = None) -> Array:
        """Return the same bytes in memory that all children share.

        Args:
            file: a descriptor of the unlinked file that holds the block; None for a block in memory.

        Raises:
            OSError: the parent does not answer, or there is no memory.
        """
        digest = hashlib.sha256(block.data).digest()
        with self._lock:
            descriptor = self._ask(_WANT + digest)
            if descriptor is None:
                made = _seal(block) if file is None else os.dup(file)
                try:
                    descriptor = self._ask(_HAVE + digest, [made])
                finally:
                    os.close(made)
            if descriptor is None:
                return block
        try:
            if not _is_immutable(descriptor) or os.fstat(descriptor).st_size != block.nbytes:
                self._drop(digest)
                return block
            return map_block(descriptor, block.nbytes, partial(self._drop, digest))
        finally:
            os.close(descriptor)

    def _ask(self, message: bytes, descriptors: list[int] | None = None) -> int | None:
        socket.send_fds(self._parent, [message], descriptors or [])
        answer, found, _, _ = socket.recv_fds(self._parent, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not answer:
            raise ConnectionResetError
        return found[0] if found else None

    def _drop(self, digest: bytes) -> None:
        # A message is atomic and has no answer, so any thread may send it between a request and its answer.
        with suppress(OSError):
            self._parent.send(_DROP + digest)


_clients: list[_SharedBlockClient] = []


def share_memory(parent: socket.socket) -> None:
    """Share weights with the other children of a parent from now on.

    Args:
        parent: of ``SharedBlockServer.connect``.
    """
    _clients[:] = [_SharedBlockClient(parent)]


def is_sharing() -> bool:
    """Return whether weights are shared with other processes."""
    return bool(_clients)


def shared(block: Array, file: int | None = None) -> Array:
    """Return the same bytes in shared memory; the block itself if this process shares none.

    Args:
        block: uint8, flat, contiguous, and no longer written to. A mapped block is returned as it is unless its file
            is given.
        file: a descriptor, for reading, of the unlinked file that holds the block.
    """
    if not _clients or block.nbytes < MIN_BYTES or (file is None and is_mapped(block)):
        return block
    try:
        return _clients[0].share(block, file)
    except (ConnectionError, TimeoutError) as error:
        _clients.clear()
        _log.warning("weights are no longer shared with other processes: %s", error.strerror or type(error).__name__)
        return block
    except OSError:  # no memory or no descriptor for this block
        return block


def _is_immutable(descriptor: int) -> bool:
    """Return whether the contents of a descriptor cannot change: sealed memory, or a read-only unlinked file."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # not memory but a file on a disk
        status, mode = os.fstat(descriptor), fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and mode == os.O_RDONLY


def _seal(block: Array) -> int:
    """Return a descriptor of sealed memory with the contents of a block; the caller closes it."""
    descriptor = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        at = 0
        while at < block.nbytes:
            at += os.write(descriptor, block.data[at:])
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
