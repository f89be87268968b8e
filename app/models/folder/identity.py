"""Identity of a model's files, to detect replaced or changed ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from app.hooks import HOOKS
from app.models.folder.layout import (
    BIN,
    CONFIG,
    FLAT_BIN,
    FLAT_PARAM,
    MANIFEST,
    ONNX,
    ONNX_DATA,
    PARAM,
    WARMUP,
    is_version,
)
from app.models.folder.repository import FoundModel, ModelFiles, VersionFiles, pairs_in
from app.pipelines.config import PIPELINE
from app.text.text import TOKENIZER
from app.text_files import FileIdentity, identity_of

_FILES: Final = frozenset({PARAM, BIN, ONNX, *ONNX_DATA, MANIFEST, WARMUP, TOKENIZER, HOOKS})
# Maximum number of files considered in a folder.
_MAX_FILES: Final = 10_000

Identity: TypeAlias = tuple[FileIdentity | None, ...]
Contents: TypeAlias = tuple[tuple[str, FileIdentity | None], ...]


def identify(files: ModelFiles, version: VersionFiles) -> Identity:
    """Return a value that changes when pair, config or labels are replaced or written."""
    return tuple(identity_of(path) for path in _paths(files, version))


def _paths(files: ModelFiles, version: VersionFiles) -> Iterator[Path]:
    if files.is_pair:
        yield from (version.param, version.bin)
    else:
        folder = version.param.parent
        yield from (folder / name for name in sorted({version.param.name, version.bin.name, *_names(folder)}))
        yield files.folder / CONFIG
        yield from (files.folder / name for name in files.config.named_files)


def _names(folder: Path) -> set[str]:
    """Return the names of the files that a version in this folder consists of, or may consist of later.

    Without a pair these are all files: an ONNX model may store tensors in files of any name.
    """
    names = set(_FILES)
    with suppress(OSError):
        if not (folder / PARAM).exists():
            with os.scandir(folder) as entries:
                names.update(entry.name for entry in islice(entries, _MAX_FILES) if entry.is_file())
    return names


def contents_of(found: FoundModel, named: Sequence[str] = ()) -> Contents:
    """Return a value that changes when a file is replaced, written, added or removed.

    named: the files that the config names, if it is known.
    """
    return tuple(_contents(found, named))


def _contents(found: FoundModel, named: Sequence[str]) -> Iterator[tuple[str, FileIdentity | None]]:
    """Yield the files that define a model, with their identities."""
    if found.is_pair:
        yield found.path.name, identity_of(found.path)
        yield "bin", identity_of(found.path.with_name(f"{found.name}{FLAT_BIN}"))
        return
    for name in (CONFIG, PIPELINE, *named):
        yield name, identity_of(found.path / name)
    try:
        numbers = sorted(path.name for path in found.path.iterdir() if is_version(path.name))
    except OSError:
        return
    if not numbers:
        pairs = (f"{pair}{end}" for pair in pairs_in(found.path) for end in (FLAT_PARAM, FLAT_BIN))
        for name in sorted({*_names(found.path), *pairs}):
            yield name, identity_of(found.path / name)
    for number in numbers:
        for name in sorted(_names(found.path / number)):
            yield f"{number}/{name}", identity_of(found.path / number / name)


def mark_of(found: FoundModel) -> str:
    """Return a digest of the contents, for another process."""
    return hashlib.sha256(repr(contents_of(found)).encode()).hexdigest()
