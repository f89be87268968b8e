"""Sharing of weights among replicas of a machine: the first replica owns the blocks.

It is found through an abstract Unix socket. Both sides verify that the other is a process of the same user. When the
owner ends, running replicas keep their weights, and the next one to start becomes the owner.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from contextlib import suppress
from typing import Final

import engine

log = logging.getLogger(__name__)

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of <sys/socket.h>
_BACKLOG: Final = 64


def share_with_others() -> bool:
    """Share weights with other replicas of this machine; return whether this one is the owner."""
    is_first = _host()
    child = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        child.connect(_name())
        if _user(child) == os.geteuid():
            engine.share_memory(child)
            return is_first
        log.warning("weights are not shared: another user has taken the name")
    except OSError as exc:
        log.warning("weights are not shared with other replicas: %s", exc.strerror)
    child.close()
    return False


def _host() -> bool:
    """Become the owner if there is none."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(_name())
    except OSError:
        listener.close()
        return False
    listener.listen(_BACKLOG)
    threading.Thread(target=_welcome, args=(listener,), daemon=True, name="weights").start()
    return True


def _welcome(listener: socket.socket) -> None:
    shared_blocks = engine.SharedBlockServer()
    while True:
        with suppress(OSError):
            child, _ = listener.accept()
            if _user(child) == os.geteuid():
                shared_blocks.adopt(child)
            else:
                child.close()


def _user(peer: socket.socket) -> int:
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(found)[1]
    return user


def _name() -> str:
    return f"\0pnnx-serve-weights-{os.geteuid()}"
