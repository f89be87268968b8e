"""Which files a model is made of, so that others in their places are noticed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from app.models.folder.layout import BIN, CONFIG, FLAT_BIN, FLAT_PARAM, MANIFEST, ONNX, ONNX_DATA, PARAM, is_version
from app.models.folder.repository import FoundModel, ModelFiles, VersionFiles, pairs_in

_FILES: Final = (PARAM, BIN, ONNX, *ONNX_DATA, MANIFEST)

FileIdentity: TypeAlias = tuple[int, ...]
Identity: TypeAlias = tuple[FileIdentity | None, ...]
Contents: TypeAlias = tuple[tuple[str, FileIdentity | None], ...]


def identify(files: ModelFiles, version: VersionFiles) -> Identity:
    """What is another one as soon as the pair, the config or the labels are replaced or written to."""
    return tuple(identity_of(path) for path in _paths(files, version))


def _paths(files: ModelFiles, version: VersionFiles) -> Iterator[Path]:
    yield from (version.param, version.bin)
    if not files.is_pair:
        yield version.param.parent / MANIFEST
        yield files.folder / CONFIG
        if isinstance(files.config.labels, str):
            yield files.folder / files.config.labels


def identity_of(path: Path) -> FileIdentity | None:
    """What tells one file from another in its place; None where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    # The last one cannot be set: a tool that restores a file's time does not hide that it has written to it.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def contents_of(found: FoundModel) -> Contents:
    """What is another one as soon as a file is replaced, written to, or comes or goes."""
    return tuple(_contents(found))


def _contents(found: FoundModel) -> Iterator[tuple[str, FileIdentity | None]]:
    """The files that say what a model is, with what tells one from another."""
    if found.is_pair:
        yield found.path.name, identity_of(found.path)
        yield "bin", identity_of(found.path.with_name(f"{found.name}{FLAT_BIN}"))
        return
    yield CONFIG, identity_of(found.path / CONFIG)
    try:
        numbers = sorted(path.name for path in found.path.iterdir() if is_version(path.name))
    except OSError:
        return
    if not numbers:
        pairs = (f"{pair}{end}" for pair in pairs_in(found.path) for end in (FLAT_PARAM, FLAT_BIN))
        for name in dict.fromkeys((*_FILES, *pairs)):
            yield name, identity_of(found.path / name)
    for number in numbers:
        for name in _FILES:
            yield f"{number}/{name}", identity_of(found.path / number / name)


def mark_of(found: FoundModel) -> str:
    """The same in short, for another process."""
    return hashlib.sha256(repr(contents_of(found)).encode()).hexdigest()
