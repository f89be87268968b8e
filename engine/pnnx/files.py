"""Files of a model: read as they are now, or replaced both or neither. Messages carry file names, never a folder."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, TypeAlias

from engine.errors import EngineError, ModelFormatError
from engine.memory.blocks import TornError, clone_block, read_block, spill_block
from engine.memory.files import Path, file_name, identity, read_file, reading, reason
from engine.memory.shared_blocks import is_sharing, shared
from engine.tensor import Array

Writer: TypeAlias = Callable[[BinaryIO], object]

MAX_PARAM_BYTES: Final = 2**28
# Smaller blocks are copied faster than cloned, and not worth a file.
_CLONED_BYTES: Final = 1 << 20
_SPILLED_BYTES: Final = 4 << 20
ONNX: Final = "an ONNX model"
_MAGIC: Final = b"7767517"
_ARCHIVES: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_POINTER: Final = b"version https://git-lfs"
_NUMPY: Final = b"\x93NUMPY"


def sibling(path: Path) -> str:
    """Return the weights file that belongs to a text file: ``x.pnnx.param`` has ``x.pnnx.bin``."""
    return os.fsdecode(path).removesuffix(".param") + ".bin"


def read_text_file(path: Path) -> bytes:
    """Return all bytes of a text file.

    Raises:
        ModelFormatError: when it does not exist, cannot be read, or is too large to be a text file.
    """
    return read_file(path, MAX_PARAM_BYTES)


def take_file(path: Path) -> Array:
    """Return the current bytes of a file, read-only, in memory that later changes of the file do not reach.

    Raises:
        ModelFormatError: it does not exist, cannot be read, is larger than memory, or changes while it is read.
    """
    with reading(path) as descriptor:
        before = os.fstat(descriptor)
        try:
            block = take_open(descriptor, os.path.dirname(os.path.realpath(path)), before.st_size)
            if identity(os.fstat(descriptor)) == identity(before):
                return block
        except TornError:
            pass
        raise ChangingError(where=file_name(path))


def take_open(descriptor: int, folder: str, size: int) -> Array:
    """Return the first ``size`` bytes of an open file, read-only, in memory that later changes do not reach.

    Args:
        folder: where the file lies.

    Raises:
        TornError: there are fewer.
        OSError: they cannot be read, or there is no memory for them.
    """
    # The workers of a server share one file, or one block in memory.
    readers: list[int] = []
    keep = (lambda reader: readers.append(os.dup(reader))) if is_sharing() else None
    try:
        block = clone_block(descriptor, folder, size, keep) if size > _CLONED_BYTES else None
        if block is None and size > _SPILLED_BYTES:
            block = spill_block(descriptor, folder, size, keep)
        return shared(read_block(descriptor, size) if block is None else block, *readers)
    finally:
        for each in readers:
            os.close(each)


class ChangingError(ModelFormatError):
    """Another process writes to a file while it is read."""

    def __init__(self, *, where: str) -> None:
        super().__init__("the file changes while it is read", where=where)


def identities(*paths: Path) -> list[tuple[int, ...] | None]:
    """Return the identity of the file of each name; None where there is none."""
    return [_identity(path) for path in paths]


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        return identity(os.stat(path))
    except (OSError, ValueError):
        return None


def replace_file(path: Path, write: Writer) -> None:
    """Write a file and move it to its path; after a failure the path is unchanged.

    Raises:
        EngineError: the system refuses; errors of the writer pass through.
    """
    try:
        place = os.path.realpath(path)  # a link stays a link; its target is replaced
        with _staged(place, write) as one:
            os.replace(one, place)
        _sync_folder(os.path.dirname(place))
    except (OSError, ValueError) as error:
        raise EngineError("the file cannot be written", where=file_name(path), found=reason(error)) from None


def replace_files(first: tuple[Path, Writer], second: tuple[Path, Writer]) -> None:
    """Write two files, then move both to their paths. After a failure both paths are unchanged.

    Raises:
        EngineError: the system refuses, or both paths are the same; errors of a writer pass through.
    """
    names = f"{file_name(first[0])} and {file_name(second[0])}"
    try:
        # A link to a model stays a link; its target is replaced.
        places = os.path.realpath(first[0]), os.path.realpath(second[0])
        if places[0] == places[1]:
            raise EngineError("two outputs have the same path", where=names)
        with _staged(places[0], first[1]) as one, _staged(places[1], second[1]) as other, _restored(places[0]):
            os.replace(one, places[0])
            os.replace(other, places[1])
        for folder in {os.path.dirname(place) for place in places}:
            _sync_folder(folder)
    except (OSError, ValueError) as error:
        raise EngineError("the files cannot be written", where=names, found=reason(error)) from None


@contextlib.contextmanager
def _staged(place: str, write: Writer) -> Iterator[str]:
    """Yield a new file next to its target path, complete and on disk; removed afterwards unless it was moved."""
    path = _temporary_path(place)
    try:
        with open(path, "xb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        yield path
    finally:
        _remove(path)


@contextlib.contextmanager
def _restored(place: str) -> Iterator[None]:
    """Restore a path if the block fails."""
    backup = _temporary_path(place)
    existed = os.path.lexists(place)
    try:
        # Without hard links the second file could still fail alone.
        with contextlib.suppress(OSError):
            os.link(place, backup)
        yield
    except BaseException:
        if os.path.lexists(backup):
            os.replace(backup, place)
        elif not existed:
            _remove(place)
        raise
    finally:
        _remove(backup)


def _temporary_path(place: str) -> str:
    return os.path.join(os.path.dirname(place), f".{secrets.token_hex(8)}.tmp")


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_folder(folder: str) -> None:
    """Make the new names durable, if the system allows opening a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def kind_of_file(head: bytes) -> str | None:
    """Return in words what the first bytes of a file look like; None if unknown.

    Args:
        head: at least 64 bytes, or all there are.
    """
    if not head:
        return "an empty file"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "a zip archive, as weights and TorchScript models are"
    if head.startswith(_ARCHIVES):
        return "a compressed file"
    if head.startswith(_MAGIC):
        return "the text of a pair"
    if head.startswith(_NUMPY):
        return "a numpy array"
    if head.startswith(_POINTER):
        return "a pointer of Git LFS, in place of the file itself ('git lfs pull' fetches it)"
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return ONNX if _is_onnx(head) else None


def _is_onnx(head: bytes) -> bool:
    """Return whether it is a protocol buffer that begins with its format version and, mostly, a producer's name."""
    return len(head) > 3 and head[0] == 0x08 and head[1] < 0x20 and head[2] in (0x12, 0x1A, 0x22, 0x28, 0x3A, 0x42)
