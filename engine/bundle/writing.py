"""Writing a bundle's folder atomically."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from engine.bundle.manifest import MANIFEST, StatedFile, is_plain_name
from engine.errors import BundleError
from engine.memory.files import OTHERS_WRITE, reason

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_folder(target: Path, *, marks: tuple[str, ...], replace: bool) -> Iterator[Path]:
    """Yield a temporary folder to fill; it gets its name when the block ends without an error.

    Args:
        marks: files by which an existing folder is recognised as a bundle.
        replace: whether an existing bundle may be replaced.

    Raises:
        BundleError: the target exists and may not be replaced, or the system refuses.
    """
    try:
        _check_place(target, marks, replace)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = _unfinished_path(target)
        unfinished.mkdir(0o755)
    except OSError as error:
        raise BundleError("the folder cannot be made", where=target.name, found=reason(error)) from None
    try:
        yield unfinished
        _put(unfinished, target)
    except OSError as error:
        raise BundleError("the bundle cannot be written", where=target.name, found=reason(error)) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_place(target: Path, marks: tuple[str, ...], replace: bool) -> None:
    if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
        return
    if not any((target / mark).is_file() for mark in marks):
        raise BundleError("the target exists", where=target.name, expected="no folder, an empty one or a bundle")
    if not replace:
        raise BundleError("the bundle exists already", where=target.name, expected="permission to replace it (--force)")


def _put(unfinished: Path, target: Path) -> None:
    """Rename a folder to its target, and remove the folder that had the name before."""
    before = _unfinished_path(target) if target.is_dir() and any(target.iterdir()) else None
    if before is not None:
        os.rename(target, before)
    try:
        os.rename(unfinished, target)
    except BaseException:
        if before is not None:
            os.rename(before, target)
        raise
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def _unfinished_path(target: Path) -> Path:
    return target.parent / f".{target.name}.{secrets.token_hex(4)}.unfinished"


@contextmanager
def new_file(folder: Path, name: str) -> Iterator[Any]:
    """Open a new file of a folder for writing.

    Raises:
        BundleError: the name is not valid.
    """
    if not is_plain_name(name) or name == MANIFEST:
        raise BundleError("not a valid name for a file of a bundle", where=name[:80])
    with _created(folder / name) as file:
        yield file


def write_manifest(folder: Path, content: bytes) -> None:
    """Write the manifest, replacing an earlier one."""
    with suppress(FileNotFoundError):
        os.unlink(folder / MANIFEST)
    with _created(folder / MANIFEST) as file:
        file.write(content)


@contextmanager
def _created(path: Path) -> Iterator[Any]:
    with open(os.open(path, _FLAGS, 0o644), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def stated_files(folder: Path) -> dict[str, StatedFile]:
    """Return size and hash of all files but the manifest, after removing write permission for other users."""
    found: dict[str, StatedFile] = {}
    for path in sorted(folder.iterdir()):
        path.chmod(path.stat().st_mode & 0o777 & ~OTHERS_WRITE)
        if path.name != MANIFEST:
            found[path.name] = StatedFile(path.stat().st_size, hash_file(path))
    return found


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
