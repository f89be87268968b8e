"""Version of the compiler: any change to the engine's sources, LLVM or numpy gives another one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

_ROOT: Final = Path(__file__).parents[2]
_PIECE_BYTES: Final = 1 << 16


def hash_sources(root: Path) -> str:
    """Return the hash of the names and contents of all Python files under a folder."""
    state = hashlib.sha256()
    for name in sorted(_sources(os.fspath(root), "")):
        content = _content(f"{root}/{name}")
        state.update(f"{name} {len(content)}\n".encode())
        state.update(content)
    return state.hexdigest()


def _content(path: str) -> bytes:
    """Return the content of a file; opening hundreds of file objects would double the time of ``hash_sources``."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        content = piece = os.read(file, _PIECE_BYTES)
        while len(piece) == _PIECE_BYTES:
            piece = os.read(file, _PIECE_BYTES)
            content += piece
    finally:
        os.close(file)
    return content


def _sources(folder: str, before: str) -> Iterator[str]:
    """Yield the Python files under a folder, relative to its root; strings because ``Path`` slows down each start."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                yield from _sources(each.path, f"{before}{each.name}/")
            elif each.name.endswith(".py"):
                yield f"{before}{each.name}"


SOURCES: Final = hash_sources(_ROOT)
"""Hash of the sources of this engine."""


def _llvmlite() -> str:
    """Return the version of llvmlite, which fixes the version of LLVM, without importing it (0.1 s).

    It is in the name of the dist-info folder. If there is no such folder or several, importlib.metadata decides;
    importing that takes 20 ms of every start.
    """
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return _installed_version()
    found = [each.name for each in Path(spec.origin).parents[1].glob("llvmlite-*.dist-info")]
    return found[0].removeprefix("llvmlite-").removesuffix(".dist-info") if len(found) == 1 else _installed_version()


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("llvmlite")
    except PackageNotFoundError:
        return "none"


GENERATOR: Final = f"sources {SOURCES}, llvmlite {_llvmlite()}, numpy {np.__version__}"
"""Versions of all that generates code."""


def is_unchanged() -> bool:
    """Return whether the sources are still those that this process imported.

    After a change on disk it is unknown which of them were imported, so new executables cannot be given a key.
    """
    return hash_sources(_ROOT) == SOURCES
