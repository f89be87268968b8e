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

from engine.memory.resources import available_cores, free_memory_bytes
from engine.stopping import check_wanted
from engine.tensor import Array

T = TypeVar("T")
R = TypeVar("R")

PIECE_BYTES: Final = 8 << 20
"""Long enough for a thread, short enough for whoever asks whether it is still wanted."""
_MOST_THREADS: Final = 4


def side_by_side(do: Callable[[T], R], pieces: Sequence[T]) -> Iterator[R]:
    """What comes of every piece, in order; by several threads where there are several pieces.

    Raises:
        RunCancelledError: nobody wants it any more.
    """
    threads = min(_MOST_THREADS, available_cores(), len(pieces))
    if threads < 2:
        for piece in pieces:
            check_wanted()
            yield do(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            for result in pool.map(do, pieces):
                check_wanted()
                yield result
        finally:
            pool.shutdown(cancel_futures=True)


_FICLONE: Final = 0x40049409
# File systems on disks of this machine where room that was set aside is there when it is written to: ext4, XFS, and
# what lies over them in containers.
_DISKS: Final = frozenset({0xEF53, 0x58465342, 0x794C7630})
_LARGE_BYTES: Final = 4 << 20
# More than this is asked for only where there is so much: the system promises memory it does not have.
_CHECKED_BYTES: Final = 64 << 20
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MAP_FIXED: Final = 0x10
# To map and forget the descriptor: Python's own mmap keeps one open for as long as it lives.
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long)
_libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class TornError(Exception):
    """A file was shorter than it had said: somebody writes to it."""


def read_block(descriptor: int, size: int) -> Array:
    """So many bytes of a file from its beginning, copied; read-only.

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
    """A file that nobody can write to any more, mapped; read-only. The descriptor may be closed afterwards.

    Args:
        released: called when nobody uses the block any more, in any thread.

    Raises:
        OSError: it cannot be mapped.
    """
    # Never written to, the pages of a private map are the file's own. Older systems map nothing else of a sealed one.
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
    """A file as it is now, without copying it; None where the file system cannot, or may not be written to.

    Args:
        folder: where the file lies.
        keep: given a descriptor of the clone, to read from, which is closed afterwards.
    """

    def clone(nameless: int) -> Array | None:
        fcntl.ioctl(nameless, _FICLONE, descriptor)
        return _mapped(nameless, size, keep) if os.fstat(nameless).st_size == size else None

    return _in_nameless_file(clone, folder)


def spill_block(descriptor: int, folder: str, size: int, keep: Callable[[int], object] | None = None) -> Array | None:
    """A file as it is now, copied to a disk; None where there is no disk with plenty of room that may be written to.

    Args:
        folder: where the file lies; that of temporary files is the other one that is tried.
        keep: given a descriptor of the copy, to read from, which is closed afterwards.

    Raises:
        TornError: there are fewer bytes.
    """
    if size > free_memory_bytes():  # no more than memory would have to hold otherwise
        return None

    def copy(nameless: int) -> Array | None:
        if not _has_room(nameless, size):
            return None
        os.posix_fallocate(nameless, 0, size)

        def send(at: int, count: int) -> int:
            os.lseek(nameless, at, os.SEEK_SET)
            return os.sendfile(nameless, descriptor, at, count)

        for piece in _pieces(descriptor, size):
            check_wanted()
            _take(*piece, send)
        return _mapped(nameless, size, keep)

    return _in_nameless_file(copy, folder)


def disk_block(pieces: Callable[[], Iterator[Array]], size: int) -> Array | None:
    """Bytes in a new file without a name, mapped; None where there is no disk with plenty of room.

    Args:
        pieces: gives them, as contiguous arrays one after the other; more than once where a folder fails.
    """

    def write(nameless: int) -> Array | None:
        if not _has_room(nameless, size):
            return None
        os.posix_fallocate(nameless, 0, size)
        at = 0
        for piece in pieces():
            check_wanted()
            content = piece.reshape(-1).view(np.uint8).data
            done = 0
            while done < len(content):
                done += os.pwrite(nameless, content[done:], at + done)
            at += done
        return _mapped(nameless, size, None)

    return _in_nameless_file(write, tempfile.gettempdir())


def move_to_disk(block: Array, folder: str) -> bool:
    """Let the whole pages of a block in memory be those of a new file without a name: what nobody reads takes none.

    Args:
        block: flat and contiguous; a part of anonymous memory that is mapped and is unmapped as a whole. Nobody writes
            to it any more.
        folder: where the file may lie; that of temporary files is the other one that is tried.

    Returns:
        Whether it was: only where there is a disk with plenty of room that may be written to.
    """
    skip = -block.ctypes.data % mmap.PAGESIZE
    size = max(0, block.nbytes - skip) // mmap.PAGESIZE * mmap.PAGESIZE
    content = block.data.cast("B")[skip : skip + size]

    def move(nameless: int) -> bool:
        if not size or not _has_room(nameless, size):
            return False
        os.posix_fallocate(nameless, 0, size)
        at = 0
        while at < size:
            check_wanted()
            at += os.pwrite(nameless, content[at : at + PIECE_BYTES], at)
        rights, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        begin = block.ctypes.data + skip
        return bool(_libc.mmap(begin, size, rights, flags, nameless, 0) == begin)

    return bool(_in_nameless_file(move, folder))


def _in_nameless_file(use: Callable[[int], T], folder: str) -> T | None:
    """Make a file without a name, in a folder or in that of temporary files, and give its descriptor to a function.

    Returns:
        Its answer, unless that is None or False: then the next folder is tried, and None is the last word.
    """
    if not hasattr(os, "O_TMPFILE"):
        return None
    for place in (folder, None):
        with suppress(OSError):
            where = tempfile.gettempdir() if place is None else place
            # O_EXCL: nor can it be given a name.
            nameless = os.open(where, os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                answer = use(nameless)
                if answer is not None and answer is not False:
                    return answer
            finally:
                os.close(nameless)
    return None


def _has_room(nameless: int, size: int) -> bool:
    """Whether a file lies on a disk that has twice as much room as is wanted."""
    room = os.fstatvfs(nameless)
    return _kind_of_disk(nameless) in _DISKS and room.f_bavail * room.f_frsize >= 2 * size


def _mapped(nameless: int, size: int, keep: Callable[[int], object] | None) -> Array:
    """A file without a name as a block; the function is given a descriptor of it, to read from."""
    block = map_block(nameless, size)
    if keep is not None:
        _with_reader(nameless, keep)
    return block


def _with_reader(nameless: int, keep: Callable[[int], object]) -> None:
    """Open a file that has no name once more, to read from only, while the function looks at it."""
    reader = os.open(f"/proc/self/fd/{nameless}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        keep(reader)
    finally:
        os.close(reader)


def _kind_of_disk(descriptor: int) -> int:
    """The number of the file system a file lies on; 0 where that cannot be found out."""
    answer = (ctypes.c_ulong * 64)()
    return 0 if _libc.fstatfs(descriptor, ctypes.byref(answer)) else int(answer[0])


def is_mapped(data: Array) -> bool:
    """Whether an array is a part of a block that is mapped."""
    return _owner(data) is not None


def release(data: Array) -> None:
    """Give back the pages of the mapped block an array is a part of; whoever reads it again finds them."""
    owner = _owner(data)
    if owner is not None:
        _libc.madvise(ctypes.addressof(owner), ctypes.sizeof(owner), mmap.MADV_DONTNEED)


def _owner(data: Array) -> ctypes.Array[ctypes.c_ubyte] | None:
    owner: object = data
    while owner is not None and not isinstance(owner, ctypes.Array):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def _take(at: int, end: int, take: Callable[[int, int], int]) -> None:
    """Take some bytes of a file; ``take`` is told where, and how many at most, and says how many."""
    while at < end:
        count = take(at, end - at)
        if count == 0:
            raise TornError
        at += count


def _pieces(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has bytes, in pieces: from where, and to where."""
    for first, end in _filled(descriptor, size):
        for at in range(first, end, PIECE_BYTES):
            yield at, min(at + PIECE_BYTES, end)


def _filled(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has bytes: what it leaves out is zero, as fresh memory is."""
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
