"""Which version of the generator this is: a change to any source of the engine, LLVM or numpy makes another one."""

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
    """The hash of the names and contents of all Python files under a folder."""
    state = hashlib.sha256()
    for name in sorted(_sources(os.fspath(root), "")):
        content = _content(f"{root}/{name}")
        state.update(f"{name} {len(content)}\n".encode())
        state.update(content)
    return state.hexdigest()


def _content(path: str) -> bytes:
    """Of a file, mostly in one piece; a file object for each of hundreds takes as long as all the rest."""
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
    """The Python files under a folder, by their names from its root on; a start waits for it, and paths take longer."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                yield from _sources(each.path, f"{before}{each.name}/")
            elif each.name.endswith(".py"):
                yield f"{before}{each.name}"


SOURCES: Final = hash_sources(_ROOT)
"""Names the sources of this engine."""


def _llvmlite() -> str:
    """Its version, which says whose LLVM it has; it is not imported to be asked, for that takes a tenth of a second.

    The folder beside it that says what is installed is named after it. Where there is none, or several, or it cannot be
    imported, whoever reads them is asked; to import that takes twenty milliseconds of every start.
    """
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return _told_version()
    found = [each.name for each in Path(spec.origin).parents[1].glob("llvmlite-*.dist-info")]
    return found[0].removeprefix("llvmlite-").removesuffix(".dist-info") if len(found) == 1 else _told_version()


def _told_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("llvmlite")
    except PackageNotFoundError:
        return "none"


GENERATOR: Final = f"sources {SOURCES}, llvmlite {_llvmlite()}, numpy {np.__version__}"
"""Names the generator."""


def is_unchanged() -> bool:
    """Whether the sources are what they were when this was imported.

    Where they are not, nobody knows which of them this process has imported, and what it makes has no name.
    """
    return hash_sources(_ROOT) == SOURCES
