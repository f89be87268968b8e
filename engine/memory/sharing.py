"""Blocks of memory that several processes share: weights are the same for all workers of a server.

The processes have a parent that takes no part in the work. It keeps the descriptor of every block that some child uses,
by the hash of its bytes; a child that has read a block asks for it, and either gives its own away or takes the one
there is. A block lies in memory without a file, sealed: nobody can cut it off or write to it any more, not even
the child that made it. Or it lies on a disk, in a file without a name that is open to be read from only, so that the
system may drop its pages and find them again. When no child uses a block it is gone.

A child says one of three things, the hash behind each: what it wants, what it has (with a descriptor), and what it no
longer needs. To the first two the parent answers with a descriptor or without. Children that cannot reach the parent
keep what they have read to themselves.
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

# Smaller ones are not worth a descriptor.
MIN_BYTES: Final = 1 << 16
_WANT, _HAVE, _DROP = b"?", b"!", b"."
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MESSAGE_BYTES: Final = 64
# The parent has nothing else to do than to answer.
_PATIENCE_S: Final = 30.0

_log = logging.getLogger("pnnx_serve.engine")


class Exchange:
    """The parent's side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[bytes, int] = {}
        self._users: Counter[bytes] = Counter()

    def connect(self) -> socket.socket:
        """What a child is to give to ``share_memory``; whoever passes it on closes his own."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threading.Thread(target=self._serve, args=(ours,), daemon=True, name="exchange").start()
        return theirs

    def adopt(self, child: socket.socket) -> None:
        """Answer a child that has come by itself, over a socket that keeps messages apart (SOCK_SEQPACKET)."""
        threading.Thread(target=self._serve, args=(child,), daemon=True, name="exchange").start()

    @property
    def blocks(self) -> int:
        """How many blocks are in use."""
        return len(self._blocks)

    def _serve(self, child: socket.socket) -> None:
        """Answer a child until it is gone, then take back what it used."""
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
        """The block there is, one more user counted; the one given where there is none."""
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


class _Link:
    """A child's side."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        parent.settimeout(_PATIENCE_S)

    def exchange(self, block: Array, file: int | None = None) -> Array:
        """The same bytes, in memory that all children share.

        Args:
            file: a descriptor of the file without a name that the block lies in; None where it lies in memory.

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
            if not _is_settled(descriptor) or os.fstat(descriptor).st_size != block.nbytes:
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
        # A message is whole and has no answer: it may come between a question and its own, from whichever thread.
        with suppress(OSError):
            self._parent.send(_DROP + digest)


_links: list[_Link] = []


def share_memory(parent: socket.socket) -> None:
    """Share weights with the other children of a parent from now on.

    Args:
        parent: of ``Exchange.connect``.
    """
    _links[:] = [_Link(parent)]


def is_sharing() -> bool:
    """Whether weights are shared with other processes."""
    return bool(_links)


def shared(block: Array, file: int | None = None) -> Array:
    """The same bytes, in memory that other processes use as well where there are any; the block itself where not.

    Args:
        block: uint8, flat, contiguous; nobody writes to it any more. One that is mapped already is left as it is, but
            for one that comes with its file.
        file: a descriptor of the file without a name that the block lies in, to read from.
    """
    if not _links or block.nbytes < MIN_BYTES or (file is None and is_mapped(block)):
        return block
    try:
        return _links[0].exchange(block, file)
    except (ConnectionError, TimeoutError) as error:
        _links.clear()
        _log.warning("weights are no longer shared with other processes: %s", error.strerror or type(error).__name__)
        return block
    except OSError:  # no memory or no descriptor for this one
        return block


def _is_settled(descriptor: int) -> bool:
    """Whether what it stands for stays as it is: sealed, or a file that has no name and is not open for writing."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # no memory, but a file on a disk
        status, mode = os.fstat(descriptor), fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and mode == os.O_RDONLY


def _seal(block: Array) -> int:
    """A descriptor of memory that holds the block and cannot be changed; the caller closes it."""
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
