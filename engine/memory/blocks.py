"""Blocks of memory with the contents of a file, which keep neither a descriptor nor the file.

A page of a mapped file is gone when the file is truncated, and touching it ends the process; when the file is
overwritten in place, numbers change during a computation. So the contents of a file that others may write to are
copied, or cloned where the file system can do that without copying: into a file without a name, which no other process
can open. A copy lies in memory or in such a file; then the system may drop its pages and reads them again on demand.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import numpy as np

from engine.cancellation import check_cancelled
from engine.memory.resources import available_cores, free_memory_bytes
from engine.tensor import Array

T = TypeVar("T")
R = TypeVar("R")

PIECE_BYTES: Final = 8 << 20
"""Enough work for a thread, and short enough between two checks for cancellation."""
_MOST_THREADS: Final = 4
_FICLONE: Final = 0x40049409
# Local file systems that keep allocated space for later writes: ext4, XFS, and overlays over them in containers.
_DISKS: Final = frozenset({0xEF53, 0x58465342, 0x794C7630})
_LARGE_BYTES: Final = 4 << 20
# Larger requests are first checked against the free memory: the system overcommits.
_CHECKED_BYTES: Final = 64 << 20
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MAP_FIXED: Final = 0x10
# libc's mmap, because Python's keeps a descriptor open as long as the map lives.
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long)
_libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def side_by_side(do: Callable[[T], R], pieces: Sequence[T]) -> Iterator[R]:
    """Yield the results for all pieces in order, computed by several threads.

    Raises:
        RunCancelledError: the work was cancelled.
    """
    threads = min(_MOST_THREADS, available_cores(), len(pieces))
    if threads < 2:
        for piece in pieces:
            check_cancelled()
            yield do(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            for result in pool.map(do, pieces):
                check_cancelled()
                yield result
        finally:
            pool.shutdown(cancel_futures=True)


class TornError(Exception):
    """A file is shorter than its size said: another process writes to it."""


def read_block(descriptor: int, size: int) -> Array:
    """Return the first ``size`` bytes of a file, copied; read-only.

    Raises:
        TornError: there are fewer.
        OSError: they cannot be read, or there is no memory for them.
    """
    if size == 0:
        return np.zeros(0, np.uint8)
    if size > _CHECKED_BYTES and size > free_memory_bytes():
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    block = mmap.mmap(-1, size, flags=_FLAGS)
    if size >= _LARGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    with memoryview(block) as view:

        def read(piece: tuple[int, int]) -> None:
            _take(*piece, lambda at, count: os.preadv(descriptor, [view[at : at + count]], at))

        for _ in side_by_side(read, list(_pieces(descriptor, size))):
            pass
    return np.frombuffer(memoryview(block).toreadonly(), np.uint8)


def map_block(descriptor: int, size: int, released: Callable[[], object] | None = None) -> Array:
    """Return an immutable file as a read-only map. The descriptor may be closed afterwards.

    Args:
        released: called, in any thread, when the block is no longer used.

    Raises:
        OSError: it cannot be mapped.
    """
    # Unwritten pages of a private map are the file's own; older systems map a sealed file only like this.
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    owner = (ctypes.c_ubyte * size).from_address(address)
    # At the end of the process threads may still compute with it.
    weakref.finalize(owner, _libc.munmap, address, size).atexit = False
    if released is not None:
        weakref.finalize(owner, released).atexit = False
    block: Array = np.frombuffer(memoryview(owner), np.uint8)
    block.flags.writeable = False
    return block


def clone_block(descriptor: int, folder: str, size: int, keep: Callable[[int], object] | None = None) -> Array | None:
    """Return the current contents of a file as a clone without copying; None where the file system cannot.

    Args:
        folder: where the file lies.
        keep: called with a descriptor of the clone, for reading, which is closed afterwards.
    """

    def clone(nameless: int) -> Array | None:
        fcntl.ioctl(nameless, _FICLONE, descriptor)
        return _mapped(nameless, size, keep) if os.fstat(nameless).st_size == size else None

    return _in_nameless_file(clone, folder)


def spill_block(descriptor: int, folder: str, size: int, keep: Callable[[int], object] | None = None) -> Array | None:
    """Return the current contents of a file as a copy on a disk; None without a writable disk with enough room.

    Args:
        folder: where the file lies; the folder of temporary files is tried as well.
        keep: called with a descriptor of the copy, for reading, which is closed afterwards.

    Raises:
        TornError: there are fewer bytes.
    """
    if size > free_memory_bytes():  # as much as would be needed in memory
        return None

    def copy(nameless: int) -> Array | None:
        if not _reserve(nameless, size):
            return None

        def send(at: int, count: int) -> int:
            os.lseek(nameless, at, os.SEEK_SET)
            return os.sendfile(nameless, descriptor, at, count)

        for piece in _pieces(descriptor, size):
            check_cancelled()
            _take(*piece, send)
        return _mapped(nameless, size, keep)

    return _in_nameless_file(copy, folder)


def disk_block(pieces: Callable[[], Iterator[Array]], size: int) -> Array | None:
    """Return bytes in a new unlinked file, mapped; None without a disk with enough room.

    Args:
        pieces: yields them as contiguous arrays; called again after a failure.
    """

    def write(nameless: int) -> Array | None:
        return map_block(nameless, size) if _fill(nameless, pieces(), size) else None

    return _in_nameless_file(write, tempfile.gettempdir())


def move_to_disk(block: Array, folder: str) -> bool:
    """Replace the whole pages of a block in memory by those of a new unlinked file; unread pages then take no memory.

    Args:
        block: flat and contiguous; a part of anonymous memory that is mapped and is unmapped as a whole, and no longer
            written to.
        folder: where the file may lie; the folder of temporary files is tried as well.

    Returns:
        Whether it was moved: only with a writable disk with enough room.
    """
    skip = -block.ctypes.data % mmap.PAGESIZE
    size = max(0, block.nbytes - skip) // mmap.PAGESIZE * mmap.PAGESIZE
    content = block.view(np.uint8)[skip : skip + size]

    def move(nameless: int) -> bool:
        pieces = (content[at : at + PIECE_BYTES] for at in range(0, size, PIECE_BYTES))
        if not size or not _fill(nameless, pieces, size):
            return False
        rights, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        begin = block.ctypes.data + skip
        return bool(_libc.mmap(begin, size, rights, flags, nameless, 0) == begin)

    return bool(_in_nameless_file(move, folder))


def _in_nameless_file(use: Callable[[int], T], folder: str) -> T | None:
    """Call a function with the descriptor of a new unlinked file, in a folder or in that of temporary files.

    Returns:
        Its first result that is neither None nor False; else None.
    """
    if not hasattr(os, "O_TMPFILE"):
        return None
    for place in (folder, None):
        with suppress(OSError):
            where = tempfile.gettempdir() if place is None else place
            # O_EXCL: it cannot be given a name later.
            nameless = os.open(where, os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                answer = use(nameless)
                if answer is not None and answer is not False:
                    return answer
            finally:
                os.close(nameless)
    return None


def _reserve(nameless: int, size: int) -> bool:
    """Reserve the bytes of a file if it lies on a disk with twice the room, and return whether it does."""
    room = os.fstatvfs(nameless)
    if _kind_of_disk(nameless) not in _DISKS or room.f_bavail * room.f_frsize < 2 * size:
        return False
    os.posix_fallocate(nameless, 0, size)
    return True


def _fill(nameless: int, pieces: Iterator[Array], size: int) -> bool:
    """Write contiguous arrays of that many bytes to a file if there is room, and return whether there is."""
    if not _reserve(nameless, size):
        return False
    at = 0
    for piece in pieces:
        check_cancelled()
        content = piece.reshape(-1).view(np.uint8).data
        while content:
            done = os.pwrite(nameless, content, at)
            content, at = content[done:], at + done
    return True


def _mapped(nameless: int, size: int, keep: Callable[[int], object] | None) -> Array:
    """Return an unlinked file as a block; ``keep`` is called with a descriptor of it, for reading."""
    block = map_block(nameless, size)
    if keep is not None:
        reader = os.open(f"/proc/self/fd/{nameless}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            keep(reader)
        finally:
            os.close(reader)
    return block


def _kind_of_disk(descriptor: int) -> int:
    """Return the magic number of the file system a file lies on; 0 if unknown."""
    answer = (ctypes.c_ulong * 64)()
    return 0 if _libc.fstatfs(descriptor, ctypes.byref(answer)) else int(answer[0])


def is_mapped(data: Array) -> bool:
    """Return whether an array is a part of a mapped block."""
    return _owner(data) is not None


def release(data: Array) -> None:
    """Give back the pages of the mapped block an array is a part of; a later read loads them again."""
    owner = _owner(data)
    if owner is not None:
        _libc.madvise(ctypes.addressof(owner), ctypes.sizeof(owner), mmap.MADV_DONTNEED)


def _owner(data: Array) -> ctypes.Array[ctypes.c_ubyte] | None:
    owner: object = data
    while owner is not None and not isinstance(owner, ctypes.Array):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def _take(at: int, end: int, take: Callable[[int, int], int]) -> None:
    """Read a range of a file by ``take(offset, most)``, which returns the bytes it took."""
    while at < end:
        count = take(at, end - at)
        if count == 0:
            raise TornError
        at += count


def _pieces(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that have data, as (from, to), cut into pieces."""
    for first, end in _filled(descriptor, size):
        for at in range(first, end, PIECE_BYTES):
            yield at, min(at + PIECE_BYTES, end)


def _filled(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that have data; holes are zero, like fresh memory."""
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
            end = os.lseek(descriptor, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end, wherever that is now
                if os.fstat(descriptor).st_size < size:
                    raise TornError from None
                return
            end = size
        if at < size:
            yield at, min(end, size)
        at = end
